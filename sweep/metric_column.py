"""A metric as a column of a terminal table: one unit in its header, bare numbers below, the name in narrow lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kvwall.objectives.register import metric_register
from kvwall.spaces.modes import ESTIMATE

_DIGITS = 4
_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_FIXED = {"s-1": "tok/s", "FLOP byte-1": "FLOP/B", "J": "J", "USD": "USD"}


@dataclass(frozen=True)
class MetricColumn:
    """How the values of one metric are shown: `text(value)` is in `unit`."""

    name: str
    unit: str
    size: float
    """The unit in the metric's own unit."""

    def text(self, value: float | None) -> str:
        """A value with four digits, thousands separated; "no value" where there is none."""
        if value is None:
            return "no value"
        shown = value / self.size
        if shown == 0 or not 1e-3 <= abs(shown) < 1e12:
            return f"{shown:.{_DIGITS}g}"
        return f"{shown:,.{max(0, _DIGITS - 1 - math.floor(math.log10(abs(shown))))}f}"

    def header(self, width: int) -> str:
        """The name in lines of about this width, and the unit."""
        return "\n".join([*lines_of(self.name, width), *([f"({self.unit})"] if self.unit else [])])


def metric_column(name: str, task: str, values: Sequence[float | None]) -> MetricColumn:
    r"""The column of a metric whose largest value sets the prefix of its unit.

    >>> column = metric_column("time_per_output_token", "aggregate", [0.0058, 0.0131])
    >>> column.unit, column.text(0.0058), column.header(8)
    ('ms', '5.800', 'time per\noutput\ntoken\n(ms)')
    """
    unit = metric_register(task, ESTIMATE)[name].unit
    most = max((abs(value) for value in values if value is not None), default=0.0)
    if name.startswith("quality_loss"):
        log_ratio = name.endswith("perplexity") or (task == "perplexity" and name in {"quality_loss", _UPPER})
        return MetricColumn(name, "ln" if log_ratio else "%", 1.0 if log_ratio else 0.01)
    for ladder, own in ((_BYTES, "byte"), (_SECONDS, "s")):
        if unit == own:
            size, symbol = next(((size, symbol) for size, symbol in ladder if most >= size), ladder[-1])
            return MetricColumn(name, symbol, size)
    return MetricColumn(name, _FIXED.get(unit, ""), 1.0)


_UPPER = "quality_loss_upper"


def lines_of(name: str, width: int) -> list[str]:
    """The words of a name, as many to a line as this width takes.

    >>> lines_of("tokens_per_second_per_device", 10)
    ['tokens per', 'second per', 'device']
    """
    lines: list[str] = []
    for word in name.split("_"):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
