"""The time that the record of kernels gives for the call of a row."""

from __future__ import annotations

import math

from kvwall.objectives.kernels import all_reduce_time, attention_time, gemm_time
from kvwall.spaces.kernel_record import EffectTable, KernelRecord
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.gemm import FORMATS, moved_bytes, product_flop
from kvwall.sweep.calibration.kernel_rows import AllReduceRow, AttentionRow, GemmRow


def attention_seconds(record: KernelRecord, row: AttentionRow) -> float:
    """Of one layer's decode attention; arithmetic limits attention on latents only."""
    chip, tables = chip_of(row.hardware), record.attention
    key = (row.hardware, row.engine, row.kv_format)
    bits = 8 if row.eight_bit else 16
    peak = _share(tables.compute, *key) * chip.peak(bits) if row.latent else math.inf
    bandwidth = tables.bandwidth.reached(*key).value * chip.memory_bandwidth
    token = record.undivided.get("/".join(key), 0.0)
    fixed = tables.fixed.reached(*key).value
    return float(attention_time(row.kv_bytes, row.flop, bandwidth, peak, fixed, token * row.context))


def gemm_seconds(record: KernelRecord, row: GemmRow) -> float:
    """Of one product."""
    chip, tables = chip_of(row.hardware), record.gemm
    key = (row.hardware, row.engine, row.weight_format)
    peak = _share(tables.compute, *key) * chip.peak(FORMATS[row.weight_format].arithmetic_bits)
    bandwidth = tables.bandwidth.reached(*key).value * chip.memory_bandwidth
    return float(gemm_time(moved_bytes(row), product_flop(row), bandwidth, peak, tables.fixed.reached(*key).value))


def all_reduce_seconds(record: KernelRecord, row: AllReduceRow, switched: bool) -> float:
    """Of one all-reduce, over a fabric of the chips' own or over the host's bus."""
    tables = record.all_reduce if switched else record.all_reduce_pcie
    key = (row.hardware, row.engine, str(row.devices))
    link = tables.bandwidth.reached(*key).value * chip_of(row.hardware).link_bandwidth
    return float(all_reduce_time(row.message_bytes, row.devices, link, tables.fixed.reached(*key).value))


def _share(table: EffectTable | None, chip: str, engine: str, format: str) -> float:
    return table.reached(chip, engine, format).value if table else 1.0
