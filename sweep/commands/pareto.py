"""`kvwall pareto`: the exact front of a finished sweep, or another among its stored points."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console
    from rich.table import Table

    from kvwall.sweep.metric_column import MetricColumn
    from kvwall.sweep.study import Study

_NOTHING: Final = 3
_MOST_ROWS: Final = 30
_VERY_WIDE: Final = 10_000


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="results folder of `kvwall sweep`")],
    objectives: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="other objectives: metric, maximize:metric or minimize:metric, with commas"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS=VALUE", help="only among stored points with this value, exactly; repeatable"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """The exact Pareto front of a finished sweep; with --objectives or --where, another among the points it stored."""
    from kvwall.sweep.pareto import pareto, rows_of

    front = pareto(folder, objectives, _read(where or []))
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


def _read(texts: list[str]) -> dict[str, Any]:
    """Axis -> value of every `--where AXIS=VALUE`. Raises InputError with every fault."""
    from kvwall.spaces.axes import axis_named
    from kvwall.spaces.errors import Faults, InputError
    from kvwall.sweep.commands.axis_options import value_of

    faults = Faults()
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.replace("-", "_")
        if not equals or not value:
            faults.add(f"--where {text}: write AXIS=VALUE, e.g. --where context=131072")
        elif name in found:
            faults.add(f"--where {name} is given twice: give it once")
        else:
            try:
                found[name] = value_of(axis_named(name), value)
            except InputError as error:
                faults.absorb(error)
    faults.raise_if_any()
    return found


def _print(front: xr.Dataset, rows: list[dict[str, Any]], objectives: dict[str, str]) -> None:
    from kvwall.spaces.axes import AXES
    from kvwall.sweep.readable import number_text
    from kvwall.sweep.terminal import terminal

    console = terminal()
    coordinates = [name for name in AXES if name in front.coords]
    axes = [name for name in coordinates if len({row[name] for row in rows}) > 1]
    shown = _ordered(rows, objectives)
    study = _study(front)
    others = list(dict.fromkeys(one.metric for one in study.constraints if one.metric not in objectives))
    left_out = _print_table(console, axes, list(objectives), others, shown, study.task) if rows else []
    fixed = [name for name in coordinates if rows and name not in axes]
    same = [f"{name} {number_text(rows[0][name])}" for name in fixed if rows[0][name] != AXES[name].neutral]
    told = ", ".join(f"{sense} {name}" for name, sense in objectives.items())
    count = f"{len(rows):,} design{'' if len(rows) == 1 else 's'}"
    console.print(f"{count} ({told}); {front.attrs['basis']}.", markup=False)
    if len(shown) < len(rows):
        console.print(f"{len(shown)} of them are shown, evenly along the first objective; --json has all.", style="dim")
    if left_out:
        console.print(f"No room for {', '.join(left_out)}: use a wider terminal, or --json.", style="yellow")
    if same:
        console.print(f"Of every design: {', '.join(same)}; everything else neutral.", style="dim", markup=False)


def _study(front: xr.Dataset) -> Study:
    from kvwall.sweep.study import Study

    return Study.from_text(str(front.attrs["study_toml"]))


def _print_table(
    console: Console, axes: list[str], objectives: list[str], others: list[str], rows: list[dict[str, Any]], task: str
) -> list[str]:
    """Print a line per row; other metrics, then axes that the console has no room for are left out and returned."""
    from kvwall.sweep.metric_column import metric_column

    def table(kept: int) -> Table:
        """Of so many axes and other metrics, the axes first."""
        names = [*objectives, *others[: max(0, kept - len(axes))]]
        columns = [metric_column(name, task, [row[name] for row in rows]) for name in names]
        return _table(console, axes[:kept], columns, rows)

    kept = len(axes) + len(others)
    while kept > 1 and _width(table(kept)) > console.width:
        kept -= 1
    console.print(table(kept))
    return [*axes, *others][kept:]


def _table(console: Console, axes: list[str], columns: list[MetricColumn], rows: list[dict[str, Any]]) -> Table:
    from kvwall.sweep.metric_column import lines_of
    from kvwall.sweep.readable import number_text
    from kvwall.sweep.terminal import new_table

    table = new_table(console)
    cells = {name: [number_text(row[name]) for row in rows] for name in axes}
    cells |= {column.name: [column.text(row[column.name]) for row in rows] for column in columns}
    widths = {name: max(map(len, texts)) for name, texts in cells.items()}
    for name in axes:
        side: Any = "left" if name in {"model", "hardware"} else "right"
        table.add_column("\n".join(lines_of(name, widths[name])), justify=side, no_wrap=True)
    for column in columns:
        table.add_column(column.header(widths[column.name]), justify="right", no_wrap=True)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


def _width(table: Table) -> int:
    """Columns of text that a table takes where it has room."""
    from rich.console import Console
    from rich.measure import Measurement

    wide = Console(width=_VERY_WIDE)
    return Measurement.get(wide, wide.options, table).maximum


def _ordered(rows: list[dict[str, Any]], objectives: dict[str, str]) -> list[dict[str, Any]]:
    """Best first objective first, at most _MOST_ROWS, evenly chosen."""
    first, sense = next(iter(objectives.items()))
    ordered = sorted(rows, key=lambda row: row[first], reverse=sense == "maximize")
    if len(ordered) <= _MOST_ROWS:
        return ordered
    step = (len(ordered) - 1) / (_MOST_ROWS - 1)
    return [ordered[round(place * step)] for place in range(_MOST_ROWS)]
