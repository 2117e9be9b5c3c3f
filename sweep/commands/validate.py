"""`kvwall validate`: measured speeds against estimates, published start-up figures against the laws of memory."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.commands.run_options import with_run_options

REPEATS: Final = ("keep", "collapse")
_OF_SPEED: Final = ("plot", "calibration", "repeats")
_CAPACITY_HINT: Final = "if these are start-up figures of engines, give --capacity"


@with_run_options
def command(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS...", help="measured rows, or results of benchmarks")],
    *,
    stated: Mapping[str, str],
    capacity: Annotated[bool, typer.Option("--capacity", help="Memory pools of engines at start-up")] = False,
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
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """Compare measured numbers with predictions: errors for all and by group, and which rows were refused and why."""
    faults = Faults()
    if repeats is not None and repeats not in REPEATS:
        faults.add(f'--repeats "{repeats}" is unknown: give {" or ".join(REPEATS)}')
    if capacity:
        given = dict(zip(_OF_SPEED, (plot, calibration, repeats), strict=True))
        names = [name for name, value in given.items() if value is not None]
        _check_capacity(rows, [*names, *stated], faults)
    if plot is not None and not capacity:
        _check_plot(plot, [*rows, *([] if calibration is None else [calibration])], faults)
    faults.raise_if_any()
    if capacity:
        _capacity(rows[0], json)
    else:
        _speed(rows, stated, calibration, repeats == "collapse", plot, json)


def _check_capacity(rows: Sequence[Path], others: Sequence[str], faults: Faults) -> None:
    if len(rows) > 1:
        faults.add(f"--capacity takes one file: {len(rows)} are named")
    for name in others:
        faults.add(f"--{name.replace('_', '-')} is of measured speeds: leave it out with --capacity")


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
        hint = (_CAPACITY_HINT,) * any("format is not known" in each for each in fault.faults)
        raise type(fault)((*fault.faults, *hint)) from fault
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
