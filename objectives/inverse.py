"""The context at which KV bytes reach a target: where the wall stands, and what still fits."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from kvwall.objectives.kv import Cache
from kvwall.spaces.design import NO_LIMIT
from kvwall.spaces.units import Bytes, Count, Tokens

_KINKS_PER_GROUP = 5
"""Where the bytes of one group of stores bend: pinned tokens, residual window, window, the end of a common prefix in
that window, top-k."""

_JUST_PAST = 1e-6
"""Relative distance that tells two sides of a bend apart in float32."""


def context_of_bytes(
    size: Bytes, of_context: Callable[[Tokens], Bytes], groups: int, starts: tuple[Tokens, ...] = ()
) -> Tokens:
    """The context whose KV is `size` bytes; infinite where KV never grows so far, 0 where it starts above.

    `of_context` is piecewise linear, and concave but at `starts` (ascending), so Newton's steps from the last of
    those that is not yet too much never overshoot and each leaves a piece behind for good: as many steps as there are
    pieces give the exact answer. Where nothing bends after the first piece (full attention without remedies) that is
    the closed form. Within the first token nothing bends.

    >>> round(float(context_of_bytes(1000.0, lambda context: 2.0 * jnp.minimum(context, 100.0) + context, 1)))
    800
    """
    context = jnp.ones_like(size)
    for start in starts:
        context = jnp.where(of_context(start) <= size, jnp.maximum(context, start), context)
    for _ in range(1 + _KINKS_PER_GROUP * groups):
        there, slope = jax.jvp(of_context, (context,), (jnp.ones_like(context),))
        grows = slope > 0
        step = jnp.maximum(size - there, 0.0) / jnp.where(grows, slope, 1.0)
        context = jnp.where(grows, jnp.minimum(context + step, NO_LIMIT), jnp.where(there < size, NO_LIMIT, context))
    reached = jnp.where(context >= NO_LIMIT, jnp.inf, context)
    nothing, one = of_context(jnp.zeros_like(context)), of_context(jnp.ones_like(context))
    within_first = jnp.clip((size - nothing) / jnp.where(one > nothing, one - nothing, 1.0), 0.0, 1.0)
    return jnp.where(one >= size, within_first, reached)


def upward_bends(cache: Cache) -> tuple[Tokens, Tokens]:
    """Contexts just past which a token costs more: a full residual window, where scales make it the smaller part.

    Stores without eviction first, then those that evict; 1 token, where nothing bends, for every sensible format.
    """
    window, pinned = cache.residual_window, cache.pinned
    evicted = jnp.minimum(window, pinned) + jnp.maximum(window - pinned, 0.0) / cache.retention
    upward = jnp.any(cache.entry > cache.full_entry, axis=0)
    past = 1 + _JUST_PAST
    return jnp.where(upward, window * past, 1.0), jnp.where(upward, evicted * past, 1.0)


def context_stored_in(size: Bytes, cache: Cache) -> Tokens:
    """The context whose KV fills `size` bytes of one device, per sequence; infinite where no context does."""
    count = jnp.shape(cache.groups.layers)[0]
    if count > 1:
        return context_of_bytes(size, cache.stored, count, upward_bends(cache))
    return _only_store_filled(size, cache)


def _only_store_filled(size: Bytes, cache: Cache) -> Tokens:
    """The closed form for a model whose stores are all alike."""
    groups = cache.groups
    layers = jnp.sum(groups.layers, axis=0) * (1 + cache.draft_layers) / cache.token_ranks
    entry, full_entry = (jnp.sum(each + cache.guide, axis=0) for each in (cache.entry, cache.full_entry))
    recent, stride = jnp.sum(cache.recent, axis=0), jnp.sum(groups.stride, axis=0)
    window = jnp.min(groups.window, axis=0)
    growing = jnp.logical_and(layers > 0, entry > 0)
    each = jnp.maximum(size - cache.state, 0.0) / jnp.where(growing, layers, 1.0)
    spared = cache.prefix_share * cache.stored_saving
    early, late = full_entry - entry * spared, entry * (1 - spared)  # bytes per entry within and past the residual
    within = jnp.minimum(each / jnp.where(growing, early, 1.0), recent)
    past = jnp.maximum(each - early * recent, 0.0) / jnp.where(growing, late, 1.0)
    kept = (within + past) * stride
    retention = jnp.where(jnp.all(groups.evictable, axis=0), cache.retention, 1.0)
    context = jnp.minimum(kept, cache.pinned) + jnp.maximum(kept - cache.pinned, 0.0) / retention
    full = jnp.logical_and(window < NO_LIMIT, context >= window)
    leaving = entry / stride * cache.stored_saving * (1 - cache.prefix_share)  # the prefix leaves the window
    over = each - sequence_in_window(early, late, recent, window / stride)
    further = window + jnp.maximum(over, 0.0) / jnp.where(leaving > 0, leaving, 1.0)
    gone = further * (1 - cache.prefix_share) >= window
    endless = jnp.logical_or(jnp.logical_not(growing), full & (gone | (leaving <= 0)))
    fits = size >= cache.state
    return jnp.where(endless, jnp.where(fits, jnp.inf, 0.0), jnp.where(full, further, context))


def sequence_in_window(early: Bytes, late: Bytes, recent: Count, held: Count) -> Bytes:
    """Bytes of the entries of a full window, the first `recent` at one size and the others at another.

    >>> float(sequence_in_window(4.0, 1.0, 10.0, 100.0))
    130.0
    """
    return early * jnp.minimum(recent, held) + late * jnp.maximum(held - recent, 0.0)
