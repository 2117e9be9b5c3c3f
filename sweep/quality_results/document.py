"""A file of evaluation results as it lies on the disk: the value of its JSON, or the lines of its CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.runs.documents import csv_lines, is_json, read_text

_PATTERNS: Final = ("metrics.json", "*/metrics.json", "*/*/metrics.json", "results_*.json", "*/results_*.json")
"""Results that evaluation programs leave in a folder."""
_MOST_FILES: Final = 10_000


@dataclass(frozen=True)
class Document:
    """One file."""

    path: Path
    value: object = None
    """Of a JSON file."""
    lines: Sequence[Mapping[str, object]] | None = None
    """Of a CSV file; every cell is text."""

    def at(self, *path: str) -> object:
        """The value at a path of keys; None where there is none."""
        found = self.value
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def table(self, *path: str) -> Mapping[str, object]:
        """The object at a path of keys; empty where there is none."""
        found = self.at(*path)
        return found if isinstance(found, Mapping) else {}

    def text(self, *path: str) -> str:
        """The text at a path of keys; '' where there is none."""
        found = self.at(*path)
        return found.strip() if isinstance(found, str) else ""


def read_document(path: Path) -> Document:
    """The file at a path. Raises InputError for what is neither JSON nor CSV with lines."""
    text = read_text(path)
    if path.suffix.lower() == ".json" or is_json(text):
        return Document(path, value=_json(text, path))
    lines = csv_lines(text, path)
    if not lines:
        raise InputError(f"{path}: has no lines below its first: give results")
    return Document(path, lines=lines)


def files_of(path: Path) -> tuple[Path, ...]:
    """The path itself, or the results in a folder. Raises InputError for a folder without any."""
    try:
        if not path.is_dir():
            return (path,)
        some = set(islice(_results_in(path), _MOST_FILES + 1))
    except (OSError, ValueError) as fault:
        raise InputError(f"{path}: cannot be read: {fault}") from fault
    found = tuple(sorted(some, key=lambda each: (len(each.parts), each)))  # a repeated run lies in the first one's
    if not found:
        raise InputError(
            f"{path}: is a folder without results: name files, or a folder that holds metrics.json (kvpress) or "
            "results_*.json (lm-evaluation-harness)"
        )
    if len(found) > _MOST_FILES:
        raise InputError(f"{path}: holds more than {_MOST_FILES} results: name folders in it")
    return found


def _results_in(folder: Path) -> Iterator[Path]:
    for pattern in _PATTERNS:
        yield from folder.glob(pattern)


def _json(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply to be a file of results") from None
    except ValueError as fault:
        raise InputError(f"{path}: is broken JSON: {fault}: was it cut off? Write it again") from fault
