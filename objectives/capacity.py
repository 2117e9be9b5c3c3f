"""Capacity: what one device must hold, the margin left, and the largest batch and context that fit."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE
from kvwall.spaces.design import ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count, Tokens


def activation_bytes(model: ModelColumns, activation_bits: Bits, devices: Count) -> Bytes:
    """Bytes of live activations per sequence on one device: hidden state in and out, and the widest layer's inside."""
    widest = jnp.maximum(2 * model.intermediate, model.vocab)
    return (2 * model.hidden + widest / devices) * activation_bits / BITS_PER_BYTE


def memory_margin(room: Bytes, batch: Count, per_sequence: Bytes) -> Bytes:
    """Bytes left on the fullest device beside weights (`room` is what they leave); negative = does not fit.

    >>> memory_margin(100.0, 3.0, 30.0)
    10.0
    """
    return room - batch * per_sequence


def max_batch(room: Bytes, per_sequence: Bytes) -> Count:
    """The most sequences that fit beside the weights; 0 if none.

    >>> float(max_batch(100.0, 30.0))
    3.0
    """
    return jnp.maximum(jnp.floor(room / per_sequence), 0.0)


def room_per_sequence(room: Bytes, batch: Count, activations: Bytes) -> Bytes:
    """Bytes a device has for one sequence's KV, activations taken off; 0 where nothing is left.

    >>> float(room_per_sequence(100.0, 2.0, 10.0))
    40.0
    """
    return jnp.maximum(room / batch - activations, 0.0)


def max_context(fitting: Tokens, output_tokens: Tokens) -> Tokens:
    """The longest whole context that fits with its output still to come; 0 if none.

    >>> float(max_context(1000.5, 100.0))
    900.0
    """
    return jnp.maximum(jnp.floor(fitting - output_tokens), 0.0)
