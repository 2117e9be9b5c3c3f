"""`kvwall sweep`: a study's whole grid, its front, its summary and the stored slice; a second call resumes."""

from __future__ import annotations

import json
import sys
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
"""


_LOST = {
    "memory": "do not fit in memory",
    "layout": "cannot be laid out on so many devices",
    "unsourced_input": "lack a figure that no source states (kvwall evaluate names it; [assume] supplies it)",
}


def command(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file or name of a shipped study")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="results folder; default outputs/<name>")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what a run would take, and do nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Evaluate a study's whole grid; a second call finishes what an earlier one began."""
    from kvwall.spaces.errors import NothingAdmissible
    from kvwall.sweep import interrupt
    from kvwall.sweep.study import Study

    loaded = Study.load(study)
    if dry_run:
        _show(_plan(loaded, out), as_json)
        return
    with interrupt.safe_points():
        from kvwall.sweep.progress import watch
        from kvwall.sweep.run import run_sweep, why_nothing

        with watch() as follower:
            result = run_sweep(loaded, out, follower)
    for notice in result.notices:
        typer.echo(notice, err=True)
    if as_json:
        _show(result.to_json(), as_json)
    else:
        _say(result, study)
    if result.admissible == 0:
        raise NothingAdmissible(why_nothing(loaded, result.out))


def _say(result: SweepResult, study: str) -> None:
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


def _plan(study: Any, out: Path | None) -> dict[str, Any]:
    """What a run would take, from a short trial on this machine."""
    from kvwall.sweep.keeping import STORES
    from kvwall.sweep.run import OUTPUTS, problem_of
    from kvwall.sweep.store import shard_plan
    from kvwall.sweep.stream import Stream

    plan = shard_plan(study) if STORES[study.store].points else None
    stream = Stream(problem_of(study))
    print("compiling, and timing a few blocks ...", file=sys.stderr)
    seconds = stream.seconds_expected()
    return {
        "study": study.name,
        "points": study.space.size,
        "axes": {name: len(study.space[name]) for name in study.space.dims},
        "seconds_expected": seconds,
        "compile_seconds": stream.compile_seconds,
        "stored_points": plan.size if plan else 0,
        "disk_bytes_at_most": plan.required_bytes() if plan else 0,
        "out": str(out or OUTPUTS / study.name),
    }


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):<20} {_shown(name, value)}")


def _shown(name: str, value: Any) -> str:
    from kvwall.sweep.progress import duration

    if isinstance(value, dict):
        return ", ".join(f"{key} {length}" for key, length in value.items())
    if "seconds" in name:
        return duration(value)
    if "bytes" in name:
        return f"{value / 1e6:,.0f} MB"
    return f"{value:,}" if isinstance(value, int) else str(value)
