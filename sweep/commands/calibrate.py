"""`kvwall calibrate`: adapt the estimates to runs of one's own, or the quality curves to measured points."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvwall.spaces.errors import Faults
from kvwall.sweep.commands.result_options import with_result_options
from kvwall.sweep.commands.run_options import with_run_options

if TYPE_CHECKING:
    from kvwall.sweep.calibrate_runs import Adapted


@with_result_options
@with_run_options
def command(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="results of benchmarks, or measured rows; with --quality, of evaluations"
        ),
    ] = None,
    *,
    stated: Mapping[str, str],
    results: Mapping[str, str],
    out: Annotated[Path, typer.Option("--out", metavar="RECORD.json", help="Where the adapted record is written")],
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE.json", help="A record to start from (default: the shipped one)"),
    ] = None,
    quality: Annotated[
        bool, typer.Option("--quality", help="Adapt the quality curves to measured losses of your own")
    ] = False,
    point: Annotated[
        list[str] | None,
        typer.Option(
            "--point",
            metavar="KEY=VALUE,...",
            help="With --quality: a measured score, as in "
            "evictor=snapkv,retention=0.5,task=retrieval_easy,baseline=96,score=81,question_visible=false; repeatable",
        ),
    ] = None,
    quality_curves: Annotated[
        Path | None,
        typer.Option(
            "--quality-curves",
            metavar="FILE.json",
            help="With --quality: a record to start from (default: shipped)",
        ),
    ] = None,
    evictor: Annotated[
        str | None, typer.Option("--evictor", metavar="NAME", help="With --quality: the curve of unknown evictors")
    ] = None,
    quantizer: Annotated[
        str | None, typer.Option("--quantizer", metavar="NAME", help="With --quality: the curve of unknown quantizers")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """Adapt a record to results of your own: estimates to measured runs, or quality curves to measured losses.

    The record is written to --out, which --calibration or --quality-curves take; the shipped one stays.
    """
    of_quality = {"point": point, "quality_curves": quality_curves, "evictor": evictor, "quantizer": quantizer}
    _refuse_others({"calibration": calibration, **stated} if quality else of_quality | dict(results), quality)
    if quality:
        named = {name: text for name, text in (("evictor", evictor), ("quantizer", quantizer)) if text}
        _quality(runs or [], point or [], {**stated, **results}, quality_curves, named, out, json)
    else:
        _speed(runs or [], stated, calibration, out, json)


def _refuse_others(options: Mapping[str, object], quality: bool) -> None:
    """Refuse options that are not of what is asked for."""
    faults = Faults()
    for name, value in options.items():
        if value and not (quality and name == "model"):
            what = "of measured speeds: leave it out with --quality" if quality else "for --quality: give that too"
            faults.add(f"--{name.replace('_', '-')} is {what}")
    faults.raise_if_any()


def _speed(runs: Sequence[Path], stated: Mapping[str, str], calibration: Path | None, out: Path, json: bool) -> None:
    from kvwall.sweep.calibrate_runs import adapt, check_out, write_adapted

    faults = Faults()
    if not runs:
        faults.add("RUNS are missing: name results of benchmarks, or measured rows")
    faults.raise_if_any()
    check_out(out, runs)
    adapted = adapt(runs, stated, calibration)
    write_adapted(adapted, out)
    if json:
        typer.echo(json_text.dumps({"out": str(out)} | adapted.to_json(), allow_nan=False, indent=2))
    else:
        _print(adapted, out)


def _quality(
    runs: Sequence[Path],
    points: Sequence[str],
    stated: Mapping[str, str],
    start: Path | None,
    named: Mapping[str, str],
    out: Path,
    json: bool,
) -> None:
    from kvwall.sweep.calibrate_quality import calibrate_quality, check_out, write_curves
    from kvwall.sweep.calibrate_quality_table import print_calibrated

    check_out(out, [*runs, *([] if start is None else [start])])
    found = calibrate_quality(runs, points, stated, start, named)
    write_curves(found.record, out)
    if json:
        typer.echo(json_text.dumps({"out": str(out)} | found.to_json(), allow_nan=False, indent=2))
    else:
        print_calibrated(found, out)


def _print(adapted: Adapted, out: Path) -> None:
    from kvwall.sweep.speed_table import counted, print_refused, summary_text
    from kvwall.sweep.terminal import terminal

    console = terminal()
    console.print(f"Adapted to {counted(adapted.used, 'row')}; {len(adapted.refused):,} not used.", markup=False)
    console.print(f"before: {summary_text(adapted.before)}", markup=False)
    console.print(f"after:  {summary_text(adapted.after)} (on the same rows)", markup=False)
    print_refused(console, adapted.refused)
    console.print(f"\nWritten: {out} and {out.with_suffix('.parquet')}", markup=False)
    console.print(f"How far off it is on other runs: kvwall validate ROWS --calibration {out}", markup=False)
    console.print(f"Estimates with it: kvwall evaluate ... --calibration {out}", markup=False)
