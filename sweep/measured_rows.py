"""Rows of published decode speeds, as their sources state them; `python -m kvwall.sweep.measured_rows ROWS.csv`.

The command keeps the rows that state batch, parallelism and precision (`use = calibrate`) as `ROWS`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from kvwall.spaces.errors import Faults, InputError

ROWS = Path(__file__).resolve().parent.parent / "spaces" / "catalog" / "measured" / "decode.parquet"

METRIC_UNITS: Mapping[str, str] = {
    "tpot_ms": "ms",
    "itl_ms": "ms",
    "e2e_latency_ms": "ms",
    "decode_tokens_per_s_per_user": "tok/s",
    "output_tokens_per_s_total": "tok/s",
    "output_tokens_per_s_per_gpu": "tok/s/gpu",
}
"""What a row may have measured, and the unit that goes with it."""

_COUNTS = ("n_devices", "tp", "pp", "ep", "batch_or_concurrency", "input_tokens", "output_tokens")
KEPT: Final = "calibrate"
"""What the column `use` says of a row that states everything a prediction needs."""


@dataclass(frozen=True)
class MeasuredRow:
    """One measured number. Names are labels of its source, not of the catalogue; None where it states nothing."""

    id: str
    model: str
    hardware: str
    n_devices: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    weight_precision: str
    kv_precision: str
    framework: str
    framework_version: str
    batch_or_concurrency: int | None
    batch_kind: str
    input_tokens: int | None
    output_tokens: int | None
    metric: str
    value: float
    unit: str
    source: str
    notes: str


COLUMNS = tuple(field.name for field in fields(MeasuredRow))
REQUIRED = (
    "id",
    "model",
    "hardware",
    "batch_or_concurrency",
    "input_tokens",
    "output_tokens",
    "metric",
    "value",
    "unit",
)
"""Columns that a file must have; the others may be absent, which is as good as blank."""


def read_rows(path: Path = ROWS) -> tuple[MeasuredRow, ...]:
    """The rows of a Parquet file or a CSV file. Raises InputError naming every missing column."""
    return rows_of_table(read_table(path))


def rows_of_table(table: pa.Table) -> tuple[MeasuredRow, ...]:
    """The rows of a table that `read_table` returned."""
    return tuple(MeasuredRow(**cells) for cells in table.select(COLUMNS).to_pylist())


def read_table(path: Path) -> pa.Table:
    """The rows with the types of MeasuredRow; of a CSV file every other column stays text."""
    try:
        if is_parquet(path):
            return _typed(_with_columns(pyarrow.parquet.read_table(path), path), path)
        return _typed(_with_columns(_read_text(path), path), path)
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except UnicodeDecodeError as fault:
        raise InputError(f"{path}: is no UTF-8 text: save it as UTF-8") from fault
    except (csv.Error, pa.ArrowException) as fault:
        raise InputError(f"{path}: {fault}: give the columns {', '.join(COLUMNS)}") from fault


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does. Raises OSError."""
    with path.open("rb") as content:
        return content.read(4) == b"PAR1"


def _read_text(path: Path) -> pa.Table:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        names = next(csv.reader(lines), [])
    text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    quoted = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, convert_options=text, parse_options=quoted)


def _with_columns(table: pa.Table, path: Path) -> pa.Table:
    """The table with every column of MeasuredRow, optional ones blank."""
    faults = Faults()
    for name in COLUMNS:
        found = table.column_names.count(name)
        if not found and name in REQUIRED:
            faults.add(f"{path}: column {name} is missing: rows have the columns {', '.join(COLUMNS)}")
        elif not found:
            table = table.append_column(name, pa.repeat(pa.scalar(""), table.num_rows))
        elif found > 1:
            faults.add(f"{path}: column {name} is there {found} times: keep one")
    faults.raise_if_any()
    return table


def _typed(table: pa.Table, path: Path) -> pa.Table:
    """Counts and values as numbers; a count that is no plain number, as in "8(?)", is one the source does not state."""
    for name in COLUMNS:
        column = table[name]
        if name == "value":
            column = pa.compute.cast(column, pa.float64())
        elif name in _COUNTS:
            column = pa.compute.cast(_counts(column), pa.int32())
        else:
            column = pa.compute.fill_null(pa.compute.cast(column, pa.string()), "")
        table = table.set_column(table.column_names.index(name), name, column)
    if table["value"].null_count:
        raise InputError(f"{path}: column value is blank in {table['value'].null_count} rows: give a number in each")
    return table


def _counts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        return column
    stated = pa.compute.match_substring_regex(column, r"^\d+$")
    return pa.compute.if_else(stated, column, None)


def keep_calibration_rows(rows: Path, kept: Path = ROWS) -> int:
    """Write the rows of `use = calibrate` of a CSV file as Parquet; how many there are."""
    table = read_table(rows)
    if "use" not in table.column_names:
        raise InputError(f"{rows}: column use is missing: it says what a row is good for")
    table = table.filter(pa.compute.equal(table["use"], KEPT)).select(COLUMNS)
    pyarrow.parquet.write_table(table, kept, compression="zstd", compression_level=19, store_schema=False)
    return int(table.num_rows)


def main() -> None:
    """Rewrite the shipped rows from a collection of published results."""
    parser = argparse.ArgumentParser(description=f"Keep the rows of a CSV file that say {KEPT}.")
    parser.add_argument("rows", type=Path, help="CSV file with the columns " + ", ".join((*COLUMNS, "use")))
    keep_calibration_rows(parser.parse_args().rows)


if __name__ == "__main__":
    main()
