"""`kvwall sweep`: a study's whole grid, its front, its summary and the stored slice; a second call resumes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

_MORE = """The study is a TOML file or a shipped study's name (see: kvwall catalog studies).

Examples:
  kvwall sweep memory-wall
  kvwall sweep my-study.toml --out results/my-study
  kvwall sweep my-study.toml --dry-run
"""


def command(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file or name of a shipped study")],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="results folder; default outputs/<name>")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what a run would take, and do nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
) -> None:
    """Evaluate a study's whole grid; a second call finishes what an earlier one began."""
    from kvwall.sweep.run import run_sweep
    from kvwall.sweep.study import Study

    loaded = Study.load(study)
    if dry_run:
        _show(_plan(loaded, out), as_json)
        return
    from kvwall.sweep.progress import watch

    with watch() as follower:
        result = run_sweep(loaded, out, follower)
    for notice in result.notices:
        typer.echo(notice, err=True)
    if as_json:
        _show(result.to_json(), as_json)
        return
    rate = f" at {result.points_per_second:.3g} points/s" if result.points_per_second else " by an earlier run"
    folder = Path(result.out)
    typer.echo(f"{result.points:,} designs evaluated{rate}")
    typer.echo(f"          {result.feasible:,} feasible, {result.admissible:,} of them inside the constraints")
    typer.echo(f"front     {folder / 'front.nc'}  ({result.front_size:,} designs, exact)")
    typer.echo(f"datasets  {folder / 'view.nc'}  ({result.stored_points:,} designs stored), {folder / 'summary.nc'}")
    typer.echo(f"next      kvwall report {folder}   (one HTML page), kvwall pareto {folder}, kvwall optimize {study}")


def _plan(study: Any, out: Path | None) -> dict[str, Any]:
    """What a run would take, from a short trial on this machine."""
    from kvwall.sweep.run import OUTPUTS, problem_of
    from kvwall.sweep.store import shard_plan
    from kvwall.sweep.stream import Stream

    plan = shard_plan(study)
    stream = Stream(problem_of(study))
    print("compiling, and timing a few blocks ...", file=sys.stderr)
    began = time.perf_counter()
    seconds = stream.seconds_expected()
    return {
        "study": study.name,
        "points": study.space.size,
        "axes": {name: len(study.space[name]) for name in study.space.dims},
        "seconds_expected": seconds,
        "compile_seconds": time.perf_counter() - began,
        "stored_points": plan.size,
        "disk_bytes_at_most": plan.required_bytes(),
        "out": str(out or OUTPUTS / study.name),
    }


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)
        typer.echo(f"{name.replace('_', ' '):<20} {shown}")
