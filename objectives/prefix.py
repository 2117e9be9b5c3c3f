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


def kept_of_prefix(shared: Tokens, context: Tokens, retention: Ratio, sinks: Tokens, recent: Tokens) -> Tokens:
    """Of the first `shared` tokens of a context, those that eviction keeps: sinks are the first, recent ones the last.

    >>> float(kept_of_prefix(500.0, 1000.0, 0.1, 100.0, 0.0)), float(kept_of_prefix(950.0, 1000.0, 0.1, 100.0, 200.0))
    (140.0, 320.0)
    """
    between = jnp.clip(shared - sinks, 0.0, jnp.maximum(context - sinks - recent, 0.0))
    among_recent = jnp.maximum(shared - jnp.maximum(context - recent, sinks), 0.0)
    return jnp.minimum(shared, sinks) + retention * between + among_recent


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
