"""`kvwall calibrate`: adapt the estimates to runs of one's own."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvwall.sweep.commands.run_options import with_run_options

if TYPE_CHECKING:
    from kvwall.sweep.calibrate_runs import Adapted


@with_run_options
def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="results of benchmarks, or measured rows")],
    *,
    stated: Mapping[str, str],
    out: Annotated[Path, typer.Option("--out", metavar="RECORD.json", help="Where the adapted record is written")],
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE.json", help="A record to start from (default: the shipped one)"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """Adapt the estimates to measured runs and write a record that --calibration takes; the shipped one stays."""
    from kvwall.sweep.calibrate_runs import adapt, check_out, write_adapted

    check_out(out, runs)
    adapted = adapt(runs, stated, calibration)
    write_adapted(adapted, out)
    if json:
        typer.echo(json_text.dumps({"out": str(out)} | adapted.to_json(), allow_nan=False, indent=2))
    else:
        _print(adapted, out)


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
