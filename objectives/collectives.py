"""Collectives of tensor parallelism."""

from __future__ import annotations

from kvwall.objectives.kv import BITS_PER_BYTE
from kvwall.spaces.design import ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count


def all_reduce_bytes(model: ModelColumns, activation_bits: Bits, devices: Count) -> Bytes:
    """Bytes one device sends per step and sequence: every layer's all-reduces of the hidden state, ring algorithm."""
    reduces = model.layers * model.reduces_per_layer
    return reduces * 2 * (devices - 1) / devices * model.hidden * activation_bits / BITS_PER_BYTE
