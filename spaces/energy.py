"""Energy figures by technology, from `catalog/energy.toml`: of memories, of links, and of arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.figures import FIGURES, Figure, checked
from kvwall.spaces.sourced_file import read_table

_FILE: Final = Path(__file__).parent / "catalog" / "energy.toml"


@cache
def _technologies() -> dict[str, Any]:
    return read_table(_FILE, "energy.toml", "energy")


def memory_energy(technology: str) -> Figure | None:
    """Energy per byte of a memory technology; `None` where it has no figure."""
    return _figure("memory_energy", _named(technology, _technologies()["memory"]))


def link_energy(technology: str) -> Figure | None:
    """Energy per byte of a link technology; `None` where it has no figure."""
    return _figure("link_energy", _named(technology, _technologies()["host_link"]))


def flop_energy() -> Figure | None:
    """Energy per FLOP, one figure for every device."""
    return _figure("flop_energy", _technologies()["flop"])


def _named(text: str, known: Mapping[str, Any]) -> Mapping[str, str]:
    """The entry whose name the text starts with, as whole words: "HBM3e + LPDDR5X" is HBM3E, "LPDDR5X" not LPDDR5."""
    for name, entry in known.items():
        if text.upper().startswith(name.upper()) and not text[len(name) : len(name) + 1].isalnum():
            return entry  # type: ignore[no-any-return]
    return {}


def _figure(field: str, entry: Mapping[str, str]) -> Figure | None:
    if "value" not in entry:
        return None
    span = f"{entry['low']} to {entry['high']}"
    note = f"grade {entry['grade']}; {entry['boundary']}; {span}; {entry['note']}"
    return Figure(checked(FIGURES[field], field, entry["value"]), entry["source"], note)
