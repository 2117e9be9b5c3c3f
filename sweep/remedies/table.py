"""The answer in the terminal: a table of the families, why in sentences, the best combination, the map in letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvwall.spaces.axes import AXES
from kvwall.spaces.modes import CEILING, ESTIMATE
from kvwall.sweep.readable import bytes_text, number_text
from kvwall.sweep.remedies.answer import RemediesReport
from kvwall.sweep.remedies.budget import limits_text, loss_text
from kvwall.sweep.remedies.map import ANSWERS, WORTH, Best, RemedyMap, context_text
from kvwall.sweep.remedies.outcome import SPARE, Outcome
from kvwall.sweep.remedies.register import FAMILIES
from kvwall.sweep.remedies.rows import Row
from kvwall.sweep.remedies.sentences import count_text, times_text
from kvwall.sweep.terminal import new_table, terminal

_NONE: Final = "-"
UNSET: Final = {
    "budget": "none within the budget",
    "veto": "vetoed",
    "nothing": "nothing to change",
    "unsourced_input": "a figure has no source",
    "layout": "cannot be laid out",
}
"""What stands for a setting, by the status of a row without one."""
_SIGNS: Final = {"none_pays": ".", "does_not_fit": "-", "not_computed": "?"}

_SENTENCES: Final = {
    CEILING: "Ceiling, derived: what no implementation can beat.",
    ESTIMATE: "Estimate, calibrated: the middle of what to expect; `kvwall evaluate` has the bands.",
}


def print_answer(report: RemediesReport) -> None:
    """Print the answer."""
    console = terminal()
    _print_design(console, report)
    console.print(_table(console, report))
    console.print()
    for row in (*report.rows, *report.stated):
        _item(console, row.family, row.why)
    console.print()
    _print_best(console, report)
    for remark in report.remarks:
        _item(console, "!", remark, "yellow")
    for flag in (*report.baseline.flags, *(report.best.flags if report.best else ())):
        _item(console, "!", flag, "yellow")
    console.print()
    for line in sketch(report.map):
        console.print(line, markup=False, soft_wrap=True)


def _print_design(console: Console, report: RemediesReport) -> None:
    base = report.baseline
    stated = [f"{name} {number_text(value)}" for name, value in base.inputs.items() if value != AXES[name].neutral]
    console.print(Text(f"{', '.join(stated)}; everything else neutral. {_SENTENCES[base.mode]}", "dim"))
    limit = limits_text(report.budgets, base.task)
    lead = f"Task {base.task}: at most" if len(report.budgets) == 1 else "At most"
    asked = f"{lead} {limit} may be lost, with {100 * base.confidence:g} % confidence."
    console.print(Text(f"{base.why} {asked}"))
    console.print()


def _table(console: Console, report: RemediesReport) -> Table:
    table = new_table(console)
    table.add_column("family", no_wrap=True)
    table.add_column("best setting", overflow="fold", max_width=34)
    for title in ("speed", "at largest\nbatch", "freed on\na device", "largest\nbatch", "loss\nat most"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    best = [report.best] if report.best else []
    for row in report.rows:
        table.add_row(*_cells(report, row))
    for row in (*report.stated, *best):
        table.add_section()
        table.add_row(*_cells(report, row))
    return table


def _cells(report: RemediesReport, row: Row) -> Iterator[str]:
    yield row.family
    after = row.after
    if after is None:
        yield UNSET[row.status]
        yield from (*[_NONE] * 5, "")
        return
    yield row.phrase or "as it is"
    yield _times(row.speedup)
    yield _times(row.speedup_at_max_batch)
    yield bytes_text(after[SPARE] - row.before[SPARE])
    yield count_text(after["max_batch"])
    yield "\n".join(losses_shown(report, after))
    if row.makes_it_fit:
        yield "makes it fit"
    elif after.status == "memory":
        yield "does not fit"
    elif after.status == "veto":
        yield "vetoed"
    else:
        yield "" if row.combines else "not combined"


def _times(ratio: float | None) -> str:
    return _NONE if ratio is None else times_text(ratio)


def losses_shown(report: RemediesReport, outcome: Outcome) -> list[str]:
    """What a design may lose on each task that has a budget; the task is named where it is not the only one."""
    alone = len(report.budgets) == 1
    shown = [(loss_text(outcome[budget.metric], budget.task), budget.task) for budget in report.budgets]
    return [loss if alone else f"{task} {loss}" for loss, task in shown]


def _item(console: Console, mark: str, text: str, style: str = "") -> None:
    """A remark, wrapped with a hanging indent."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=1 if mark == "!" else max(map(len, FAMILIES)))
    grid.add_row(Text(mark, style or "bold"), Text(text, style))
    console.print(grid)


def _print_best(console: Console, report: RemediesReport) -> None:
    searched = report.combination
    of = f"of {searched.evaluated:,} combinations, {searched.admissible:,} of them admissible"
    if report.best is None:
        console.print(Text(f"No combination is admissible ({searched.evaluated:,} tried).", "bold red"))
        return
    _item(console, "best", f"{report.best.why[:-1]} ({of}).")


def sketch(found: RemedyMap) -> list[str]:
    """The two maps side by side, a letter a cell, the largest batch on top."""
    titles = ("Remedy that pays most", "With the levers next to them")
    width = max(len(f"{batch:,}") for batch in found.batches) + 2
    columns = [context_text(context) for context in found.contexts]
    cell = max(map(len, columns)) + 1
    body = cell * len(columns)
    lines = [f"{'batch':>{width}} {titles[0]:<{body}}   {titles[1]}"]
    grids = [_letters(found, best) for best in (found.remedies, found.with_levers)]
    for place in reversed(range(len(found.batches))):
        parts = ["".join(f"{grid[column][place]:>{cell}}" for column in range(len(columns))) for grid in grids]
        lines.append(f"{found.batches[place]:>{width},} {parts[0]}   {parts[1]}".rstrip())
    axis = "".join(f"{name:>{cell}}" for name in columns)
    lines.append(f"{'context':>{width}} {axis}   {axis}" if width >= 7 else f"{'':>{width}} {axis}   {axis}")
    return [*lines, *_legend(found, grids)]


def _letters(found: RemedyMap, best: Best) -> list[list[str]]:
    rows = []
    for families, answers in zip(best.family, best.answer, strict=True):
        row = []
        for family, answer in zip(families, answers, strict=True):
            word = ANSWERS[answer]
            letter = FAMILIES[found.families[family]].letter if family >= 0 else _SIGNS[word]
            row.append(letter.lower() if word == "makes_it_fit" else letter)
        rows.append(row)
    return rows


def _legend(found: RemedyMap, grids: Sequence[Sequence[Sequence[str]]]) -> list[str]:
    shown = {sign for grid in grids for row in grid for sign in row}
    families = [FAMILIES[name] for name in found.families]
    words = [f"{each.letter} {each.name}" for each in families if {each.letter, each.letter.lower()} & shown]
    if any(each.letter.lower() in shown for each in families):
        words.append("small letter: makes it fit")
    texts = {
        ".": f"none pays {times_text(WORTH)}",
        "-": "does not fit, and none makes it fit",
        "?": "time not known",
    }
    words += [f"{sign} {text}" for sign, text in texts.items() if sign in shown]
    return [", ".join(words) + "."]
