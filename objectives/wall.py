"""The memory wall: which regime a step is in, and the context at which KV traffic passes weight traffic."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives import inverse
from kvwall.objectives.kv import Cache
from kvwall.spaces.units import Bytes, Code, Count, Flag, Tokens

PHASES = ("weight", "kv", "capacity")
REGIMES = ("weight", "kv", "compute", "scale_up", "tier_link", "overhead")


def phase(weights: Bytes, kv_read: Bytes, margin: Bytes) -> Code:
    """Index into PHASES: what the step reads most, or that it does not fit."""
    return jnp.where(margin < 0, 2, jnp.where(kv_read > weights, 1, 0))


def regime(bound_by: Code, weights: Bytes, kv_in_hbm: Bytes) -> Code:
    """Index into REGIMES: the larger HBM share where HBM binds (code 0), else the binding resource."""
    return jnp.where(bound_by == 0, jnp.where(kv_in_hbm > weights, 1, 0), bound_by + 1)


def crossover_context(weights: Bytes, sequences: Count, cache: Cache, own: Tokens) -> Tokens:
    """Context at which a step reads as many KV bytes as weight bytes.

    Infinite where KV never reads so much (windows, recurrent states), 0 where the state alone does.

    Args:
        weights: bytes of weights one device reads per step.
        sequences: that it reads KV of.
        cache: how the same device keeps and reads KV.
        own: tokens at the end of the context that are of no prompt.
    """
    return inverse.context_read_in(weights / sequences, cache, own)


def fits(margin: Bytes) -> Flag:
    """Whether the fullest device holds what it must."""
    return margin >= 0
