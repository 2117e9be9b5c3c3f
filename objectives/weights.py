"""Weights: bytes streamed per step and bytes stored, on one device of a replica that has one pipeline stage."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE, device_heads
from kvwall.objectives.parallel import attention_devices, expert_tensor, stage_devices
from kvwall.objectives.whole import parts_up
from kvwall.spaces.design import Experts, Matrices, ModelColumns, Parallel
from kvwall.spaces.units import Bits, Bytes, Count, Ratio

_EVEN = 1e-6
"""Skew below which routing counts as uniform: its reciprocal stays finite."""


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


@dataclass(frozen=True)
class LayerParts:
    """Bytes of the decoder layers on one device without the routed experts."""

    query_output: Bytes
    key_value: Bytes
    ffn: Bytes
    whole: Bytes
    """Routers, norms, biases, which are not split."""

    @property
    def total(self) -> Bytes:
        """All of them."""
        return self.query_output + self.ffn + self.key_value + self.whole


def layer_parts(model: ModelColumns, weight_bits: Bits, parallel: Parallel) -> LayerParts:
    """Bytes of the decoder layers on one device, by class of matrices.

    Attention is split over the devices that attend to a sequence, the FFN over all of the stage; K and V projections
    follow their heads; routers and vectors are whole everywhere.
    """
    attention = model.query_output.elements * matrix_bits(model.query_output, weight_bits)
    key_value = model.key_value.elements * matrix_bits(model.key_value, weight_bits)
    whole = model.router.elements * model.router.native_bits + model.vectors * model.vector_bits
    return LayerParts(
        query_output=attention / attention_devices(parallel) / BITS_PER_BYTE,
        key_value=key_value * key_value_share(model, parallel.tensor) / BITS_PER_BYTE,
        ffn=model.ffn.elements * matrix_bits(model.ffn, weight_bits) / stage_devices(parallel) / BITS_PER_BYTE,
        whole=whole / BITS_PER_BYTE,
    )


def layer_bytes(model: ModelColumns, weight_bits: Bits, parallel: Parallel) -> Bytes:
    """Bytes of the decoder layers on one device without the routed experts: attention, FFN, routers, norms, biases."""
    return layer_parts(model, weight_bits, parallel).total


def head_bytes(model: ModelColumns, weight_bits: Bits, devices: Count) -> Bytes:
    """Bytes of the LM head on one of the devices that split it."""
    return model.head.elements * matrix_bits(model.head, weight_bits) / BITS_PER_BYTE / devices


def distinct_experts(experts: Experts, tokens: Count, skew: Ratio) -> Count:
    """Expected distinct experts of a layer that so many tokens meet; one token meets its own, all different.

    An expert is missed by the first token with 1 - k/E, and by each of the others with the same chance where routing
    is uniform. Popularity that is gamma-distributed with a squared coefficient of variation `skew` makes the chance
    of being missed by the others (1 + skew*x)^(-1/skew), x = -(tokens - 1)*ln(1 - k/E), which is e^-x at skew 0.

    >>> one = Experts(1.0, 8.0, 2.0, 1.0, 16.0, 16.0)
    >>> [round(float(distinct_experts(one, tokens, 0.0)), 4) for tokens in (1.0, 2.0)]
    [2.0, 3.5]
    >>> round(float(distinct_experts(one, 2.0, 1.0)), 4)
    3.3405
    """
    some_idle = experts.routed > experts.active
    idle = jnp.where(some_idle, 1 - experts.active / experts.routed, 0.5)  # a stand-in with a finite gradient
    others = jnp.maximum(tokens, 1.0) - 1
    uneven = skew > _EVEN
    hazard = -others * jnp.log(idle)
    hazard = jnp.where(uneven, jnp.log1p(skew * hazard) / jnp.where(uneven, skew, 1.0), hazard)
    met = -jnp.expm1(jnp.log(idle) - hazard)  # 1 - idle*exp(-hazard), which would cancel where few are met
    return experts.routed * jnp.where(some_idle, met, 1.0)


def experts_read(experts: Experts, tokens: Count, skew: Ratio, ranks: Count) -> Count:
    """Experts that the busiest rank reads in a layer: its part of the distinct ones, whole experts where those are few.

    >>> one = Experts(1.0, 256.0, 8.0, 1.0, 16.0, 16.0)
    >>> float(experts_read(one, 1.0, 0.0, 64.0))
    1.0
    """
    distinct = distinct_experts(experts, tokens, skew)
    some = jnp.maximum(distinct / ranks, parts_up(experts.active, ranks))
    return jnp.where(ranks > 1, jnp.minimum(some, parts_up(experts.routed, ranks)), distinct)


def expert_bytes(experts: Experts, weight_bits: Bits, each_layer: Count, devices: Count) -> Bytes:
    """Bytes of `each_layer` routed experts in every expert layer, on one of the devices that split each."""
    return experts.layers * each_layer * experts.elements * matrix_bits(experts, weight_bits) / BITS_PER_BYTE / devices


def layers_streamed(model: ModelColumns, weight_bits: Bits, tokens: Count, skew: Ratio, parallel: Parallel) -> Bytes:
    """Bytes of the decoder layers that a device reads for a pass of so many tokens, the mean over the devices."""
    return layer_bytes(model, weight_bits, parallel) + experts_streamed(model, weight_bits, tokens, skew, parallel)


def experts_streamed(model: ModelColumns, weight_bits: Bits, tokens: Count, skew: Ratio, parallel: Parallel) -> Bytes:
    """Bytes of routed experts that a device reads for a pass of so many tokens, the mean over the devices."""
    of_rank = distinct_experts(model.experts, tokens, skew) / parallel.expert
    return expert_bytes(model.experts, weight_bits, of_rank, expert_tensor(parallel))


def experts_of_busiest(model: ModelColumns, weight_bits: Bits, tokens: Count, skew: Ratio, parallel: Parallel) -> Bytes:
    """Bytes of experts by which the busiest expert rank reads more than the mean in such a pass."""
    of_rank = distinct_experts(model.experts, tokens, skew) / parallel.expert
    more = experts_read(model.experts, tokens, skew, parallel.expert) - of_rank
    more = jnp.where(parallel.expert > 1, more, 0.0)
    return expert_bytes(model.experts, weight_bits, more, expert_tensor(parallel))


def layers_stored(model: ModelColumns, weight_bits: Bits, parallel: Parallel) -> Bytes:
    """Bytes of the decoder layers that one device holds, all its experts included."""
    several = parallel.expert > 1
    each_layer = jnp.where(several, parts_up(model.experts.routed, parallel.expert), model.experts.routed)
    experts = expert_bytes(model.experts, weight_bits, each_layer, expert_tensor(parallel))
    return layer_bytes(model, weight_bits, parallel) + experts


def embedding_row_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes one token reads from the input tables, on one device: a row, not the table."""
    return model.embedding_row * model.embedding_bits / BITS_PER_BYTE / devices


def embedding_table_bytes(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes of the input tables on one device; a tied table is stored as the head."""
    return model.embedding_table * model.embedding_bits / BITS_PER_BYTE / devices
