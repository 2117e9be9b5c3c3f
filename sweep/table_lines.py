"""Lines of a CSV or a Parquet file: the cells of the columns asked for, or why a line has none."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from kvwall.spaces.errors import Faults, InputError


@dataclass(frozen=True)
class Line:
    """One line of a table."""

    place: int
    """Where a CSV file's line begins, the header being line 1; in a Parquet file 1 is the first row."""
    cells: Mapping[str, object]
    """Column -> cell; of a CSV file text. A column that the file lacks is ''."""
    reason: str = ""
    """Why the cells are not where they belong."""


def read_lines(path: Path, columns: Sequence[str], required: Sequence[str]) -> tuple[Line, ...]:
    """The lines of a file; those of a CSV file without any text are left out.

    Args:
        path: the file.
        columns: those that are read.
        required: those that must be there.

    Raises:
        InputError: naming every column that is missing, or there twice; or why the file cannot be read.
    """
    try:
        if is_parquet(path):
            return tuple(_of_parquet(path, columns, required))
        return tuple(_of_text(path, columns, required))
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: is no UTF-8 text: save it as UTF-8") from fault
    except (csv.Error, pa.ArrowException) as fault:
        raise InputError(f"{path}: {fault}: give the columns {', '.join(required)}") from fault


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does. Raises OSError."""
    with path.open("rb") as content:
        return content.read(4) == b"PAR1"


def _of_parquet(path: Path, columns: Sequence[str], required: Sequence[str]) -> Iterator[Line]:
    table = pyarrow.parquet.read_table(path)
    _check(path, table.column_names, columns, required)
    there = [name for name in columns if name in table.column_names]
    blank = dict.fromkeys(columns, "")
    for place, cells in enumerate(table.select(there).to_pylist(), 1):
        yield Line(place, blank | cells)


def _of_text(path: Path, columns: Sequence[str], required: Sequence[str]) -> Iterator[Line]:
    with path.open(encoding="utf-8-sig", newline="") as content:
        reader = csv.reader(content)
        head = next(reader, [])
        _check(path, head, columns, required)
        at = {name: head.index(name) for name in columns if name in head}
        begin = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield _line(begin, cells, at, columns, len(head))
            begin = reader.line_num + 1


def _line(place: int, cells: Sequence[str], at: Mapping[str, int], columns: Sequence[str], width: int) -> Line:
    there = {name: cells[where] for name, where in at.items() if where < len(cells)}
    reason = ""
    if len(cells) < width or any(cells[width:]):
        there_are = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        reason = f"its line has {there_are} and the first line {width}: put text with commas in quotes"
    return Line(place, dict.fromkeys(columns, "") | there, reason)


def _check(path: Path, names: Sequence[str], columns: Sequence[str], required: Sequence[str]) -> None:
    faults = Faults()
    for name in columns:
        found = names.count(name)
        if not found and name in required:
            faults.add(f"{path}: column {name} is missing: rows have the columns {', '.join(required)}")
        elif found > 1:
            faults.add(f"{path}: column {name} is there {found} times: keep one")
    faults.raise_if_any()
