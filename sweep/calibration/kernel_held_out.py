"""How well the record of kernels does on a chip, or an engine, whose rows it has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from kvwall.spaces.kernel_record import EffectTable
from kvwall.sweep.calibration.allreduce import AllReduceCell
from kvwall.sweep.calibration.attention import ALONE, AttentionCell
from kvwall.sweep.calibration.gemm import GemmCell
from kvwall.sweep.calibration.kernel_checks import Compared
from kvwall.sweep.calibration.kernel_import import LARGE
from kvwall.sweep.calibration.kernel_times import all_reduce_seconds, attention_seconds, gemm_seconds
from kvwall.sweep.calibration.kernels import FittedCells, fit_kernels

By: TypeAlias = Literal["hardware", "engine"]
Cell = TypeVar("Cell", AttentionCell, GemmCell, AllReduceCell)

MOST_TOKENS = 256
"""Of products that count: those of decoding."""


@dataclass(frozen=True)
class HeldOut:
    """Times of rows that the fit had not seen. Small calls of attention, and fallback kernels, do not count."""

    group: str
    """The chip or engine left out."""
    attention: tuple[Compared, ...]
    gemm: tuple[Compared, ...]
    all_reduce: tuple[Compared, ...]
    """Over a fabric of the chips' own; over the host's bus every platform is another."""
    surprises: tuple[float, ...]
    """Of each cell of attention and of products: by how many standard deviations ln(share of bandwidth) was off."""


def hold_out(cells: FittedCells, by: By) -> Iterator[HeldOut]:
    """Leave out one chip, or one engine, after the other."""
    rows = [*(cell.rows[0] for cell in cells.attention), *(cell.rows[0] for cell in cells.gemm)]
    for group in sorted({getattr(row, by) for row in rows}):
        yield _without(group, cells, by)


def _without(group: str, cells: FittedCells, by: By) -> HeldOut:
    attention, attention_out = _parted(cells.attention, group, by)
    gemm, gemm_out = _parted(cells.gemm, group, by)
    all_reduce, all_reduce_out = _parted(cells.all_reduce, group, by)
    record = fit_kernels(FittedCells(attention, gemm, all_reduce), "")
    attention_out = [cell for cell in attention_out if cell.name not in ALONE]
    gemm_out = [cell for cell in gemm_out if cell.rows[0].weight_format in record.gemm.bandwidth.mean]
    return HeldOut(
        group,
        tuple(
            Compared(cell.name, attention_seconds(record, row), row.seconds)
            for cell in attention_out
            for row in cell.rows
            if row.kv_bytes >= LARGE
        ),
        tuple(
            Compared(cell.name, gemm_seconds(record, row), row.seconds)
            for cell in gemm_out
            for row in cell.rows
            if row.tokens <= MOST_TOKENS
        ),
        tuple(
            Compared(cell.name, all_reduce_seconds(record, row, switched=True), row.seconds)
            for cell in all_reduce_out
            if cell.switched
            for row in cell.rows
        ),
        (*_surprises(record.attention.bandwidth, attention_out), *_surprises(record.gemm.bandwidth, gemm_out)),
    )


def _parted(cells: Sequence[Cell], group: str, by: By) -> tuple[list[Cell], list[Cell]]:
    """Those that stay, and those of the group."""
    outside = [cell for cell in cells if getattr(cell.rows[0], by) == group]
    return [cell for cell in cells if getattr(cell.rows[0], by) != group], outside


def _surprises(table: EffectTable, cells: Sequence[AttentionCell] | Sequence[GemmCell]) -> Iterator[float]:
    for cell in cells:
        guess = table.reached(*cell.name.split("/"))
        yield (math.log(guess.value) - float(cell.fitted.value[0])) / guess.sd
