"""Progress of long work on stderr: what is being done, how much, at what rate, and the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol, Self

_SECONDS_BETWEEN_LINES = 5.0


class Watch(Protocol):
    """Whoever follows the progress of long work."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """A new piece of work begins; `total` in `unit`."""

    def update(self, done: int) -> None:
        """So much of the stage is done."""


class Silent:
    """Follows nothing."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """Ignored."""

    def update(self, done: int) -> None:
        """Ignored."""


class LineWatch:
    """One line every few seconds: for logs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is held."""

    def stage(self, name: str, total: int, unit: str) -> None:
        """Announce the stage."""
        self._name, self._total, self._unit = name, total, unit
        self._began = self._said = time.monotonic()
        self._say(f"{name}: {total:,} {unit}")

    def update(self, done: int) -> None:
        """A line, when the last one is long enough ago or the stage is complete."""
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_LINES or done >= self._total > 0:
            self._said = now
            self._say(f"{self._name}: {_status(done, self._total, now - self._began, self._unit)}")

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class BarWatch:
    """A live bar: for terminals."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            console=Console(stderr=True),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def stage(self, name: str, total: int, unit: str) -> None:
        """A new bar."""
        self._unit, self._total, self._began = unit, total, time.monotonic()
        self._bar = self._bars.add_task(name, total=total, status="")

    def update(self, done: int) -> None:
        """Move the bar."""
        status = _status(done, self._total, time.monotonic() - self._began, self._unit)
        self._bars.update(self._bar, completed=done, status=status)


def watch() -> BarWatch | LineWatch:
    """What fits stderr: a bar on a terminal, lines elsewhere."""
    return BarWatch() if sys.stderr.isatty() else LineWatch()


def _status(done: int, total: int, seconds: float, unit: str) -> str:
    """Share, rate and time left.

    >>> _status(500, 1000, 10.0, "points")
    '50 %, 50 points/s, 10 s left'
    """
    rate = done / seconds if seconds > 0 else 0.0
    share = f"{100 * done / total:.0f} %" if total else "100 %"
    if done >= total:
        return f"{share}, {_short(rate)} {unit}/s, took {duration(seconds)}"
    left = f", {duration((total - done) / rate)} left" if rate > 0 else ""
    return f"{share}, {_short(rate)} {unit}/s{left}"


def _short(number: float) -> str:
    return f"{number:.2e}" if number >= 1e5 else f"{number:.3g}"


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(4.0), duration(4000.0)
    ('4 s', '1 h 7 min')
    """
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
