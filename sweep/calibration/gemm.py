"""Matrix products of decoding: bytes and work of a row, and the tables of what their kernels reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from kvwall.objectives.kernels import gemm_time
from kvwall.spaces.kernel_record import KernelTables
from kvwall.sweep.calibration.cells import FIXED, SHARE, Fitted, Floats, fit_cell
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.effects import CellNumber, fit_effects
from kvwall.sweep.calibration.kernel_rows import GemmRow


@dataclass(frozen=True)
class WeightFormat:
    """How a matrix is stored and multiplied."""

    weight_bytes: float
    """Of an element, scales included."""
    input_bytes: float
    """Of an element of the vectors that come in."""
    arithmetic_bits: int


FORMATS: Final = {
    "w16": WeightFormat(2.0, 2.0, 16),
    "fp8": WeightFormat(1.0, 1.0, 8),
    "fp8_block": WeightFormat(1.0 + 4 / 128**2, 1.0, 8),
    "nvfp4": WeightFormat(0.5 + 1 / 16, 0.5 + 1 / 16, 4),
    "w8a16": WeightFormat(1.0, 2.0, 16),
    "w4a16": WeightFormat(0.5, 2.0, 16),
}
_OUTPUT_BYTES: Final = 2.0
_FEWEST: Final = 10
"""Rows of a cell that is fitted."""


def weight_bytes(row: GemmRow) -> float:
    """Bytes of the matrix."""
    return row.outputs * row.inputs * FORMATS[row.weight_format].weight_bytes


def moved_bytes(row: GemmRow) -> float:
    """Bytes of the matrix and of what goes in and out."""
    across = row.inputs * FORMATS[row.weight_format].input_bytes + row.outputs * _OUTPUT_BYTES
    return weight_bytes(row) + row.tokens * across


def product_flop(row: GemmRow) -> float:
    """Work of the product."""
    return 2.0 * row.tokens * row.outputs * row.inputs


@dataclass(frozen=True)
class GemmCell:
    """The rows of one cell, and what was fitted to them."""

    name: str
    rows: tuple[GemmRow, ...]
    fitted: Fitted


def cell_name(row: GemmRow) -> str:
    """Of a row's cell."""
    return f"{row.hardware}/{row.engine}/{row.weight_format}"


def gemm_cells(rows: Sequence[GemmRow]) -> list[GemmCell]:
    """Each cell of enough rows, fitted."""
    by_cell = ((name, tuple(some)) for name, some in groupby(sorted(rows, key=cell_name), key=cell_name))
    return [_fit(name, some) for name, some in by_cell if len(some) >= _FEWEST]


def _fit(name: str, rows: tuple[GemmRow, ...]) -> GemmCell:
    chip = chip_of(rows[0].hardware)
    peak = chip.peak(FORMATS[rows[0].weight_format].arithmetic_bits)
    moved: Any = np.array([moved_bytes(row) for row in rows])
    flop: Any = np.array([product_flop(row) for row in rows])

    def law(point: Sequence[float]) -> Floats:
        share, fixed, compute = point
        return np.asarray(gemm_time(moved, flop, share * chip.memory_bandwidth, compute * peak, fixed))

    return GemmCell(name, rows, fit_cell(law, np.array([row.seconds for row in rows]), (SHARE, FIXED, SHARE)))


def gemm_tables(cells: Sequence[GemmCell]) -> KernelTables:
    """The tables of these cells."""
    bandwidth, fixed, compute = ([_number(cell, place) for cell in cells] for place in range(3))
    misses = np.concatenate([cell.fitted.misses for cell in cells])
    return KernelTables(
        bandwidth=fit_effects(bandwidth, "1"),
        fixed=fit_effects(fixed, "s"),
        compute=fit_effects(compute, "1"),
        row_spread=float(np.sqrt(np.mean(misses**2))),
    )


def _number(cell: GemmCell, place: int) -> CellNumber:
    row = cell.rows[0]
    return CellNumber(
        chip=row.hardware,
        architecture=chip_of(row.hardware).architecture,
        engine=row.engine,
        format=row.weight_format,
        value=float(cell.fitted.value[place]),
        sd=float(cell.fitted.sd[place]),
        rows=len(cell.rows),
        sources=tuple(sorted({each.source.split()[0] for each in cell.rows})),
    )
