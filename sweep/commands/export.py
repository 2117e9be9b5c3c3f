"""`kvwall export`: the front, the stored points or the summary of a finished sweep as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="results folder of `kvwall sweep`")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="csv or parquet (tables); netcdf or zarr (stored points)")],
    what: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="of a table: front (default), grid (every stored point, as exact as the study stored it) or summary",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="default DIR/PART.FORMAT")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a file that exists")] = False,
) -> None:
    """Write a part of the results as a table with units, or all stored points as one array file; print its path."""
    from kvwall.sweep.export import export
    from kvwall.sweep.progress import watch

    with watch() as follower:
        typer.echo(str(export(folder, to=to, what=what, out=out, force=force, watch=follower)))
