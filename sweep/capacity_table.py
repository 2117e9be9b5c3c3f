"""A comparison of memory pools in the terminal: errors by quantity, the rows furthest off, the rows not used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvwall.sweep.terminal import new_table, terminal
from kvwall.sweep.validate_capacity import CapacityReport, Compared

_GIB: Final = 2**30
_MOST_MISSES: Final = 30
_MISS: Final[Mapping[str, float]] = {"bytes_per_token": 0.005, "kv_pool_bytes": 0.08, "max_concurrency": 0.01}
"""Relative errors above which a row is listed for people."""


def print_report(report: CapacityReport) -> None:
    """Print a comparison."""
    console = terminal()
    table = new_table(console)
    table.add_column("quantity")
    for heading in ("rows", "median error", "90 %", "mean", "bias", "largest gap"):
        table.add_column(heading, justify="right")
    for group in report.groups:
        if set(group["by"]) == {"quantity"}:
            table.add_row(*_cells(group))
    console.print(table)
    console.print("Rows of trust C and those meant as context are predicted but not counted.", style="dim")
    misses = [each for each in report.predictions if each.counted and _missed(each)]
    if misses:
        console.print(f"\nFurthest off ({len(misses)}):")
    for each in sorted(misses, key=lambda miss: -abs(miss.relative))[:_MOST_MISSES]:
        console.print(f"  {each.id} {each.quantity}: {_gap(each)} ({each.labels['model']})", markup=False)
    if report.refused:
        console.print(f"\nNot used ({len(report.refused)}):")
    for refusal in report.refused:
        console.print(f"  {refusal['id']}: {refusal['reason']}", style="dim", markup=False)


def _cells(group: Mapping[str, Any]) -> list[str]:
    quantity = group["by"]["quantity"]
    if quantity == "refusal":
        return [quantity, str(group["n"]), f"{group['right']} right", "", "", "", ""]
    errors = [f"{group[key]:.2%}" for key in ("median_ape", "p90_ape", "mape")]
    return [quantity, str(group["n"]), *errors, f"{group['bias']:+.2%}", _amount(quantity, group["largest_gap"])]


def _amount(quantity: str, value: float) -> str:
    return f"{value / _GIB:,.2f} GiB" if quantity.startswith("kv_pool") else f"{value:,.4g}"


def _gap(each: Compared) -> str:
    if each.quantity == "refusal":
        return "starts, predicted to be refused" if each.predicted else "refused, predicted to start"
    measured, predicted = _amount(each.quantity, each.measured), _amount(each.quantity, each.predicted)
    return f"{measured} measured, {predicted} predicted, {each.relative:+.1%}"


def _missed(each: Compared) -> bool:
    if each.quantity == "refusal":
        return each.measured != each.predicted
    return abs(each.relative) > _MISS.get(each.quantity, 0.01)
