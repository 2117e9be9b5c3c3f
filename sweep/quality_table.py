"""A comparison of quality losses in the terminal: by task, by the largest groups, what to mind, what was refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console

from kvwall.sweep.quality.scores import Scores
from kvwall.sweep.speed_table import counted, percent
from kvwall.sweep.terminal import new_table, terminal
from kvwall.sweep.validate_quality import GROUPINGS, PERPLEXITY, QualityReport

HELD_OUT_PAGE: Final = "docs/quality.md"
_MOST_GROUPS: Final = 8
_MOST_REASONS: Final = 20
_EXAMPLES: Final = 3
_LONG_NAME: Final = 20
_SHOWN: Final = tuple(name for (name,) in (by for by in GROUPINGS if len(by) == 1) if name not in ("task", "veto"))


def print_report(report: QualityReport) -> None:
    """Print a comparison."""
    console = terminal()
    curves = report.curves
    console.print(f"{counted(len(report.compared), 'row')} predicted, {len(report.refused):,} not used.", markup=False)
    console.print(
        f"Quality curves {curves.version} of {curves.fitted}, {counted(curves.rows, 'row')} of "
        f"{counted(curves.sources, 'source')}; upper curves at {report.confidence:g}.",
        style="dim",
        markup=False,
    )
    if report.compared:
        _print_tasks(console, report)
        _print_groups(console, report)
        for note in notes(report):
            console.print(f"- {note}", markup=False)
    _print_refused(console, report.refused)


def cells(found: Scores) -> list[str]:
    """Rows, mean error, mean error of no loss, bias, share under the upper curve, pinball loss."""
    errors = [_amount(each) for each in (found.mae, found.mae_no_loss)]
    bias = "" if found.bias is None else f"{found.bias:+.3f}"
    return [f"{found.n:,}", *errors, bias, percent(found.coverage_upper, 0), _amount(found.pinball_upper, 4)]


def notes(report: QualityReport) -> Iterator[str]:
    """What a reader of the numbers must know."""
    known = report.sources
    seen = sum(known.values())
    rows = sum(each.in_fit for each in report.compared)
    if seen:
        yield (
            f"{seen} of {counted(len(known), 'source')} ({rows:,} of {counted(len(report.compared), 'row')}) are in "
            f"the fit of the curves, which is no test of them: on sources left out, see {HELD_OUT_PAGE}"
        )
    else:
        yield f"no source of these rows is in the fit of the curves; on published sources left out, see {HELD_OUT_PAGE}"
    vetoes = Counter(each.labels["veto"] for each in report.compared if each.prediction.vetoed)
    for name, count in sorted(vetoes.items()):
        yield f"{counted(count, 'row')} of designs that the veto {name} refuses; their losses are counted above"
    for respect, count in sorted(Counter(why for each in report.compared for why in each.beyond).items()):
        yield f"{counted(count, 'row')} beyond what was measured: {respect}"
    unnamed = sum(each.unnamed for each in report.compared)
    if unnamed:
        yield f"{counted(unnamed, 'row')} of methods not known by name: predicted by the curve of their family"


def _print_tasks(console: Console, report: QualityReport) -> None:
    table = new_table(console)
    table.add_column("task")
    for heading in ("rows", "mean error", "of no loss", "bias", "under upper", "pinball"):
        table.add_column(heading, justify="right")
    of_tasks = [(by["task"], unit, found) for by, unit, found in report.groups if list(by) == ["task"]]
    for task, unit, found in of_tasks:
        if unit != PERPLEXITY:
            table.add_row(task, *cells(found))
    if report.overall.n:
        table.add_row("all of these", *cells(report.overall), end_section=True)
    if report.perplexity.n:
        table.add_row(_named("perplexity", PERPLEXITY), *cells(report.perplexity))
    console.print()
    console.print(table)
    console.print(
        "Relative losses of accuracy. of no loss: the mean error of predicting none. bias: above 0 too much loss is "
        "predicted.",
        style="dim",
    )


def _print_groups(console: Console, report: QualityReport) -> None:
    table = new_table(console)
    table.add_column("by")
    table.add_column("group")
    for heading in ("rows", "mean error", "of no loss", "bias", "under upper", "pinball"):
        table.add_column(heading, justify="right")
    left_out = 0
    for name in _SHOWN:
        own = [(_named(by[name], unit), found) for by, unit, found in report.groups if list(by) == [name]]
        shown = own[:_MOST_GROUPS]
        left_out += len(own) - len(shown)
        for place, (group, found) in enumerate(shown):
            table.add_row("" if place else name, group, *cells(found), end_section=place == len(shown) - 1)
    console.print()
    console.print(table)
    if left_out:
        console.print(f"The {_MOST_GROUPS} largest groups of each kind, {left_out} more with --json.", style="dim")


def _print_refused(console: Console, refused: Mapping[str, Sequence[str]]) -> None:
    """Reasons with how many rows each, and the first of these."""
    if not refused:
        return
    names: dict[str, list[str]] = {}
    for name, reasons in refused.items():
        for reason in reasons:
            names.setdefault(reason, []).append(name)
    console.print(f"\nNot used ({len(refused):,}):")
    of_reasons = sorted(names.items(), key=lambda one: (-len(one[1]), one[0]))
    for reason, some in of_reasons[:_MOST_REASONS]:
        console.print(f"  {counted(len(some), 'row')}: {reason} ({_some(some)})", style="dim", markup=False)
    if len(of_reasons) > _MOST_REASONS:
        more = counted(len(of_reasons) - _MOST_REASONS, "reason")
        console.print(f"  and {more} more; --json lists every row", style="dim")


def _some(names: Sequence[str]) -> str:
    """The first few, fewer where they are long."""
    shown = names[:1] if len(names[0]) > _LONG_NAME else names[:_EXAMPLES]
    return ", ".join(shown) + ", ..." * (len(names) > len(shown))


def _named(group: str, unit: str) -> str:
    return f"{group}, {unit}" if unit == PERPLEXITY else group


def _amount(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"
