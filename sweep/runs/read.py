"""Files of benchmark results as measured rows; each file's format is told by what is in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.measured_rows import MeasuredRow, TableRow, read_table
from kvwall.sweep.runs.assemble import blamed, rows_of
from kvwall.sweep.runs.documents import csv_lines, is_json, json_objects, read_text
from kvwall.sweep.runs.formats import FORMATS, format_of
from kvwall.sweep.runs.result import Result
from kvwall.sweep.runs.stated import Stated, option, read_stated
from kvwall.sweep.runs.table import COLUMNS, filled, left_out
from kvwall.sweep.table_lines import is_parquet


@dataclass(frozen=True)
class Runs:
    """Everything that the files hold."""

    rows: tuple[MeasuredRow, ...]
    refused: Mapping[str, tuple[str, ...]]
    """What is no measurement of decode, by row id or by file and place -> reasons."""


@dataclass
class _Reading:
    """Rows and refusals so far; a fault that many results of a file share is told once."""

    rows: dict[str, MeasuredRow] = field(default_factory=dict)
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    faults: dict[str, list[int]] = field(default_factory=dict)
    """Fault -> the results that have it, by their place in the file."""

    def add(self, rows: Sequence[MeasuredRow]) -> None:
        """Rows of a result, whose names hold its file and place: no other has them."""
        self.rows.update({row.id: row for row in rows})

    def add_of_table(self, each: TableRow, path: Path, stated: Stated) -> None:
        """A row of a table, whose name may be there already: the first that has it keeps it."""
        reasons, name = left_out(each), each.name
        if name in self.rows or name in self.refused:
            reasons = (*reasons, "an earlier row has this id: give each its own")
            name = f"{name} ({path}, line {each.place})"
        if reasons:
            self.refused[name] = reasons
        elif each.row is not None:
            self.rows[name] = filled(each.row, stated)

    def blame(self, error: InputError, place: int) -> None:
        for fault in error.faults:
            self.faults.setdefault(fault, []).append(place)

    def raise_if_any(self, path: Path, results: int) -> None:
        """One line per fault: which results have it, unless there is one result, or all have it."""
        lines = []
        for fault, places in self.faults.items():
            some = ", ".join(map(str, places[:3])) + (f" and {len(places) - 3} others" if len(places) > 3 else "")
            lines.append(f"{fault}" if len(places) == results else f"result {some}: {fault}")
        self.faults.clear()
        if lines:
            raise blamed(InputError(lines), str(path))


def read_runs(paths: Sequence[Path], stated: Mapping[str, str]) -> Runs:
    """The measured rows of files in any of the formats of `FORMATS`, or with the columns of `MeasuredRow`.

    Args:
        paths: files; each is read once.
        stated: what files leave open, by the names of `OPTIONS`: "hardware", "tp", "batch", ...

    Raises:
        InputError: with every fault of every file, each after its file's name: what cannot be read, what is missing
            and the option that gives it, what contradicts `stated`.
    """
    user = read_stated(stated, load_aliases())
    reading, faults = _Reading(), Faults()
    if not paths:
        faults.add("no file is named: give the results of a benchmark")
    for path in dict.fromkeys(paths):
        try:
            _read_file(path, user, reading)
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any()
    return Runs(tuple(reading.rows.values()), reading.refused)


def _read_file(path: Path, stated: Stated, reading: _Reading) -> None:
    if _holds_parquet(path):
        _read_table(path, stated, reading)
        return
    text = read_text(path)
    if is_json(text):
        _read_results(path, json_objects(text, path), stated, reading)
        return
    lines = csv_lines(text, path)
    if lines and not format_of(lines[0]) and COLUMNS & lines[0].keys():
        _read_table(path, stated, reading)
    elif lines:
        _read_results(path, lines, stated, reading)
    else:
        raise InputError(f"{path}: has no lines below its first: give results")


def _holds_parquet(path: Path) -> bool:
    try:
        return path.is_file() and is_parquet(path)
    except (OSError, ValueError):  # read_text says why
        return False


def _read_table(path: Path, stated: Stated, reading: _Reading) -> None:
    rows = read_table(path)
    for place, each in enumerate(rows, 1):
        try:
            reading.add_of_table(each, path, stated)
        except InputError as error:
            reading.blame(error, place)
    reading.raise_if_any(path, len(rows))


def _read_results(path: Path, results: Sequence[Mapping[str, object]], stated: Stated, reading: _Reading) -> None:
    for place, fields in enumerate(results, 1):
        name = str(path) if len(results) == 1 else f"{path}#{place}"
        try:
            _read_result(fields, stated, name, reading)
        except InputError as error:
            reading.blame(error, place)
    reading.raise_if_any(path, len(results))


def _read_result(fields: Mapping[str, object], stated: Stated, name: str, reading: _Reading) -> None:
    kind = format_of(fields)
    if not kind:
        raise InputError(_unknown())
    result = Result(fields)
    found = FORMATS[kind].read(result)
    result.faults.raise_if_any()
    driven = "batch_or_concurrency" not in {**found.labels, **stated.labels} and found.batch_kind == "concurrency"
    refused = found.refused or (_NOT_AT_ONCE,) * driven
    if refused:
        reading.refused[name] = refused
    else:
        reading.add(rows_of(found, stated, name, f"{name}: {kind} {result.text('date')}".rstrip()))


_NOT_AT_ONCE = (
    "how many requests ran at once is not known: neither a limit of concurrency nor latencies are in the file; "
    f"give it with {option('batch_or_concurrency')}"
)


def _unknown() -> str:
    return (
        f"its format is not known: results of {', '.join(FORMATS)}, and CSV or Parquet files with the columns of "
        "measured rows can be read"
    )
