"""Rows of published decode speeds, as their sources state them; `python -m kvwall.sweep.measured_rows ROWS.csv`.

The command keeps the rows that state batch, parallelism and precision (`use = calibrate`) as `ROWS`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.row_cells import LEAST, VALUE, typed
from kvwall.sweep.table_lines import Line, read_lines

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
_USES: Final = ("use", "use_reason")


@dataclass(frozen=True)
class TableRow:
    """A row of a file, or why it is none."""

    name: str
    """Its id, or its place where it has none."""
    place: int
    """As `kvwall.sweep.table_lines.Line` counts."""
    row: MeasuredRow | None
    reasons: tuple[str, ...]
    """Why it cannot be read; empty where it can."""
    use: str
    """What the file says that it is good for; '' where it does not say."""
    use_reason: str


def read_rows(path: Path = ROWS) -> tuple[MeasuredRow, ...]:
    """The rows of a Parquet or CSV file. Raises InputError naming every missing column, or every row without sense."""
    return _all_read(path, read_table(path))


def read_table(path: Path) -> tuple[TableRow, ...]:
    """Every row of a Parquet or CSV file, readable or not.

    A count that is no plain number, as in "8(?)", is one the source does not state. Raises InputError where the file
    cannot be read, or lacks columns.
    """
    return tuple(_table_row(line, path) for line in read_lines(path, (*COLUMNS, *_USES), REQUIRED))


def _table_row(line: Line, path: Path) -> TableRow:
    faults = Faults()
    if line.reason:
        faults.add(line.reason)
    cells = typed(line.cells, Faults() if line.reason else faults)
    use, use_reason = (cells.pop(name) for name in _USES)
    if not cells["id"].strip():
        cells["id"] = f"{path}, line {line.place}"
    reasons = faults.found
    row = None if reasons else MeasuredRow(**cells)
    return TableRow(cells["id"], line.place, row, reasons, use, use_reason)


def _all_read(path: Path, lines: Sequence[TableRow]) -> tuple[MeasuredRow, ...]:
    faults = [f"{path}: row {each.name}: {reason}" for each in lines for reason in each.reasons]
    if faults:
        raise InputError(faults)
    return tuple(each.row for each in lines if each.row is not None)


def keep_calibration_rows(rows: Path, kept: Path = ROWS) -> int:
    """Write the rows of `use = calibrate` of a CSV file as Parquet; how many there are."""
    lines = [each for each in read_table(rows) if each.use == KEPT]
    if not lines:
        raise InputError(f"{rows}: no row has {KEPT} in a column use, which says what a row is good for")
    found = [asdict(row) for row in _all_read(rows, lines)]
    types = {VALUE: pa.float64(), **dict.fromkeys(LEAST, pa.int32())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
    table = pa.Table.from_pylist(found, schema=schema)
    pyarrow.parquet.write_table(table, kept, compression="zstd", compression_level=19, store_schema=False)
    return len(found)


def main() -> None:
    """Rewrite the shipped rows from a collection of published results."""
    parser = argparse.ArgumentParser(description=f"Keep the rows of a CSV file that say {KEPT}.")
    parser.add_argument("rows", type=Path, help="CSV file with the columns " + ", ".join((*COLUMNS, "use")))
    keep_calibration_rows(parser.parse_args().rows)


if __name__ == "__main__":
    main()
