"""`kvwall export`: the front, the stored points or the summary of a finished sweep as one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="results folder of `kvwall sweep`")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="csv or parquet")],
    what: Annotated[
        str, typer.Option(metavar="PART", help="front, grid (every stored point, rounded to 12 bits) or summary")
    ] = "front",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="default DIR/PART.FORMAT")] = None,
    force: Annotated[bool, typer.Option("--force", help="replace a file that exists")] = False,
) -> None:
    """Write the front, the stored points or the summary as a table with units, and print its path."""
    from kvwall.sweep.export import export

    typer.echo(str(export(folder, to=to, what=what, out=out, force=force)))
