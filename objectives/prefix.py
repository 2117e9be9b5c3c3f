"""Prefix sharing: what of a common prefix a store still holds, and what one copy for several sequences saves."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.spaces.units import Count, Ratio, Tokens


def shared_tokens(context: Tokens, own: Tokens, share: Ratio, window: Tokens) -> Tokens:
    """Tokens of the common prefix that a store holds: a share of all but the last `own`; a window moves on.

    >>> float(shared_tokens(1000.0, 0.0, 0.5, 1e20)), float(shared_tokens(1000.0, 200.0, 0.5, 700.0))
    (500.0, 100.0)
    """
    left_behind = jnp.maximum(context - window, 0.0)
    return jnp.maximum(share * jnp.maximum(context - own, 0.0) - left_behind, 0.0)


def copies(group: Count, sequences: Count) -> Count:
    """Sequences that share one copy: the group, or all there are if fewer; 1 where nothing is shared.

    >>> float(copies(8.0, 3.0)), float(copies(8.0, 100.0)), float(copies(1.0, 100.0))
    (3.0, 8.0, 1.0)
    """
    return jnp.where(group > 1, jnp.minimum(group, jnp.maximum(sequences, 1.0)), 1.0)


def saving(of_copies: Count) -> Ratio:
    """Share of the prefix's bytes that a sequence is spared.

    >>> float(saving(4.0))
    0.75
    """
    return 1 - 1 / of_copies
