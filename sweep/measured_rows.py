"""Rows of published decode speeds, as their sources state them; `python -m kvwall.sweep.measured_rows ROWS.csv`.

The command keeps the rows that state batch, parallelism and precision (`use = calibrate`) as `ROWS`.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

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
_KEPT = "calibrate"


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


def read_rows(path: Path = ROWS) -> tuple[MeasuredRow, ...]:
    """The rows of a Parquet file or a CSV file. Raises InputError naming every missing column."""
    table = read_table(path)
    return tuple(MeasuredRow(**cells) for cells in table.select(COLUMNS).to_pylist())


def read_table(path: Path) -> pa.Table:
    """The rows with the types of MeasuredRow; of a CSV file every other column stays text."""
    try:
        if path.suffix == ".parquet":
            return _with_columns(pyarrow.parquet.read_table(path), path)
        return _typed(_with_columns(_read_text(path), path))
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except pa.ArrowInvalid as fault:
        raise InputError(f"{path}: {fault}: give the columns {', '.join(COLUMNS)}") from fault


def _read_text(path: Path) -> pa.Table:
    with path.open(encoding="utf-8", newline="") as lines:
        names = next(csv.reader(lines), [])
    text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return pyarrow.csv.read_csv(path, convert_options=text)


def _with_columns(table: pa.Table, path: Path) -> pa.Table:
    faults = Faults()
    for name in COLUMNS:
        if name not in table.column_names:
            faults.add(f"{path}: column {name} is missing: rows have the columns {', '.join(COLUMNS)}")
    faults.raise_if_any()
    return table


def _typed(table: pa.Table) -> pa.Table:
    """Counts and values as numbers; a count that is no plain number, as in "8(?)", is one the source does not state."""
    for name in _COUNTS:
        text = table[name]
        stated = pa.compute.match_substring_regex(text, r"^\d+$")
        number = pa.compute.cast(pa.compute.if_else(stated, text, None), pa.int32())
        table = table.set_column(table.column_names.index(name), name, number)
    return table.set_column(table.column_names.index("value"), "value", pa.compute.cast(table["value"], pa.float64()))


def keep_calibration_rows(rows: Path, kept: Path = ROWS) -> int:
    """Write the rows of `use = calibrate` of a CSV file as Parquet; how many there are."""
    table = read_table(rows)
    if "use" not in table.column_names:
        raise InputError(f"{rows}: column use is missing: it says what a row is good for")
    table = table.filter(pa.compute.equal(table["use"], _KEPT)).select(COLUMNS)
    pyarrow.parquet.write_table(table, kept, compression="zstd", compression_level=19, store_schema=False)
    return int(table.num_rows)


def main() -> None:
    """Rewrite the shipped rows from a collection of published results."""
    parser = argparse.ArgumentParser(description=f"Keep the rows of a CSV file that say {_KEPT}.")
    parser.add_argument("rows", type=Path, help="CSV file with the columns " + ", ".join((*COLUMNS, "use")))
    keep_calibration_rows(parser.parse_args().rows)


if __name__ == "__main__":
    main()
