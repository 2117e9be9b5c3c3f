"""Paging against contiguous reservation: what memory a sequence takes, and how much of it holds nothing."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp

from kvwall.objectives.known import surely
from kvwall.objectives.kv import Cache
from kvwall.spaces.design import Paging
from kvwall.spaces.units import Bytes, Flag, Ratio, Tokens


def whole_blocks(tokens: Tokens, block_size: Tokens) -> Tokens:
    """Tokens rounded up to whole blocks.

    >>> float(whole_blocks(33.0, 16.0)), float(whole_blocks(32.0, 16.0))
    (48.0, 32.0)
    """
    return jnp.where(block_size > 1, jnp.ceil(tokens / block_size) * block_size, tokens)


def waste(tokens: Tokens, reserved: Tokens) -> Ratio:
    """Share of the reserved tokens that hold nothing.

    >>> float(waste(600.0, 1000.0))
    0.4
    """
    return 1 - tokens / reserved


def longest(paging: Paging, needed: Tokens) -> Tokens:
    """The longest sequence served: as stated, or what this one needs."""
    return jnp.where(paging.max_model_length > 0, paging.max_model_length, needed)


def long_enough(paging: Paging, needed: Tokens) -> Flag:
    """Whether the sequence is within the longest that is served."""
    return needed <= longest(paging, needed)


def paged(cache: Cache, paging: Paging) -> Cache:
    """The cache as pages hold it: windows take whole blocks as well, unless memory is reserved at once."""
    if surely(paging.block_size, 1.0):
        return cache
    block_size = jnp.where(paging.contiguous, 1.0, paging.block_size)
    window = whole_blocks(cache.groups.window, block_size)
    return replace(cache, groups=replace(cache.groups, window=window))


def reserved(cache: Cache, paging: Paging, context: Tokens, own: Tokens) -> Bytes:
    """KV bytes that a sequence of this context reserves: whole blocks, or the longest sequence at once.

    The last `own` tokens, and what is reserved beyond them, are of no prompt.
    """
    in_blocks = whole_blocks(context, paging.block_size)
    whole = longest(paging, context)
    at_once = cache.stored(whole, jnp.maximum(own + whole - context, 0.0))
    paged_bytes = paged(cache, paging).stored(in_blocks, own + in_blocks - context)
    return jnp.where(paging.contiguous, at_once, paged_bytes)


def longest_reserved_in(fitting: Tokens, whole: Bytes, size: Bytes, paging: Paging) -> Tokens:
    """The longest sequence that may be reserved.

    Args:
        fitting: tokens that fit, page by page.
        whole: bytes of the longest sequence that is served, which contiguous reservation takes at once.
        size: bytes there are.
        paging: how memory is reserved.
    """
    in_blocks = jnp.logical_and(paging.block_size > 1, jnp.logical_not(paging.contiguous))
    blocks = jnp.where(in_blocks, jnp.floor(fitting / paging.block_size) * paging.block_size, fitting)
    stated = paging.max_model_length > 0
    most = jnp.where(stated, jnp.minimum(blocks, paging.max_model_length), blocks)
    at_once = jnp.where(whole <= size, paging.max_model_length, 0.0)
    return jnp.where(jnp.logical_and(paging.contiguous, stated), at_once, most)
