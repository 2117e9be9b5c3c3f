"""`kvwall sweep`: a study's whole grid, its front, its summary and the stored slice; a second call resumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvwall.sweep.run import SweepResult

_MORE = """The study is a TOML file or a shipped study's name (see: kvwall catalog studies).

Examples:
  kvwall sweep memory-wall
  kvwall sweep my-study.toml --out results/my-study
  kvwall sweep my-study.toml --dry-run
  kvwall sweep my-study.toml --workers 2
  kvwall sweep my-study.toml --dask tcp://scheduler:8786
"""


_LOST = {
    "memory": "do not fit in memory",
    "layout": "cannot be laid out on so many devices",
    "unsourced_input": "lack a figure that no source states (kvwall evaluate names it; [assume] supplies it)",
}


_SETTLED = {
    "infeasible": "are not feasible",
    "rejected": "are outside the constraints, or an objective has no source",
    "dominated": "are dominated by a design of the front",
    "tied": "tie, and were compared block by block",
    "evaluated": "were compared one by one",
}


def command(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file or name of a shipped study")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="results folder; default outputs/<name>")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what a run would take, and do nothing")] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="do it by N processes on this machine, through Dask")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="do it by the workers of a Dask scheduler: its address, or its file"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Evaluate a study's whole grid; a second call finishes what an earlier one began."""
    from kvwall.spaces.errors import NothingAdmissible
    from kvwall.sweep import interrupt
    from kvwall.sweep.study import Study

    cluster = None
    if workers is not None or dask is not None:
        from kvwall.sweep.cluster import cluster_asked

        cluster = cluster_asked(workers, dask)
    loaded = Study.load(study)
    if dry_run:
        from kvwall.sweep.dry_run import plan_run

        if cluster:
            cluster.check(loaded)
        print("compiling, and timing a few blocks ...", file=sys.stderr)
        _show(plan_run(loaded, out, cluster.size() if cluster else None).to_json(), as_json)
        return
    with interrupt.safe_points():
        from kvwall.sweep.progress import watch
        from kvwall.sweep.run import run_sweep, why_nothing

        with watch() as follower:
            result = run_sweep(loaded, out, follower, cluster)
    for notice in result.notices:
        typer.echo(notice, err=True)
    if as_json:
        typer.echo(json.dumps(result.to_json(), allow_nan=False))
    else:
        _say(result, study)
    if result.front_size == 0:
        raise NothingAdmissible(why_nothing(loaded, result.out))


def _say(result: SweepResult, study: str) -> None:
    if result.certificate is None:
        _say_evaluated(result, study)
    else:
        _say_settled(result, result.certificate)


def _say_settled(result: SweepResult, settled: Mapping[str, int]) -> None:
    """What became of every design where the front was found by bounds."""
    folder = Path(result.out)
    blocks = settled["irrelevant_blocks"]
    typer.echo(f"{result.points:,} designs settled, not all of them evaluated: {blocks:,} blocks are proven irrelevant")
    for kind, meaning in _SETTLED.items():
        typer.echo(f"          {settled[f'{kind}_points']:,} {meaning}")
    typer.echo(f"front     {folder / 'front.nc'}  ({result.front_size:,} designs, exact)")
    typer.echo(f"next      kvwall report {folder}   (one HTML page), kvwall pareto {folder}")


def _say_evaluated(result: SweepResult, study: str) -> None:
    rate = f" at {result.points_per_second:.3g} points/s" if result.points_per_second else " by an earlier run"
    folder = Path(result.out)
    typer.echo(f"{result.points:,} designs evaluated{rate}")
    typer.echo(f"          {result.feasible:,} feasible, {result.admissible:,} of them inside the constraints")
    for status, meaning in _LOST.items():
        if status in result.statuses:
            typer.echo(f"          {result.statuses[status]:,} {meaning}")
    typer.echo(f"front     {folder / 'front.nc'}  ({result.front_size:,} designs, exact)")
    stored = f"{folder / 'view.nc'}  ({result.stored_points:,} designs stored), " if result.stored_points else ""
    typer.echo(f"datasets  {stored}{folder / 'summary.nc'}")
    typer.echo(f"next      kvwall report {folder}   (one HTML page), kvwall pareto {folder}, kvwall optimize {study}")


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    stored = facts.pop("stored")
    for name, value in facts.items():
        if value is not None:
            remark = ", without compiling" if name == "seconds_expected" else ""
            typer.echo(f"{name.replace('_', ' '):<22} {_shown(name, value)}{remark}")
    if facts["settled_in_trial"] is not None and facts["settling_seconds"] is None:
        typer.echo(
            "                       the rest may be much slower or faster: a search by bounds has no steady rate"
        )
    if stored:
        typer.echo(f"\n{'stored':<40} {'B/point':>8} {'MB':>10} {'packing':>10}")
    for one in stored:
        size = f"{one['bytes'] / 1e6:,.1f}"
        spent = _shown("seconds", one["seconds"])
        typer.echo(f"{one['name']:<40} {one['bytes_per_point']:>8.3f} {size:>10} {spent:>10}")


def _shown(name: str, value: Any) -> str:
    from kvwall.sweep.progress import duration

    if isinstance(value, dict):
        return ", ".join(f"{key} {length}" for key, length in value.items())
    if "seconds" in name:
        return duration(value)
    if "bytes" in name:
        return f"{value / 1e6:,.0f} MB"
    if name == "settled_in_trial":
        return f"{100 * value:.3g} %"
    return f"{value:,}" if isinstance(value, int) else str(value)
