"""The results that a file holds: JSON objects one after another, in a list or alone, or the lines of a CSV file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.errors import InputError

LARGEST_FILE: Final = 1 << 30
"""Bytes; a result with the times of every token of many thousand requests is smaller."""

_BLANK: Final = " \t\r\n"


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError for what is no text file of a size that a result can have."""
    try:
        if not path.is_file():  # a pipe or a device has no end
            what = "is a folder: name the files in it" if path.is_dir() else "no such file: name a file of results"
            raise InputError(f"{path}: {what}")
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: is larger than {LARGEST_FILE} bytes: leave out the details of each request")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: is no UTF-8 text: name a file of results, saved as UTF-8") from fault
    except InputError:  # a ValueError too
        raise
    except ValueError as fault:  # a path with a null byte
        raise InputError(f"{path}: is no path: {fault}") from fault
    if not text.strip():
        raise InputError(f"{path}: is empty: was the benchmark stopped before it wrote its results?")
    return text


def is_json(text: str) -> bool:
    """Whether a text begins as JSON results do."""
    return text.lstrip()[:1] in ("{", "[")


def json_objects(text: str, path: Path) -> list[Mapping[str, object]]:
    """The objects of a JSON file, a file of one object per line, or objects after one another."""
    try:
        values = list(_values(text))
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply to be a file of results") from None
    except ValueError as fault:  # broken JSON, or a number of thousands of digits
        raise InputError(f"{path}: is broken JSON: {fault}") from fault
    found: list[Any] = [each for value in values for each in (value if isinstance(value, list) else [value])]
    if not found:
        raise InputError(f"{path}: holds no result")
    for number, each in enumerate(found, 1):
        if not isinstance(each, dict):
            raise InputError(f"{path}: entry {number} is {type(each).__name__}, not an object with a result's fields")
    return found


def csv_lines(text: str, path: Path) -> list[Mapping[str, object]]:
    """The lines of a CSV file as objects; cells stay text, and cells without a column are left out."""
    try:
        lines = list(csv.DictReader(io.StringIO(text, newline=""), restkey="", restval=""))
    except csv.Error as fault:
        raise InputError(f"{path}: is broken CSV: {fault}") from fault
    return [{name: cell for name, cell in line.items() if name} for line in lines]


def _values(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    place = _next(text, 0)
    while place < len(text):
        value, end = decoder.raw_decode(text, place)
        yield value
        place = _next(text, end)


def _next(text: str, place: int) -> int:
    """Where the next value begins."""
    while place < len(text) and text[place] in _BLANK:
        place += 1
    return place
