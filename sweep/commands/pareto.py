"""`kvwall pareto`: the exact front of a finished sweep, or another among its stored points."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    import xarray as xr

_NOTHING: Final = 3
_MOST_ROWS: Final = 30


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="results folder of `kvwall sweep`")],
    objectives: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="other objectives: metric, maximize:metric or minimize:metric, with commas"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """The exact Pareto front of a finished sweep; with --objectives, another front among the points it stored."""
    from kvwall.sweep.pareto import pareto, rows_of

    front = pareto(folder, objectives)
    asked = dict(reversed(line.split(" ", 1)) for line in front.attrs["objectives"])
    rows = rows_of(front)
    if json:
        answer = {"front": rows, "objectives": asked, "basis": front.attrs["basis"], "designs": len(rows)}
        typer.echo(json_text.dumps(answer, allow_nan=False))
    else:
        _print(front, rows, asked)
    if not rows:
        typer.echo("kvwall: no design is admissible among these points", err=True)
        raise typer.Exit(_NOTHING)


def _print(front: xr.Dataset, rows: list[dict[str, Any]], objectives: dict[str, str]) -> None:
    from kvwall.spaces.axes import AXES
    from kvwall.sweep.readable import number_text
    from kvwall.sweep.terminal import new_table, terminal

    console = terminal()
    coordinates = [str(name) for name in front.coords]
    axes = [name for name in coordinates if len({row[name] for row in rows}) > 1]
    shown = _ordered(rows, objectives)
    table = new_table(console)
    for name in (*axes, *objectives):
        table.add_column(name.replace("_", " "), justify="left" if name in {"model", "hardware"} else "right")
    for row in shown:
        table.add_row(*(number_text(row[name]) for name in axes), *(_text(name, row[name]) for name in objectives))
    if rows:
        console.print(table)
    fixed = [name for name in coordinates if rows and name not in axes]
    same = [f"{name} {number_text(rows[0][name])}" for name in fixed if rows[0][name] != AXES[name].neutral]
    told = ", ".join(f"{sense} {name}" for name, sense in objectives.items())
    count = f"{len(rows):,} design{'' if len(rows) == 1 else 's'}"
    console.print(f"{count} ({told}); {front.attrs['basis']}.", markup=False)
    if len(shown) < len(rows):
        console.print(f"{len(shown)} of them are shown, evenly along the first objective; --json has all.", style="dim")
    if same:
        console.print(f"Of every design: {', '.join(same)}; everything else neutral.", style="dim", markup=False)


def _ordered(rows: list[dict[str, Any]], objectives: dict[str, str]) -> list[dict[str, Any]]:
    """Best first objective first, at most _MOST_ROWS, evenly chosen."""
    first, sense = next(iter(objectives.items()))
    ordered = sorted(rows, key=lambda row: row[first], reverse=sense == "maximize")
    if len(ordered) <= _MOST_ROWS:
        return ordered
    step = (len(ordered) - 1) / (_MOST_ROWS - 1)
    return [ordered[round(place * step)] for place in range(_MOST_ROWS)]


def _text(name: str, value: float | None) -> str:
    from kvwall.objectives.register import TASK_NAMES, metric_named
    from kvwall.sweep.readable import metric_text

    return "no value" if value is None else metric_text(value, metric_named(name, TASK_NAMES[0]).unit, name)
