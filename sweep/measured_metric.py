"""A time per decode step in a measured row's own metric and unit, and how fast the row was beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvwall.sweep.measured import UsableRow

_MS = 1e3

_OF_STEP: Mapping[str, Callable[[UsableRow, float], float]] = {
    "tpot_ms": lambda _, step: step * _MS,
    "itl_ms": lambda _, step: step * _MS,
    # the first token comes out of prefill, which takes time too
    "e2e_latency_ms": lambda usable, step: step * _MS * max((usable.row.output_tokens or 0) - 1, 0),
    "decode_tokens_per_s_per_user": lambda _, step: 1 / step,
    "output_tokens_per_s_total": lambda usable, step: _replica_rate(usable, step) * usable.replicas,
    "output_tokens_per_s_per_gpu": lambda usable, step: _replica_rate(usable, step) / usable.replica_devices,
}

OF_ONE_STEP = ("tpot_ms", "itl_ms", "decode_tokens_per_s_per_user")
"""Metrics that a smaller batch than the stated one improves; the others it makes worse."""


def _replica_rate(usable: UsableRow, step: float) -> float:
    return int(usable.axes["batch"]) / step


def in_row_units(usable: UsableRow, step: float) -> float:
    """What the row would say if every decode step of its replica took `step` seconds."""
    return _OF_STEP[usable.row.metric](usable, step)


def speed_ratio(usable: UsableRow, step: float) -> float:
    """Measured speed over the speed of steps that take `step` seconds; above 1 the row is faster."""
    predicted = in_row_units(usable, step)
    return predicted / usable.row.value if usable.row.unit == "ms" else usable.row.value / predicted
