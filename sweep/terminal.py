"""Standard output for people: plain ASCII of 120 columns or more where it is no terminal that can show more."""

from __future__ import annotations

from rich.box import ASCII, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def terminal() -> Console:
    """Standard output; without a terminal no colours and at least 120 columns, so that nothing folds."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 120), no_color=True)


def new_table(console: Console) -> Table:
    """An empty table, its lines drawn as the console can show them."""
    plain = not console.is_terminal or "utf" not in console.encoding.lower()
    return Table(box=ASCII if plain else SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
