"""`kvwall validate`: measured numbers against predictions.

Speeds against estimates, start-up figures of engines against the laws of memory, quality losses against the curves.
"""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.commands.axis_options import QUALITY_CURVES_HELP, confidence_of
from kvwall.sweep.commands.result_options import with_result_options
from kvwall.sweep.commands.run_options import with_run_options

REPEATS: Final = ("keep", "collapse")
NOTHING_USED: Final = 3
_SPEED, _CAPACITY, _QUALITY = "measured speeds", "--capacity", "--quality"
_HINTS: Final = (
    "if these are start-up figures of engines, give --capacity",
    "if these are results of quality evaluations, give --quality",
)


@with_result_options
@with_run_options
def command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS...", help="measured rows, or results of benchmarks")],
    *,
    stated: Mapping[str, str],
    results: Mapping[str, str],
    capacity: Annotated[bool, typer.Option("--capacity", help="Memory pools of engines at start-up")] = False,
    quality: Annotated[bool, typer.Option("--quality", help="Losses of compressed caches and weights")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.html", help="Predicted against measured, as a page")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option("--calibration", metavar="FILE.json", help="A record of `kvwall calibrate`")
    ] = None,
    repeats: Annotated[
        str | None,
        typer.Option("--repeats", metavar="|".join(REPEATS), help="collapse: one row per configuration, the median"),
    ] = None,
    quality_curves: Annotated[Path | None, typer.Option(help=QUALITY_CURVES_HELP, metavar="FILE.json")] = None,
    confidence: Annotated[
        str | None, typer.Option(help="With --quality: confidence of the upper curve (default: 0.9)", metavar="X")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """Compare measured numbers with predictions: errors for all and by group, and which rows were refused and why."""
    faults = Faults()
    if repeats is not None and repeats not in REPEATS:
        faults.add(f'--repeats "{repeats}" is unknown: give {" or ".join(REPEATS)}')
    if capacity and quality:
        faults.add("--capacity and --quality are of different files: give one of them")
    of_speed = {"plot": plot, "calibration": calibration, "repeats": repeats, **stated}
    of_quality = {"quality_curves": quality_curves, "confidence": confidence, **results}
    if capacity and len(rows) > 1:
        faults.add(f"--capacity takes one file: {len(rows)} are named")
    if capacity or quality:
        kept = ("model",) if quality else ()
        _refuse(of_speed, _SPEED, kept, _CAPACITY if capacity else _QUALITY, faults)
    if not quality:
        _refuse(of_quality, _QUALITY, (), _CAPACITY if capacity else _SPEED, faults)
    if plot is not None and not capacity and not quality:
        _check_plot(plot, [*rows, *([] if calibration is None else [calibration])], faults)
    level = 0.9 if confidence is None else confidence_of(confidence, faults)
    faults.raise_if_any()
    if capacity:
        _capacity(rows[0], json)
    elif quality:
        _quality(rows, {**stated, **results}, quality_curves, level, json)
    else:
        _speed(rows, stated, calibration, repeats == "collapse", plot, json)


def _refuse(options: Mapping[str, object], of: str, kept: Sequence[str], asked: str, faults: Faults) -> None:
    """Record options that do not belong to what is asked for."""
    for name, value in options.items():
        if value is not None and name not in kept:
            faults.add(f"--{name.replace('_', '-')} is of {of}: leave it out with {asked}")


def _check_plot(plot: Path, inputs: Sequence[Path], faults: Faults) -> None:
    from kvwall.sweep.written_file import check_page

    try:
        check_page("--plot", plot, inputs)
    except InputError as fault:
        faults.absorb(fault)


def _speed(
    rows: Sequence[Path],
    stated: Mapping[str, str],
    calibration: Path | None,
    collapse: bool,
    plot: Path | None,
    json: bool,
) -> None:
    from kvwall.sweep.speed_table import print_report
    from kvwall.sweep.validate_page import write_page
    from kvwall.sweep.validate_speed import validate_speed

    try:
        report = validate_speed(rows, stated, calibration, collapse=collapse)
    except InputError as fault:
        unknown = any("format is not known" in each for each in fault.faults)
        raise type(fault)((*fault.faults, *(_HINTS if unknown else ()))) from fault
    if plot is not None:
        write_page(report, plot)
    if json:
        where = {} if plot is None else {"plot": str(plot)}
        typer.echo(json_text.dumps(report.to_json() | where, allow_nan=False, indent=2))
        return
    print_report(report)
    if plot is not None:
        typer.echo(f"\nPlot: {plot}")


def _capacity(rows: Path, json: bool) -> None:
    from kvwall.sweep.capacity_table import print_report
    from kvwall.sweep.validate_capacity import validate_capacity

    report = validate_capacity(rows)
    if json:
        typer.echo(json_text.dumps(report.to_json(), allow_nan=False, indent=2))
    else:
        print_report(report)


def _quality(rows: Sequence[Path], stated: Mapping[str, str], curves: Path | None, level: float, json: bool) -> None:
    from kvwall.sweep.quality_table import print_report
    from kvwall.sweep.validate_quality import validate_quality

    report = validate_quality(rows, stated, curves, level)
    if json:
        typer.echo(json_text.dumps(report.to_json(), allow_nan=False, indent=2))
    else:
        print_report(report)
    if not report.compared:
        raise typer.Exit(NOTHING_USED)
