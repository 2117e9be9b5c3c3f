"""`kvwall report`: one self-contained HTML page of a finished sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="results folder of `kvwall sweep`")],
) -> None:
    """Write DIR/report.html, a page that needs no network, and print its path."""
    from kvwall.sweep.progress import watch
    from kvwall.sweep.report import write_report

    with watch() as follower:
        path = write_report(folder, follower)
    typer.echo(str(path))
