"""`kvwall crossover`: where the memory wall stands, for one design or the product of lists."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Final

import typer

from kvwall.spaces.errors import Faults
from kvwall.spaces.modes import CALIBRATION_HELP, DEFAULT_MODE, ESTIMATE, MODE_HELP
from kvwall.sweep.commands.axis_options import listed_values, refuse_leftovers, with_axes
from kvwall.sweep.crossover import ANSWER, BYTES, NO_CONTEXT, TIME, CrossoverRow, crossover
from kvwall.sweep.readable import number_text
from kvwall.sweep.single import attempt
from kvwall.sweep.terminal import new_table, terminal

_REMARKS: Final = {
    "hardware": "it decides whether the layout is possible, not the crossover in bytes",
}


@partial(with_axes, without=(ANSWER,), remarks=_REMARKS)
def command(
    context_of_command: typer.Context,
    *,
    typed: Mapping[str, Sequence[str]],
    mode: Annotated[str, typer.Option(help=MODE_HELP, metavar="MODE")] = DEFAULT_MODE,
    calibration: Annotated[str, typer.Option(help=CALIBRATION_HELP, metavar="FILE.json")] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """The context at which a step reads as many KV bytes as weight bytes; estimates say it in time as well.

    Every axis takes a comma list: --batch 1,32. The answer is a context, so none is given.
    """
    faults = Faults()
    options = [option for each in context_of_command.command.params for option in each.opts]
    refuse_leftovers(_without_context(context_of_command.args, faults), options, faults)
    rows = attempt(faults, lambda: crossover(mode=mode, calibration=calibration, **listed_values(typed)))
    faults.raise_if_any()
    if rows is None:
        return
    if json:
        typer.echo(json_text.dumps({"rows": [row.to_json() for row in rows]}, allow_nan=False, indent=2))
    else:
        _print(rows, mode)


def _without_context(arguments: Sequence[str], faults: Faults) -> list[str]:
    """The arguments but `--context` and its value, which are a fault of their own."""
    left: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word.partition("=")[0] != f"--{ANSWER}":
            left.append(word)
            continue
        if "=" not in word and words and not words[0].startswith("--"):
            words.pop(0)
        faults.add(NO_CONTEXT)
    return left


def _print(rows: Sequence[CrossoverRow], mode: str) -> None:
    console = terminal()
    varying = [name for name in rows[0].axes if len({row.axes[name] for row in rows}) > 1]
    fixed = [f"{name} {number_text(value)}" for name, value in rows[0].axes.items() if name not in varying]
    if fixed:
        console.print(f"{', '.join(fixed)}; other axes neutral.", style="dim", markup=False)
    columns: dict[tuple[object, ...], list[str]] = {}
    for name in varying:
        columns.setdefault(tuple(row.axes[name] for row in rows), []).append(name)
    table = new_table(console)
    for values, names in columns.items():
        named = isinstance(values[0], str)
        table.add_column(
            "\n".join(names),
            justify="left" if named else "right",
            overflow="fold",
            no_wrap=not named,
            min_width=12 if named else None,
        )
    answers = {BYTES: "crossover\n(tokens)", **({TIME: "in time\n(tokens)"} if mode == ESTIMATE else {})}
    for title in answers.values():
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", style="yellow", no_wrap=True)
    notes: dict[str, None] = {}
    for row in rows:
        tokens = [getattr(row, name) for name in answers]
        own = [*([row.reason or ""] if None in tokens else []), *row.flags]
        notes |= dict.fromkeys(own)
        marks = " ".join(f"({number})" for number in sorted(list(notes).index(note) + 1 for note in own))
        cells = [number_text(row.axes[names[0]]) for names in columns.values()]
        table.add_row(*cells, *("none" if each is None else f"{each:,.0f}" for each in tokens), marks)
    console.print(table)
    for number, note in enumerate(notes, start=1):
        console.print(f"({number}) {note}", style="yellow", markup=False)
    console.print("Context at which a decode step reads as many KV bytes as weight bytes.", style="dim")
    if mode == ESTIMATE:
        console.print("In time: at which attention takes as long as all else of the step.", style="dim")
