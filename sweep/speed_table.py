"""A comparison of speeds in the terminal: the whole, the largest groups, what was refused and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import Console

from kvwall.sweep.accuracy import Accuracy
from kvwall.sweep.speed_groups import band_place
from kvwall.sweep.speed_prediction import reason_counts
from kvwall.sweep.terminal import new_table, terminal
from kvwall.sweep.validate_speed import MOST_LISTED, SpeedReport

_MOST_GROUPS: Final = 8
"""Of a grouping, where its groups have no order of their own."""
_BANDS: Final = ("context", "batch")


def print_report(report: SpeedReport) -> None:
    """Print a comparison."""
    console = terminal()
    record = report.record
    console.print(overall_sentence(report), markup=False)
    console.print(
        f"Calibration {record.version} of {record.fitted}, {counted(record.rows, 'row')}.", style="dim", markup=False
    )
    if report.outside:
        go = "goes" if report.outside == 1 else "go"
        what = f"{counted(report.outside, 'prediction')} {go} beyond what was measured"
        console.print(f"{what} (extrapolated; --json says why).", style="dim")
    console.print()
    _print_groups(console, report)
    print_refused(console, report.refused)


def overall_sentence(report: SpeedReport) -> str:
    """The whole in one line."""
    found = report.overall
    what = "configuration" if any(each.repeats > 1 for each in report.predictions) else "row"
    return f"{counted(found.n, what)} predicted: {summary_text(found)}."


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def summary_text(found: Accuracy) -> str:
    """Errors in words.

    >>> summary_text(Accuracy(3, 0.124, 0.1, 0.0, 0.667, -0.05))
    'median error 10.0 %, mean 12.4 %, 5.0 % too fast on average, 67 % inside the 10-90 % band'
    """
    if found.mape is None or found.median_ape is None or found.coverage is None or found.bias_time is None:
        return "nothing to compare"
    way = "slow" if found.bias_time > 0 else "fast"
    return (
        f"median error {percent(found.median_ape)}, mean {percent(found.mape)}, "
        f"{percent(abs(found.bias_time))} too {way} on average, {percent(found.coverage, 0)} inside the 10-90 % band"
    )


def percent(share: float | None, digits: int = 1, sign: str = "") -> str:
    """A share in percent; blank where there is none.

    >>> percent(0.1234), percent(0.05, 0, "+"), percent(None)
    ('12.3 %', '+5 %', '')
    """
    return "" if share is None else f"{100 * share:{sign}.{digits}f} %"


def _print_groups(console: Console, report: SpeedReport) -> None:
    table = new_table(console)
    table.add_column("by")
    table.add_column("group")
    for heading in ("rows", "median error", "mean", "time", "in band"):
        table.add_column(heading, justify="right")
    left_out = 0
    for name in dict.fromkeys(next(iter(by)) for by, _ in report.groups):
        own = [(by, found) for by, found in report.groups if name in by]
        shown = largest_groups(name, own)
        left_out += len(own) - len(shown)
        for place, (by, found) in enumerate(shown):
            table.add_row("" if place else name, by[name], *cells(found), end_section=place == len(shown) - 1)
    console.print(table)
    more = f"; the {_MOST_GROUPS} largest groups of each kind, {left_out} more with --json" if left_out else ""
    console.print(f"time: above 0 % predicted too slow, below too fast{more}.", style="dim")


def largest_groups(
    name: str, groups: Sequence[tuple[Mapping[str, str], Accuracy]]
) -> list[tuple[Mapping[str, str], Accuracy]]:
    """The groups of most rows, the one with the largest median error first; bands in their order."""
    if name in _BANDS:
        return sorted(groups, key=lambda one: band_place(one[0]))
    largest = sorted(groups, key=lambda one: -one[1].n)[:_MOST_GROUPS]
    return sorted(largest, key=lambda one: -(one[1].median_ape or 0.0))


def cells(found: Accuracy) -> list[str]:
    """Rows, median error, mean, bias in time, coverage."""
    errors = [percent(found.median_ape), percent(found.mape), percent(found.bias_time, sign="+")]
    return [f"{found.n:,}", *errors, percent(found.coverage, 0)]


def print_refused(console: Console, refused: Mapping[str, Sequence[str]]) -> None:
    """Rows that could not be used: each, or by reason where they are many."""
    if not refused:
        return
    console.print(f"\nNot used ({len(refused):,}):")
    if len(refused) <= MOST_LISTED:
        for name, reasons in refused.items():
            console.print(f"  {name}: {'; '.join(reasons)}", style="dim", markup=False)
        return
    counts = list(reason_counts(refused).items())
    for reason, count in counts[:MOST_LISTED]:
        console.print(f"  {counted(count, 'row')}: {reason}", style="dim", markup=False)
    if len(counts) > MOST_LISTED:
        console.print(f"  and {counted(len(counts) - MOST_LISTED, 'reason')} more; --json lists every row", style="dim")
