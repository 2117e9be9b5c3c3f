"""Weights: bytes streamed per step and bytes stored, on one device."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE, device_heads
from kvwall.spaces.design import Experts, Matrices, ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count, Ratio


def matrix_bits(matrices: Matrices | Experts, weight_bits: Bits) -> Bits:
    """Stored bits per weight of a class: as asked, or the checkpoint's own where `weight_bits` is 0."""
    return jnp.where(weight_bits > 0, weight_bits, matrices.native_bits)


def format_bits(matrices: Matrices | Experts, weight_bits: Bits) -> Bits:
    """Bits per weight that the multiplier sees, without scales."""
    return jnp.where(weight_bits > 0, weight_bits, matrices.native_format_bits)


def key_value_share(model: ModelColumns, devices: Count) -> Ratio:
    """Share of the K and V projections on the fullest device: they follow the KV heads and are replicated with them."""
    grows = model.groups.key_dim > 0  # a recurrent state has no such projections
    held = jnp.sum(jnp.where(grows, model.groups.layers * device_heads(model.groups, devices), 0.0), axis=0)
    heads = jnp.sum(jnp.where(grows, model.groups.layers * model.groups.kv_heads, 0.0), axis=0)
    return jnp.where(heads > 0, held / jnp.where(heads > 0, heads, 1.0), 1.0)


def matrix_bytes(model: ModelColumns, weight_bits: Bits, devices: Count) -> Bytes:
    """Bytes of what one device streams each step whatever the batch: all but the routed experts.

    Attention, FFN, routers, head, norms and biases; routers and vectors are whole on every device.
    """
    split = (
        model.query_output.elements * matrix_bits(model.query_output, weight_bits)
        + model.ffn.elements * matrix_bits(model.ffn, weight_bits)
        + model.head.elements * matrix_bits(model.head, weight_bits)
    ) / devices
    key_value = model.key_value.elements * matrix_bits(model.key_value, weight_bits) * key_value_share(model, devices)
    whole = model.router.elements * model.router.native_bits + model.vectors * model.vector_bits
    return (split + key_value + whole) / BITS_PER_BYTE


def distinct_experts(experts: Experts, tokens: Count) -> Count:
    """Expected distinct experts of a layer that so many tokens meet, routing being uniform.

    >>> one = Experts(1.0, 8.0, 2.0, 1.0, 16.0, 16.0)
    >>> round(float(distinct_experts(one, 1.0)), 4), round(float(distinct_experts(one, 2.0)), 4)
    (2.0, 3.5)
    """
    some_idle = experts.routed > experts.active
    idle = jnp.where(some_idle, 1 - experts.active / experts.routed, 0.5)  # a stand-in with a finite gradient
    met = -jnp.expm1(tokens * jnp.log(idle))  # 1 - idle**tokens, which would cancel where few are met
    return experts.routed * jnp.where(some_idle, met, 1.0)


def expert_bytes(experts: Experts, weight_bits: Bits, each_layer: Count, devices: Count) -> Bytes:
    """Bytes of `each_layer` routed experts in every expert layer, on one of the devices that split them."""
    return experts.layers * each_layer * experts.elements * matrix_bits(experts, weight_bits) / BITS_PER_BYTE / devices


def embedding_row_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes one sequence reads from the input tables per step, on one device: a row, not the table."""
    return model.embedding_row * model.embedding_bits / BITS_PER_BYTE / devices


def embedding_table_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes of the input tables on one device; a tied table is stored as the head."""
    return model.embedding_table * model.embedding_bits / BITS_PER_BYTE / devices
