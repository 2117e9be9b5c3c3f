"""A design's report in the terminal: grouped tables, readable units, the status in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvwall.objectives.register import BANDED, band_of, metric_register, not_built
from kvwall.spaces.axes import AXES
from kvwall.spaces.modes import CEILING, ESTIMATE
from kvwall.sweep.equation import Explanation
from kvwall.sweep.evaluate import DesignReport
from kvwall.sweep.readable import band_text, metric_text, number_text, rounded_text
from kvwall.sweep.terminal import new_table, terminal

_LOSS: Final = "quality_loss"
MODE_SENTENCES: Final = {
    CEILING: "Ceiling, derived: what no implementation can beat.",
    ESTIMATE: "Estimate, calibrated; in brackets its 10 % and 90 % bounds.",
}
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "speed": (
        "tokens_per_second",
        "tokens_per_second_per_device",
        "tokens_per_second_per_user",
        "time_per_output_token",
        "time_to_first_token",
        "arithmetic_intensity",
        "ridge_point",
        "regime_distance",
    ),
    "traffic": (
        "weight_bytes_read",
        "kv_bytes_read",
        "crossover_context_bytes",
        "crossover_context_time",
        "messages_per_step",
    ),
    "memory": (
        "kv_bytes_stored",
        "kv_bytes_reserved",
        "memory_margin",
        "max_batch",
        "max_context",
        "kv_pool_bytes",
        "kv_pool_blocks",
        "kv_pool_tokens",
        "max_concurrency",
    ),
    "tiers": ("tier_bandwidth", "reload_time", "break_even_bandwidth", "break_even_context"),
    "quality": (),
    "cost": ("energy_per_token", "cost_per_million_tokens"),
}
"""Metrics by group; quality metrics are recognised by name, and what is in no group comes last."""


def print_report(report: DesignReport) -> None:
    """Print a report."""
    console = terminal()
    console.print(_heading(report))
    console.print(_inputs(report), style="dim")
    console.print()
    console.print(_table(report, console))
    console.print()
    if any(distance is not None for distance in report.boundaries.values()):
        console.print(_boundaries(report, console))
        console.print()
    for names, reason in _nulls(report):
        _item(console, "-", f"no value for {', '.join(names)}: {reason}")
    for flag in report.flags:
        _item(console, "!", flag)


def _item(console: Console, mark: str, text: str) -> None:
    """One remark, wrapped with a hanging indent."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(mark, "yellow"), Text(text, "yellow"))
    console.print(grid)


def _heading(report: DesignReport) -> Text:
    labels = report.labels
    colour = "green" if report.feasible else "red"
    words = Text.assemble(("status ", "bold"), (report.status, f"bold {colour}"))
    for name in ("phase", "regime", "bound_by"):
        words.append(f"   {name} {labels[name] or '-'}")
    return Text.assemble(words, "\n", report.why)


def _inputs(report: DesignReport) -> Text:
    """What the design is, as far as it is not neutral."""
    stated = [f"{name} {number_text(value)}" for name, value in report.inputs.items() if value != AXES[name].neutral]
    devices = f"{report.devices} device{'s' if report.devices > 1 else ''}"
    return Text(f"{', '.join(stated)}; everything else neutral. {devices}. {MODE_SENTENCES[report.mode]}")


def _table(report: DesignReport, console: Console) -> Table:
    table = new_table(console)
    table.add_column("", no_wrap=True, min_width=7)
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("evidence", style="dim", no_wrap=True)
    for group, names in grouped(report):
        table.add_section()
        for place, name in enumerate(names):
            value = report.metrics[name]
            style = "red" if name == "memory_margin" and value is not None and value < 0 else ""
            label = group if place == 0 else ""
            table.add_row(label, name, Text(_value(report, name), style), report.evidence[name])
    return table


_SIDES: Final[Mapping[str, tuple[str, str]]] = {
    "kv": ("KV read is {} x the weights read", "KV read is 1/{} of the weights read"),
    "capacity": ("needs {} x the memory there is", "needs 1/{} of the memory there is"),
}
_RESOURCE: Final = ("binds: {} x the longest of the others", "1/{} of the longest of the others")


def _boundaries(report: DesignReport, console: Console) -> Table:
    """How far, and on which side, the design is of each boundary."""
    table = new_table(console)
    table.add_column("boundary", no_wrap=True)
    table.add_column("ln", justify="right", no_wrap=True)
    table.add_column("which side", no_wrap=True)
    for name, distance in report.boundaries.items():
        if distance is not None:
            beyond, within = _SIDES.get(name, _RESOURCE)
            ratio = rounded_text(math.exp(abs(distance)))
            table.add_row(name, f"{distance:+.2f}", (beyond if distance > 0 else within).format(ratio))
    return table


def _value(report: DesignReport, name: str) -> str:
    """A metric's value; a loss with its upper bound, an estimate with its band."""
    value, unit = report.metrics[name], report.units[name]
    if value is None:
        return "no value"
    if name in BANDED and report.mode == ESTIMATE:
        low, high = band_of(name)
        return band_text(value, (report.metrics[low] or value, report.metrics[high] or value), unit, name)
    if not name.startswith(_LOSS):
        return metric_text(value, unit, name)
    named = f"{_LOSS}_{report.task}" if name == _LOSS else name
    upper = report.metrics[name.replace(_LOSS, f"{_LOSS}_upper", 1)]
    return f"{metric_text(value, unit, named)} (<= {metric_text(upper or 0.0, unit, named)})"


def grouped(report: DesignReport) -> Iterable[tuple[str, list[str]]]:
    """The groups with the metrics to show; an upper loss is shown beside its central one."""
    register = metric_register(report.task, report.mode)
    shown = [name for name in register if not name.startswith(f"{_LOSS}_upper")]
    placed = {name for names in GROUPS.values() for name in names} | {
        bound for name in BANDED for bound in band_of(name)
    }
    for group, names in GROUPS.items():
        here = [name for name in names if name in register]
        yield group, [*here, *(name for name in shown if group == "quality" and name.startswith(_LOSS))]
    others = [name for name in shown if name not in placed and not name.startswith(_LOSS)]
    if others:
        yield "other", others


def _nulls(report: DesignReport) -> list[tuple[list[str], str]]:
    """Reasons of nulls, each with the metrics and labels it explains; what is not built is told elsewhere."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in report.reasons.items():
        if name not in not_built(report.mode):
            by_reason.setdefault(reason, []).append(name)
    return [(names, reason) for reason, names in by_reason.items()]


def print_explanation(explanation: Explanation) -> None:
    """Print the equations with their numbers, and where each number comes from."""
    console = terminal()
    for line in explanation.lines():
        console.print(line, markup=False, soft_wrap=True)
