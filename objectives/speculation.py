"""Speculative decoding: a step verifies drafted tokens, and yields one more than it accepts."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.spaces.design import Speculation
from kvwall.spaces.units import Count


def scored_tokens(speculation: Speculation) -> Count:
    """Tokens per sequence that a step scores: the drafted ones and the next."""
    return 1 + speculation.draft_tokens


def tokens_per_step(speculation: Speculation) -> Count:
    """Tokens a step yields per sequence: the sum of a^i for i = 0..k, a token counts if all before it are accepted.

    >>> [float(tokens_per_step(Speculation(2.0, rate))) for rate in (0.0, 0.5, 1.0)]
    [1.0, 1.75, 3.0]
    """
    drafted, rate = speculation.draft_tokens, speculation.acceptance_rate
    some = jnp.logical_and(drafted > 0, jnp.logical_and(rate > 0, rate < 1))
    log_rate = jnp.log(jnp.where(some, rate, 0.5))  # a stand-in where the closed form is 0/0
    several = jnp.expm1((drafted + 1) * log_rate) / jnp.expm1(log_rate)
    return jnp.where(some, several, jnp.where(rate > 0, 1 + drafted, 1.0))
