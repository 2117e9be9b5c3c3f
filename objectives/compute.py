"""Arithmetic: FLOP per step and the formats that do them."""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp

from kvwall.objectives.weights import format_bits
from kvwall.spaces.design import Experts, Groups, ModelColumns
from kvwall.spaces.units import Bits, Count, Flag, Flop

FLOP_PER_MULTIPLY_ADD = 2.0

ByFormat: TypeAlias = tuple[Flop, Flop, Flop]
"""FLOP of the 16-bit, 8-bit and 4-bit units."""


def uses_16_bit(operand_bits: Bits, activation_bits: Bits) -> Flag:
    """Whether the wider operand needs the 16-bit units: W4A16 does."""
    return jnp.logical_or(activation_bits > 8, operand_bits > 8)


def uses_4_bit(operand_bits: Bits, activation_bits: Bits) -> Flag:
    """Whether both operands fit the 4-bit units."""
    return jnp.logical_and(activation_bits <= 4, operand_bits <= 4)


def multiplied_weights(model: ModelColumns, weight_bits: Bits) -> tuple[tuple[Count, Bits], ...]:
    """Per class of matrices: weights one token is multiplied by, and their bits; routers keep the checkpoint's.

    In order: the two of attention, the FFN, routers, met experts; the LM head last.
    """
    asked = (model.query_output, model.key_value, model.ffn)
    return (
        *((matrices.elements, format_bits(matrices, weight_bits)) for matrices in asked),
        (model.router.elements, model.router.native_format_bits),
        (met_expert_weights(model.experts), format_bits(model.experts, weight_bits)),
        (model.head.elements, format_bits(model.head, weight_bits)),
    )


def met_expert_weights(experts: Experts) -> Count:
    """Weights of routed experts that one token is multiplied by."""
    return experts.layers * experts.active * experts.elements


def ffn_format_bits(model: ModelColumns, weight_bits: Bits) -> Bits:
    """Bits of the FFN's weights: the dense ones, or the experts where a token meets more of those."""
    routed = met_expert_weights(model.experts) > model.ffn.elements
    return jnp.where(routed, format_bits(model.experts, weight_bits), format_bits(model.ffn, weight_bits))


def attention_flop(groups: Groups, chosen: Count, seen: Count) -> Flop:
    """FLOP of one token's attention: scores and weighted sum over `chosen` entries, the index over all `seen`."""
    return _pairs_flop(groups, groups.score_dim + groups.mix_dim, chosen, seen)


def prefill_attention_flop(groups: Groups, chosen: Count, seen: Count) -> Flop:
    """FLOP of attention in prefill: `chosen` pairs of a token and an entry, the index over all `seen` pairs."""
    return _pairs_flop(groups, groups.prefill_dim, chosen, seen)


def _pairs_flop(groups: Groups, width: Count, chosen: Count, seen: Count) -> Flop:
    attended = groups.query_heads * width * chosen
    indexed = groups.index_heads * groups.index_dim * seen
    return FLOP_PER_MULTIPLY_ADD * jnp.sum(groups.layers * groups.readers * (attended + indexed), axis=0)


def layers_flop(
    model: ModelColumns, weight_bits: Bits, activation_bits: Bits, tokens: tuple[Count, Count, Count]
) -> ByFormat:
    """FLOP of the decoder layers' matrices on one device, by format.

    Args:
        model: the model.
        weight_bits: bits per weight asked for; 0 = the checkpoint's own.
        activation_bits: bits of activations.
        tokens: that a device multiplies by attention's matrices, by the other dense ones, and by experts, each over
            the number of devices that split them.
    """
    attention, dense, routed = tokens
    each = (attention, attention, dense, dense, routed)
    classes = multiplied_weights(model, weight_bits)[:-1]
    return added(
        *(
            split_by_format(FLOP_PER_MULTIPLY_ADD * elements * count, bits, activation_bits)
            for (elements, bits), count in zip(classes, each, strict=True)
        )
    )


def head_flop(model: ModelColumns, weight_bits: Bits, activation_bits: Bits, tokens: Count) -> ByFormat:
    """FLOP of the LM head for so many tokens, by format."""
    elements, bits = multiplied_weights(model, weight_bits)[-1]
    return split_by_format(FLOP_PER_MULTIPLY_ADD * elements * tokens, bits, activation_bits)


def added(*parts: ByFormat) -> ByFormat:
    """The sum, format by format.

    >>> added((1.0, 0.0, 0.0), (2.0, 3.0, 0.0))
    (3.0, 3.0, 0.0)
    """
    sixteen, eight, four = (sum(flop[1:], start=flop[0]) for flop in zip(*parts, strict=True))
    return sixteen, eight, four


def times(factor: Count, flop: ByFormat) -> ByFormat:
    """So many times the FLOP.

    >>> times(2.0, (1.0, 2.0, 3.0))
    (2.0, 4.0, 6.0)
    """
    sixteen, eight, four = flop
    return factor * sixteen, factor * eight, factor * four


def split_by_format(flop: Flop, operand_bits: Bits, activation_bits: Bits) -> ByFormat:
    """The FLOP put into the slot of the format that does them: (16-bit, 8-bit, 4-bit)."""
    sixteen = uses_16_bit(operand_bits, activation_bits)
    four = uses_4_bit(operand_bits, activation_bits)
    eight = jnp.logical_not(jnp.logical_or(sixteen, four))
    return jnp.where(sixteen, flop, 0.0), jnp.where(eight, flop, 0.0), jnp.where(four, flop, 0.0)


def attention_operand_bits(key_bits: Bits, value_bits: Bits) -> Bits:
    """The wider of K and V decides the format of attention."""
    return jnp.maximum(key_bits, value_bits)
