"""`kvwall crossover`: where the memory wall stands, for one design or the product of lists."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.box import ASCII, SIMPLE_HEAD
from rich.table import Table

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.commands.axis_options import listed_values, refuse_leftovers, with_axes
from kvwall.sweep.crossover import CrossoverRow, crossover
from kvwall.sweep.readable import number_text
from kvwall.sweep.report_table import plain_box, terminal


@with_axes
def command(
    context_of_command: typer.Context,
    *,
    typed: Mapping[str, Sequence[str]],
    mode: Annotated[str, typer.Option(help="ceiling: in bytes", metavar="MODE")] = "ceiling",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """The context at which a step reads as many KV bytes as weight bytes. Every axis takes a comma list: --batch 1,32."""
    faults = Faults()
    options = [option for each in context_of_command.command.params for option in each.opts]
    refuse_leftovers(context_of_command.args, options, faults)
    try:
        rows = crossover(mode=mode, **listed_values(typed))
    except InputError as error:
        faults.absorb(error)
    faults.raise_if_any()
    if json:
        typer.echo(json_text.dumps({"rows": [row.to_json() for row in rows]}, allow_nan=False, indent=2))
    else:
        _print(rows)


def _print(rows: Sequence[CrossoverRow]) -> None:
    console = terminal()
    table = Table(box=ASCII if plain_box(console) else SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in rows[0].axes:
        number = not isinstance(rows[0].axes[name], str)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    table.add_column("crossover (tokens)", justify="right", no_wrap=True)
    table.add_column("note", style="yellow")
    for row in rows:
        tokens = row.crossover_context_bytes
        notes = [*([row.reason or ""] if tokens is None else []), *row.flags]
        values = [number_text(value) for value in row.axes.values()]
        table.add_row(*values, "none" if tokens is None else f"{tokens:,.0f}", "; ".join(notes))
    console.print(table)
    console.print("Tokens of context at which a decode step reads as many KV bytes as weight bytes.", style="dim")
