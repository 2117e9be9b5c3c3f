"""The context at which KV bytes reach a target: where the wall stands, and what still fits."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.known import repeated, surely
from kvwall.objectives.kv import Cache
from kvwall.spaces.design import NO_LIMIT
from kvwall.spaces.units import Bytes, Ratio, Real, Tokens

_KINKS_PER_GROUP = 4
"""Where the bytes of one group of stores bend: pinned tokens, residual window, window, top-k."""
_KINKS_OF_PREFIX = 5
"""And with a common prefix: its start, its sinks, where it leaves the residual window, the recent tokens, a window."""

_ROUNDINGS = 64
"""Units in the last place that tell two sides of a bend apart, where a token kept is a token of the context."""


def context_of_bytes(
    size: Bytes, of_context: Callable[[Tokens], Bytes], pieces: int, starts: tuple[Tokens, ...] = ()
) -> Tokens:
    """The context whose KV is `size` bytes; infinite where KV never grows so far, 0 where it starts above.

    `of_context` is piecewise linear, and concave but at `starts`, so Newton's steps from the last of those that is not
    yet too much never overshoot and each leaves a piece behind for good: as many steps as there are pieces give the
    exact answer. Where nothing bends after the first piece (full attention without remedies) that is the closed form.
    Within the first token nothing bends.

    >>> round(float(context_of_bytes(1000.0, lambda context: 2.0 * jnp.minimum(context, 100.0) + context, 5)))
    800
    """
    first = 1 + _ROUNDINGS * _last_place(size)  # just past the first token: where something bends at 1 it has bent
    context: Tokens = jnp.full(jnp.shape(size + of_context(jnp.ones_like(size))), first, jnp.result_type(size))
    for start in starts:
        context = jnp.where(of_context(start) <= size, jnp.maximum(context, start), context)

    def newton(context: Tokens) -> Tokens:
        there, slope = jax.jvp(of_context, (context,), (jnp.ones_like(context),))
        grows = slope > 0
        step = jnp.maximum(size - there, 0.0) / jnp.where(grows, slope, 1.0)
        stays = jnp.where(there < size, NO_LIMIT, context)
        return jnp.where(grows, jnp.minimum(context + step, NO_LIMIT), stays)

    last: Tokens = repeated(newton, context, pieces)
    reached = jnp.where(last >= NO_LIMIT, jnp.inf, last)
    nothing, one = of_context(jnp.zeros_like(context)), of_context(jnp.ones_like(context))
    within_first = jnp.clip((size - nothing) / jnp.where(one > nothing, one - nothing, 1.0), 0.0, 1.0)
    return jnp.where(one >= size, within_first, reached)


def context_read_in(size: Bytes, cache: Cache, own: Tokens) -> Tokens:
    """The context of which a step reads `size` bytes of KV, its last `own` tokens of no prompt."""

    def read_without_prefix(context: Tokens) -> Bytes:
        return cache.alone.read(context, 0.0)

    def read(context: Tokens) -> Bytes:
        return cache.read(context, own)

    kinks = jnp.shape(cache.groups.layers)[0]
    bends = upward_bends(cache, cache.read_fraction, own)
    plain = context_of_bytes(size, read_without_prefix, 1 + _KINKS_PER_GROUP * kinks, bends)
    if surely(cache.prefix_share, 0.0):
        return plain
    sharing = context_of_bytes(size, read, 1 + (_KINKS_PER_GROUP + _KINKS_OF_PREFIX) * kinks, bends)
    shared = jnp.logical_and(cache.prefix_share > 0, cache.read_saving > 0)
    return jnp.where(shared, sharing, plain)


def context_stored_in(size: Bytes, cache: Cache, own: Tokens) -> Tokens:
    """The context whose KV fills `size` bytes of one device, per sequence; infinite where no context does.

    Its last `own` tokens are of no prompt.
    """

    def stored_without_prefix(context: Tokens) -> Bytes:
        return cache.alone.stored(context, 0.0)

    def stored(context: Tokens) -> Bytes:
        return cache.stored(context, own)

    kinks = jnp.shape(cache.groups.layers)[0]
    bends = upward_bends(cache, 1.0, own)
    plain = _only_store_filled(size, cache)
    if kinks > 1 or not surely(cache.groups.window, NO_LIMIT):
        stepwise = context_of_bytes(size, stored_without_prefix, 1 + _KINKS_PER_GROUP * kinks, bends)
        endless = jnp.min(cache.groups.window, axis=0) >= NO_LIMIT
        plain = jnp.where(endless, plain, stepwise) if kinks == 1 else stepwise
    if surely(cache.prefix_share, 0.0):
        return plain
    sharing = context_of_bytes(size, stored, 1 + (_KINKS_PER_GROUP + _KINKS_OF_PREFIX) * kinks, bends)
    shared = jnp.logical_and(cache.prefix_share > 0, cache.stored_saving > 0)
    return jnp.where(shared, sharing, plain)


def upward_bends(cache: Cache, read_fraction: Ratio, own: Tokens) -> tuple[Tokens, ...]:
    """Contexts just past which a token costs more: a full residual window, where scales make it the smaller part.

    Stores without eviction first, then those that evict and are read in part; the same where a common prefix leaves
    the residual window: 1 token, where nothing bends, for every sensible format. And where a prefix is longer than the
    sinks, as only a part of what it adds is kept.
    """
    window, pinned = cache.residual_window, cache.pinned
    kept = window / read_fraction
    evicted = jnp.minimum(kept, pinned) + jnp.maximum(kept - pinned, 0.0) / cache.retention
    upward = jnp.any(cache.entry > cache.full_entry, axis=0)
    apart = jnp.where(cache.prefix_share < 1, 1 - cache.prefix_share, 1.0)
    starts = (window, evicted, *((each - cache.prefix_share * own) / apart for each in (window, evicted)))
    shared = jnp.where(cache.prefix_share > 0, cache.prefix_share, 1.0)
    past_sinks = jnp.where(cache.sinks > 0, own + cache.sinks / shared, 1.0)
    bends = (*(jnp.where(upward, start, 1.0) for start in starts), past_sinks)
    past = 1 + _ROUNDINGS * _last_place(cache.entry) / (cache.retention * apart)
    return tuple(jnp.where(bend > 1, bend * past, jnp.where(upward, past, 1.0)) for bend in bends)


def _last_place(number: Real) -> float:
    return float(np.finfo(jnp.result_type(number)).eps)


def _only_store_filled(size: Bytes, cache: Cache) -> Tokens:
    """The closed form for a model whose stores are all alike and have no window, without a common prefix."""
    groups, stride = cache.groups, jnp.sum(cache.groups.stride, axis=0)
    layers = jnp.sum(groups.layers, axis=0) * (1 + cache.draft_layers) / cache.token_ranks
    entry, full_entry = (jnp.sum(each + cache.guide, axis=0) for each in (cache.entry, cache.full_entry))
    recent = jnp.sum(cache.recent, axis=0)
    growing = jnp.logical_and(layers > 0, entry > 0)
    each = jnp.maximum(size - cache.state, 0.0) / jnp.where(growing, layers, 1.0)
    beyond = jnp.maximum(each - full_entry * recent, 0.0) / jnp.where(growing, entry, 1.0)
    kept = (jnp.minimum(each / jnp.where(growing, full_entry, 1.0), recent) + beyond) * stride
    retention = jnp.where(jnp.all(groups.evictable, axis=0), cache.retention, 1.0)
    context = jnp.minimum(kept, cache.pinned) + jnp.maximum(kept - cache.pinned, 0.0) / retention
    return jnp.where(growing, context, jnp.where(size >= cache.state, jnp.inf, 0.0))
