"""Weights: bytes streamed per step and bytes stored, on one device."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE, device_heads
from kvwall.spaces.design import Matrices, ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count, Ratio


def matrix_bits(matrices: Matrices, weight_bits: Bits) -> Bits:
    """Stored bits per weight of a class: as asked, or the checkpoint's own where `weight_bits` is 0."""
    return jnp.where(weight_bits > 0, weight_bits, matrices.native_bits)


def format_bits(matrices: Matrices, weight_bits: Bits) -> Bits:
    """Bits per weight that the multiplier sees, without scales."""
    return jnp.where(weight_bits > 0, weight_bits, matrices.native_format_bits)


def key_value_share(model: ModelColumns, devices: Count) -> Ratio:
    """Share of the K and V projections on the fullest device: they follow the KV heads and are replicated with them."""
    held = jnp.sum(model.groups.layers * device_heads(model.groups, devices), axis=0)
    return held / jnp.sum(model.groups.layers * model.groups.kv_heads, axis=0)


def matrix_bytes(model: ModelColumns, weight_bits: Bits, devices: Count) -> Bytes:
    """Bytes of all matrices and vectors that one device streams each step: attention, FFN, head, norms and biases."""
    split = (
        model.query_output.elements * matrix_bits(model.query_output, weight_bits)
        + model.ffn.elements * matrix_bits(model.ffn, weight_bits)
        + model.head.elements * matrix_bits(model.head, weight_bits)
    ) / devices
    key_value = model.key_value.elements * matrix_bits(model.key_value, weight_bits) * key_value_share(model, devices)
    return (split + key_value + model.vectors * model.vector_bits) / BITS_PER_BYTE


def embedding_row_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes one sequence reads from the input tables per step, on one device: a row, not the table."""
    return model.embedding_row * model.embedding_bits / BITS_PER_BYTE / devices


def embedding_table_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes of the input tables on one device; a tied table is stored as the head."""
    return model.embedding_table * model.embedding_bits / BITS_PER_BYTE / devices
