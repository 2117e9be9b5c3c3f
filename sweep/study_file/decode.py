"""A study file's bytes to a TOML table, or the line where they are no TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from kvwall.spaces.errors import InputError
from kvwall.sweep.study_file.lines import KeyPath, LocatedFaults, find_lines

_LARGEST = 2**63 - 1
"""TOML's integers have 64 bits; tomllib's have no end."""


def decode(raw: bytes, origin: str) -> str:
    """The text of a file. Raises InputError naming the line that is not UTF-8."""
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as fault:
        line = raw[: fault.start].count(b"\n") + 1
        raise InputError(f"{origin}: line {line}: not UTF-8 text: save the file as UTF-8") from fault


def parse(text: str, origin: str) -> dict[str, Any]:
    """The table of a text. Raises InputError naming the line of the first fault of syntax."""
    try:
        table = tomllib.loads(text)
    except RecursionError as fault:
        raise InputError(f"{origin}: nested too deeply to be a study") from fault
    except ValueError as fault:
        raise InputError(_syntax_fault(str(fault), text, origin)) from fault
    try:
        integers = list(_integers(table, ()))
    except RecursionError as fault:
        raise InputError(f"{origin}: nested too deeply to be a study") from fault
    faults = LocatedFaults(find_lines(text), origin)
    for path, number in integers:
        if abs(number) > _LARGEST:
            name = next(key for key in reversed(path) if isinstance(key, str))
            faults.add(path, f"{name} holds an integer of more than 64 bits: write a smaller number")
    if faults:
        raise faults.error()
    return table


def _syntax_fault(reason: str, text: str, origin: str) -> str:
    what, located, where = reason.partition(" (at ")
    if not located:
        return f"{origin}: not valid TOML: {reason}"
    last = text.count("\n") + (not text.endswith("\n"))
    line = where.removeprefix("line ").split(",")[0] if where.startswith("line ") else str(last)
    shown = text.split("\n")[int(line) - 1].strip()[:60]
    return f"{origin}: line {line}: not valid TOML: {what[:1].lower()}{what[1:]}, in: {shown}"


def _integers(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    match value:
        case bool():
            return
        case int():
            yield path, value
        case dict():
            for key, entry in value.items():
                yield from _integers(entry, (*path, key))
        case list():
            for position, entry in enumerate(value):
                yield from _integers(entry, (*path, position))
