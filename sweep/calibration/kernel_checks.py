"""Two things that the record of kernels must get right: how time grows with context, and what 8-bit KV gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from kvwall.spaces.kernel_record import KernelRecord
from kvwall.sweep.calibration.kernel_rows import AttentionRow, KVSpeedRow
from kvwall.sweep.calibration.kernel_times import attention_seconds


@dataclass(frozen=True)
class Compared:
    """A number predicted and measured."""

    cell: str
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def slopes(record: KernelRecord, rows: Sequence[AttentionRow], least_bytes: float) -> list[Compared]:
    """Seconds per token of context of one layer, between neighbouring contexts of a shape with at least so much KV."""
    large = sorted((row for row in rows if row.kv_bytes >= least_bytes), key=lambda row: (*_shape(row), row.context))
    return [_slope(record, first, second) for _, some in groupby(large, key=_shape) for first, second in pairwise(some)]


def _shape(row: AttentionRow) -> tuple[Any, ...]:
    return row.hardware, row.engine, row.kernel, row.kv_format, row.batch, row.query_heads, row.kv_heads


def _slope(record: KernelRecord, first: AttentionRow, second: AttentionRow) -> Compared:
    further = second.context - first.context
    predicted = attention_seconds(record, second) - attention_seconds(record, first)
    measured = second.seconds - first.seconds
    return Compared(f"{first.hardware}/{first.engine}/{first.kv_format}", predicted / further, measured / further)


def speed_ups(record: KernelRecord, rows: Sequence[KVSpeedRow], least_bytes: float) -> list[Compared]:
    """What 8-bit KV gains in a call with at least so many bytes of 16-bit KV."""
    found = []
    for row in rows:
        sixteen = attention_call(row)
        if sixteen.kv_bytes >= least_bytes:
            eight = replace(sixteen, kv_format="kv8", seconds=row.seconds_8)
            gain = attention_seconds(record, sixteen) / attention_seconds(record, eight)
            found.append(Compared(f"{row.hardware}/{row.engine}", gain, row.speed_up))
    return found


def attention_call(row: KVSpeedRow) -> AttentionRow:
    """The call of a pair that reads 16-bit KV."""
    return AttentionRow(
        id=row.id,
        hardware=row.hardware,
        engine=row.engine,
        engine_version="",
        kernel=row.kernel,
        kv_format="kv16",
        batch=row.batch,
        context=row.context,
        query_heads=row.query_heads,
        kv_heads=row.kv_heads,
        head_dim=row.head_dim,
        seconds=row.seconds_16,
        source=row.source,
    )
