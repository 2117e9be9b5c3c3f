"""A design's report in the terminal: grouped tables, readable units, the status in a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from rich.box import ASCII, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvwall.objectives.register import NOT_BUILT, metric_register
from kvwall.spaces.axes import AXES
from kvwall.sweep.evaluate import DesignReport
from kvwall.sweep.equation import Explanation
from kvwall.sweep.readable import metric_text, number_text

_LOSS: Final = "quality_loss"
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "speed": (
        "tokens_per_second",
        "tokens_per_second_per_device",
        "tokens_per_second_per_user",
        "time_per_output_token",
        "arithmetic_intensity",
        "ridge_point",
        "regime_distance",
    ),
    "traffic": ("weight_bytes_read", "kv_bytes_read", "crossover_context_bytes"),
    "memory": ("kv_bytes_stored", "kv_bytes_reserved", "memory_margin", "max_batch", "max_context"),
    "quality": (),
    "cost": ("energy_per_token", "cost_per_million_tokens"),
}
"""Metrics by group; quality metrics are recognised by name, and what is in no group comes last."""


def terminal() -> Console:
    """Standard output; 80 columns and plain text where it is no terminal."""
    console = Console(highlight=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 80), no_color=True)


def print_report(report: DesignReport) -> None:
    """Print a report."""
    console = terminal()
    console.print(_heading(report))
    console.print(_inputs(report), style="dim")
    console.print(_table(report, plain_box(console)))
    for name, reason in _notable(report):
        console.print(f"  {name}: no value: {reason}", style="yellow", markup=False)
    for flag in report.flags:
        console.print(f"  ! {flag}", style="yellow", markup=False)
    absent = ", ".join(NOT_BUILT)
    console.print(f"Not modelled yet: {absent}.", style="dim")


def plain_box(console: Console) -> bool:
    """Whether lines must be drawn in ASCII: no terminal, or one that cannot show more."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    return not console.is_terminal or "utf" not in encoding


def _heading(report: DesignReport) -> Text:
    labels = report.labels
    colour = "green" if report.feasible else "red"
    words = Text.assemble(("status ", "bold"), (labels["status"], f"bold {colour}"))
    for name in ("phase", "regime", "bound_by"):
        words.append(f"   {name} {labels[name]}")
    return Text.assemble(words, "\n", report.why)


def _inputs(report: DesignReport) -> Text:
    """What the design is, as far as it is not neutral."""
    stated = [f"{name} {number_text(value)}" for name, value in report.inputs.items() if value != AXES[name].neutral]
    return Text(f"{', '.join(stated)}; everything else neutral. {report.mode.capitalize()} mode.")


def _table(report: DesignReport, plain: bool) -> Table:
    table = Table(box=ASCII if plain else SIMPLE_HEAD, pad_edge=False, header_style="bold")
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


def _value(report: DesignReport, name: str) -> str:
    """A metric's value; a loss with its upper bound."""
    value, unit = report.metrics[name], report.units[name]
    if value is None:
        return "-"
    if not name.startswith(_LOSS):
        return metric_text(value, unit, name)
    named = f"{_LOSS}_{report.task}" if name == _LOSS else name
    upper = report.metrics[name.replace(_LOSS, f"{_LOSS}_upper", 1)]
    return f"{metric_text(value, unit, named)} (<= {metric_text(upper or 0.0, unit, named)})"


def grouped(report: DesignReport) -> Iterable[tuple[str, list[str]]]:
    """The groups with the metrics to show; an upper loss is shown beside its central one."""
    shown = [name for name in metric_register(report.task) if not name.startswith(f"{_LOSS}_upper")]
    placed = {name for names in GROUPS.values() for name in names}
    for group, names in GROUPS.items():
        yield group, [*names, *(name for name in shown if group == "quality" and name.startswith(_LOSS))]
    others = [name for name in shown if name not in placed and not name.startswith(_LOSS)]
    if others:
        yield "other", others


def _notable(report: DesignReport) -> list[tuple[str, str]]:
    """Reasons of nulls, those of one cause together."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in report.reasons.items():
        if name not in NOT_BUILT:
            by_reason.setdefault(reason, []).append(name)
    return [(", ".join(names), reason) for reason, names in by_reason.items()]


def print_explanation(explanation: Explanation) -> None:
    """Print the equations with their numbers, and where each number comes from."""
    console = terminal()
    for line in explanation.lines():
        console.print(line, markup=False, soft_wrap=True)
