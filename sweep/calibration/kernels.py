"""Fits what kernels reach to the stored rows; `python -m kvwall.sweep.calibration.kernels` rewrites the record.

The rows are in `catalog/measured/`: the same rows and date give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kvwall.spaces.kernel_record import RECORD, KernelRecord, KernelTables, load_kernel_record
from kvwall.sweep.calibration.allreduce import AllReduceCell, all_reduce_cells, all_reduce_tables
from kvwall.sweep.calibration.attention import (
    ALONE,
    HOST_BOUND,
    AttentionCell,
    attention_cells,
    attention_tables,
    seconds_per_token,
)
from kvwall.sweep.calibration.effects import mapped
from kvwall.sweep.calibration.gemm import GemmCell, gemm_cells, gemm_tables
from kvwall.sweep.calibration.kernel_rows import AllReduceRow, AttentionRow, GemmRow, read_kernel_rows

VERSION: Final = "1"
_FIRST_FIT: Final = "2026-11-29"


@dataclass(frozen=True)
class FittedCells:
    """Every cell, fitted by itself: what the record pools."""

    attention: Sequence[AttentionCell]
    gemm: Sequence[GemmCell]
    all_reduce: Sequence[AllReduceCell]


def fitted_cells() -> FittedCells:
    """The cells of the shipped rows."""
    return FittedCells(
        attention_cells(read_kernel_rows(AttentionRow)),
        gemm_cells(read_kernel_rows(GemmRow)),
        all_reduce_cells(read_kernel_rows(AllReduceRow)),
    )


def fit_kernels(cells: FittedCells, fitted: str) -> KernelRecord:
    """The record of these cells; `fitted` is the date it carries."""
    return KernelRecord(
        version=VERSION,
        fitted=fitted,
        attention=attention_tables(cells.attention),
        undivided=seconds_per_token(cells.attention),
        gemm=gemm_tables(cells.gemm),
        all_reduce=all_reduce_tables([cell for cell in cells.all_reduce if cell.switched]),
        all_reduce_pcie=all_reduce_tables([cell for cell in cells.all_reduce if not cell.switched]),
        excluded=dict(sorted(({**HOST_BOUND, **ALONE}).items())),
    )


def rounded(record: KernelRecord) -> KernelRecord:
    """The record with four significant digits, as the file holds it."""
    return replace(
        record,
        attention=_tables(record.attention),
        undivided={cell: _round(seconds) for cell, seconds in record.undivided.items()},
        gemm=_tables(record.gemm),
        all_reduce=_tables(record.all_reduce),
        all_reduce_pcie=_tables(record.all_reduce_pcie),
    )


def _tables(tables: KernelTables) -> KernelTables:
    return replace(
        tables,
        bandwidth=mapped(tables.bandwidth, _round),
        fixed=mapped(tables.fixed, _round),
        compute=mapped(tables.compute, _round) if tables.compute else None,
        row_spread=_round(tables.row_spread),
    )


def _round(number: float) -> float:
    return float(f"{number:.4g}")


def record_text(record: KernelRecord) -> str:
    """The record as the file holds it: an effect on each line."""
    return "".join(_lines(asdict(rounded(record)), "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or "sd" in value:
        yield json.dumps(value)
        return
    inner = indent + " "
    yield "{"
    for place, (key, each) in enumerate(value.items()):
        yield ("," if place else "") + "\n" + inner + json.dumps(key) + ": "
        yield from _lines(each, inner)
    yield "\n" + indent + "}" if value else "}"


def main() -> None:
    """Rewrite the shipped record from the stored rows; keeps the record's date unless another is given."""
    parser = argparse.ArgumentParser(description="Refit what kernels reach and rewrite the record.")
    parser.add_argument("--date", help="date of the fit, YYYY-MM-DD (default: the date of the present record)")
    fitted = parser.parse_args().date or (load_kernel_record().fitted if RECORD.exists() else _FIRST_FIT)
    RECORD.write_text(record_text(fit_kernels(fitted_cells(), fitted)), encoding="utf-8")


if __name__ == "__main__":
    main()
