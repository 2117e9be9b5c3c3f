"""Cells of a table of measured rows as counts, numbers and text, or why a cell is none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from kvwall.spaces.errors import Faults

LEAST: Final[Mapping[str, int]] = {
    "n_devices": 1,
    "tp": 1,
    "pp": 1,
    "ep": 1,
    "batch_or_concurrency": 1,
    "input_tokens": 0,
    "output_tokens": 1,
}
"""Columns that count something, and the least that there can be; an empty prompt is read as one token."""
LARGEST: Final = 999_999_999
VALUE: Final = "value"

_UNSTATED: Final = frozenset({"", "-", "?", "n/a", "na", "nan", "none", "null", "unknown"})
_DOUBTED = re.compile(r"\d+ ?(\(\?\)|\?)")
"""As in "8(?)": the source does not state it."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_MOST_SHOWN: Final = 40


def typed(cells: Mapping[str, object], faults: Faults) -> dict[str, Any]:
    """The cells by column: counts (None where not stated), the value as a number, everything else as text.

    A cell that cannot be read is recorded in `faults`, and None.
    """
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        if name in LEAST:
            found[name] = _count(name, cell, faults)
        elif name == VALUE:
            found[name] = _value(cell, faults)
        else:
            found[name] = _text(cell)
    return found


def too_few(name: str, count: int | None) -> str:
    """Why a count is less than there can be; '' where it is not.

    >>> too_few("tp", 0)
    'tp is 0: it must be 1 or more'
    >>> too_few("input_tokens", 0)
    ''
    """
    return "" if count is None or count >= LEAST[name] else f"{name} is {count}: it must be {LEAST[name]} or more"


def _count(name: str, cell: object, faults: Faults) -> int | None:
    text = _text(cell).strip()
    if text.lower() in _UNSTATED or _DOUBTED.fullmatch(text):
        return None
    number = _number(text)
    if number is None or not math.isfinite(number) or number != round(number):
        faults.add(f"{name} is {_shown(text)}: it is no whole number; leave it blank where it is not known")
    elif number > LARGEST:
        faults.add(f"{name} is {_shown(text)}: it must be {LARGEST} or less")
    elif reason := too_few(name, round(number)):
        faults.add(reason)
    else:
        return round(number)
    return None


def _value(cell: object, faults: Faults) -> float | None:
    text = _text(cell).strip()
    number = _number(text)
    if not text:
        faults.add(f"{VALUE} is blank: give a number")
    elif number is None:
        faults.add(f"{VALUE} is {_shown(text)}: it is no number; the unit has its own column")
    return number


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _text(cell: object) -> str:
    """Text as it is; nothing for what a table has in place of nothing."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    return cell if isinstance(cell, str) else str(cell)


def _shown(text: str) -> str:
    return f'"{text}"' if len(text) <= _MOST_SHOWN else f'"{text[:_MOST_SHOWN]}..."'
