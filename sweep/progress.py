"""Progress of long work on stderr: what is being done, how much, at what rate, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from kvwall.sweep import interrupt

_SECONDS_BETWEEN_LINES = 5.0
_FEW = 30
"""Units that are rather counted than given a rate."""


class Watch(Protocol):
    """Whoever follows the progress of long work."""

    def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
        """A new piece of work begins; `total` in `unit`, so much of it done by an earlier run.

        Raises KeyboardInterrupt if the user has asked to stop.
        """

    def update(self, done: int) -> None:
        """So much of the stage is done. Raises KeyboardInterrupt if the user has asked to stop."""

    def crew(self, workers: int | None) -> None:
        """So many workers are there; None where the work is done in this process."""


class Silent:
    """Follows nothing."""

    def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
        """Ignored."""

    def update(self, done: int) -> None:
        """Ignored."""

    def crew(self, workers: int | None) -> None:
        """Ignored."""


@dataclass(frozen=True)
class _Stage:
    """A piece of work under way."""

    name: str
    total: int
    unit: str
    before: int
    """Done by an earlier run: not this run's rate."""
    began: float = field(default_factory=time.monotonic)

    def status(self, done: int, workers: int | None) -> str:
        """Share, rate, workers and time left."""
        crew = "" if workers is None else f", {workers} worker{'s' * (workers != 1)}"
        return _status(done, self.total, time.monotonic() - self.began, self.unit, self.before, crew)


class LineWatch:
    """One line every few seconds: for logs."""

    _workers: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is held."""

    def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
        """Announce the stage."""
        interrupt.check()
        self._stage = _Stage(name, total, unit, done)
        self._said = self._stage.began
        self._say(f"{name}: {total:,} {unit}" + (f", {done:,} done before" if done else ""))

    def update(self, done: int) -> None:
        """A line, when the last one is long enough ago or the stage is complete."""
        interrupt.check()
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_LINES or done >= self._stage.total > 0:
            self._said = now
            self._say(f"{self._stage.name}: {self._stage.status(done, self._workers)}")

    def crew(self, workers: int | None) -> None:
        """Part of the next line."""
        self._workers = workers

    def _say(self, line: str) -> None:
        with suppress(OSError):  # nobody listens any more: the work goes on
            if sys.stderr is not None:
                print(line, file=sys.stderr, flush=True)


class BarWatch:
    """A live bar: for terminals."""

    _workers: int | None = None

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

    def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
        """A new bar."""
        interrupt.check()
        self._stage = _Stage(name, total, unit, done)
        self._bar = self._bars.add_task(name, total=total, status="")

    def update(self, done: int) -> None:
        """Move the bar."""
        interrupt.check()
        self._bars.update(self._bar, completed=done, status=self._stage.status(done, self._workers))

    def crew(self, workers: int | None) -> None:
        """Part of what the bar says next."""
        self._workers = workers


def followed(watch: Watch, name: str, unit: str) -> Callable[[int, int], None]:
    """Shows (done, total) as a stage, which begins with the first call at what is done by then."""
    announced = False

    def follow(done: int, total: int) -> None:
        nonlocal announced
        if not announced:
            announced = True
            watch.stage(name, total, unit, done)
        watch.update(done)

    return follow


def watch() -> BarWatch | LineWatch:
    """What fits stderr: a bar on a terminal, lines elsewhere."""
    return BarWatch() if sys.stderr is not None and sys.stderr.isatty() else LineWatch()


def _status(done: int, total: int, seconds: float, unit: str, before: int = 0, crew: str = "") -> str:
    """Share, rate and time left; of few units how many are done.

    >>> _status(500, 1000, 10.0, "points")
    '50 %, 50 points/s, 10 s left'
    >>> _status(3, 12, 6.0, "sections"), _status(1, 1, 8.0, "study")
    ('3 of 12 sections, 18 s left', 'took 8 s')
    """
    rate = (done - before) / seconds if seconds > 0 else 0.0
    told = [f"{100 * done / total:.0f} %" if total else "100 %", f"{_short(rate)} {unit}/s{crew}"]
    if total <= _FEW:
        told = [f"{done} of {total} {unit}{crew}"] if total > 1 else []
    if done >= total:
        told.append(f"took {duration(seconds)}")
    else:
        told.append(f"{duration((total - done) / rate)} left" if rate > 0 else f"{duration(seconds)} so far")
    return ", ".join(told)


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
