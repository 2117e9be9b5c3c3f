"""Narrowed quality curves in the terminal: each curve at the user's own points, and what to do with the record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from kvwall.sweep.calibrate_quality import CalibratedCurve, CalibratedQuality, errors_of
from kvwall.sweep.quality.rows import FULL, Row
from kvwall.sweep.speed_table import counted, print_refused
from kvwall.sweep.terminal import new_table, terminal

_MOST_POINTS = 12
"""Of a curve that are shown."""


def print_calibrated(found: CalibratedQuality, out: Path) -> None:
    """Print what the points have changed."""
    console = terminal()
    used, curves = len(found.points), len(found.curves)
    console.print(
        f"{counted(curves, 'curve')} narrowed by {counted(used, 'point')}; {len(found.refused):,} not used. At these "
        "points:",
        markup=False,
    )
    for name in ("before", "after"):
        errors = errors_of([getattr(each, name) for each in found.points])
        console.print(f"{name + ':':8}{_summary(errors)}", markup=False)
    for each in found.curves:
        _print_curve(console, each)
    for notice in found.notices:
        console.print(f"- {notice}", markup=False)
    print_refused(console, found.refused)
    console.print(f"\nWritten: {out}", markup=False)
    console.print(
        f"How far off it is on other results: kvwall validate ROWS --quality --quality-curves {out}", markup=False
    )
    console.print(f"Losses with it: kvwall evaluate|remedies ... --quality-curves {out}", markup=False)
    console.print(f'In a study: [quality] curves = "{out}"', markup=False)


def _summary(errors: Mapping[str, Any]) -> str:
    parts = []
    for unit, some in (("", errors), (" of ln(PPL/PPL0)", errors["perplexity"])):
        if some["n"]:
            covered = f"{100 * some['coverage_upper']:.0f} % under the upper curve"
            parts.append(f"mean error {some['mae']:.3f}{unit}, {covered}")
    return "; ".join(parts)


def _print_curve(console: Console, each: CalibratedCurve) -> None:
    change = each.found.change
    console.print(
        f"\n{each.curve.text}, task {each.curve.task}: hazard times {math.exp(change.log_factor):.3g}, "
        f"{100 * change.remaining:.0f} % of the band left",
        markup=False,
    )
    table = new_table(console)
    for heading in ("point", "setting"):
        table.add_column(heading)
    for heading in ("measured", "before", "after", "upper before", "upper after"):
        table.add_column(heading, justify="right")
    for point in each.points[:_MOST_POINTS]:
        row, old, new = point.after.row, point.before, point.after
        losses = (row.loss, old.central, new.central, old.upper, new.upper)
        table.add_row(row.id, _setting(row), *(f"{loss:.3f}" for loss in losses))
    console.print(table)
    if len(each.points) > _MOST_POINTS:
        console.print(f"and {len(each.points) - _MOST_POINTS} more; --json lists all", style="dim")


def _setting(row: Row) -> str:
    if row.kept < 1:
        return f"{100 * row.kept:.3g} % {'read' if row.reads else 'kept'}"
    if row.weight_bits < FULL:
        return f"{row.weight_bits:g}-bit weights"
    if row.activation_bits < FULL:
        return f"{row.activation_bits:g}-bit activations"
    return f"{row.key_bits:g}-bit K, {row.value_bits:g}-bit V"
