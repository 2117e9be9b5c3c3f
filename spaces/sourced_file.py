"""Files of sourced figures: TOML with texts and with tables of a value, its source and a note, checked as a whole."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.figures import Figure, Measure, checked

_STATUS: Final = ("shipping", "announced")
_KEYS: Final = ("value", "source", "note")


def read_table(path: Path, label: str, what: str) -> dict[str, Any]:
    """The TOML of a file. Raises InputError; `label` names the file in it, `what` the kind of file."""
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"{label}: cannot be read ({error}): give the path of a {what} file") from error
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(f"{label}: line {line} is not UTF-8 text: save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        last = raw.count(b"\n") + 1
        reason = str(error).replace("at end of document", f"at line {last}, the end of the file")
        raise InputError(f"{label}: not valid TOML: {reason}") from error


def read_texts(
    table: Mapping[str, Any], texts: Sequence[str], figures: Mapping[str, Measure], what: str, faults: Faults
) -> dict[str, str]:
    """The texts of the table; what is neither a text nor a figure of such a file is a fault."""
    allowed = (*texts, *figures)
    for key in sorted(table.keys() - set(allowed)):
        faults.add(f'"{key}" is no key of a {what} file{nearest(key, allowed)}; allowed: {", ".join(allowed)}')
    found = {key: table[key] for key in texts if key in table}
    for key, text in found.items():
        if not isinstance(text, str):
            faults.add(f"{key} = {text!r} is not text: write it in quotes")
    status = found.get("status", "shipping")
    if isinstance(status, str) and status not in _STATUS:
        faults.add(f'status = "{status}": write "shipping" or "announced"{nearest(status, _STATUS)}')
    return {key: str(text) for key, text in found.items()}


def read_figures(
    table: Mapping[str, Any], measures: Mapping[str, Measure], faults: Faults, on_chip: bool = False
) -> dict[str, Figure]:
    """The figures of the table."""
    found = {}
    for field in (name for name in measures if name in table):
        try:
            found[field] = _figure(measures[field], field, table[field], on_chip)
        except InputError as error:
            faults.absorb(error)
    return found


def _figure(measure: Measure, field: str, entry: Any, on_chip: bool) -> Figure:
    example = f'[{field}] with value = "{measure.example}", source and note'
    if not isinstance(entry, dict):
        raise InputError(f"{field} = {entry!r} is not a table: write {example}")
    faults = Faults()
    for key in sorted(entry.keys() - set(_KEYS)):
        faults.add(f'"{key}" is no key of [{field}]{nearest(key, _KEYS)}: write {example}')
    for key in ("source", "note"):
        if not isinstance(entry.get(key, ""), str):
            faults.add(f"{key} = {entry[key]!r} of [{field}] is not text: write it in quotes")
    value = math.nan
    if "value" not in entry:
        faults.add(f"[{field}] has no value: write {example}")
    else:
        try:
            value = checked(measure, field, entry["value"], on_chip)
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any()
    return Figure(value, entry.get("source", "not stated"), entry.get("note", ""))
