"""The memory wall: which regime a step is in, and the context at which KV traffic passes weight traffic."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.kv import context_of_kept, kept_of_bytes
from kvwall.spaces.units import Bytes, BytesPerToken, Code, Count, Flag, Ratio, Tokens

PHASES = ("weight", "kv", "capacity")
REGIMES = ("weight", "kv", "compute", "scale_up", "tier_link", "overhead")


def phase(weights: Bytes, kv_read: Bytes, margin: Bytes) -> Code:
    """Index into PHASES: what the step reads most, or that it does not fit."""
    return jnp.where(margin < 0, 2, jnp.where(kv_read > weights, 1, 0))


def regime(bound_by: Code, weights: Bytes, kv_in_hbm: Bytes) -> Code:
    """Index into REGIMES: the larger HBM share where HBM binds (code 0), else the binding resource."""
    return jnp.where(bound_by == 0, jnp.where(kv_in_hbm > weights, 1, 0), bound_by + 1)


def crossover_context(
    weights: Bytes,
    batch: Count,
    token: BytesPerToken,
    full_token: BytesPerToken,
    window: Tokens,
    retention: Ratio,
    pinned: Tokens,
) -> Tokens:
    """Context at which a step reads as many KV bytes as weight bytes, in closed form.

    Args:
        weights: bytes of weights one device reads per step.
        batch: sequences.
        token: KV bytes of one kept token outside the residual window, on the same device.
        full_token: the same inside the window.
        window: residual window.
        retention: share of the unpinned tokens kept.
        pinned: sinks and recent tokens.

    The paper's Llama-3-70B: 140 GB of weights, 327,680 bytes a token.

    >>> round(float(crossover_context(140e9, 1.0, 327680.0, 327680.0, 0.0, 1.0, 0.0)), -2)
    427200.0
    """
    return context_of_kept(kept_of_bytes(weights / batch, token, full_token, window), retention, pinned)


def fits(margin: Bytes) -> Flag:
    """Whether the fullest device holds what it must."""
    return margin >= 0
