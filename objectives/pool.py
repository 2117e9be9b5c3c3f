"""The KV pool: what an engine keeps for it on a device, how many blocks and tokens that is, how many requests fit."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.pages import Layout, recurrent
from kvwall.spaces.design import Groups
from kvwall.spaces.engine_columns import EngineColumns
from kvwall.spaces.units import Bytes, Count, Ratio, Tokens


def pool_bytes(
    engine: EngineColumns,
    memory: Bytes,
    utilisation: Ratio,
    weights: Bytes,
    activations: Bytes,
    non_torch: Bytes,
    graphs: Bytes,
) -> Bytes:
    """Bytes of a device's KV pool, the fraction read as the engine means it; negative: it cannot start.

    fraction * (memory - [non_torch, where it is taken first] - [the rest, where the fraction is of what it leaves])
    - [else weights, and what else the fraction covers].

    >>> from kvwall.spaces.engines import load_engine
    >>> parts = (80.0, 0.9, 14.99, 2.0, 0.25, 1.0)
    >>> [round(float(pool_bytes(load_engine(name).columns, *parts)), 3) for name in ("vllm-0.20", "vllm-0.21")]
    [54.76, 53.76]
    """
    live = activations + (1 - engine.libraries_first) * non_torch
    free = memory - engine.libraries_first * non_torch - engine.after_load * (weights + live)
    inside = weights + engine.covers_activations * live + engine.covers_graphs * graphs
    return utilisation * free - (1 - engine.after_load) * inside


def pool_of_kv(engine: EngineColumns, pool: Bytes, groups: Groups) -> Bytes:
    """The part of a pool that holds tokens, where recurrent states have a share of their own."""
    some, fixed = groups.layers > 0, recurrent(groups)
    states = jnp.any(jnp.logical_and(some, fixed), axis=0)
    attention = jnp.any(jnp.logical_and(some, jnp.logical_not(fixed)), axis=0)
    return pool / (1 + engine.state_share * jnp.logical_and(states, attention))


def pool_blocks(pool: Bytes, layout: Layout) -> Count:
    """Whole blocks of a pool; 0 where there is none."""
    return jnp.maximum(jnp.floor(pool / layout.block_bytes), 0.0)


def max_concurrency(blocks: Count, layout: Layout) -> Count:
    """Requests of max_model_len that so many blocks hold, not rounded, as engines print it."""
    return blocks / layout.request_blocks


def pool_tokens(engine: EngineColumns, blocks: Count, layout: Layout, max_model_length: Tokens) -> Tokens:
    """The token count that the engine prints for so many blocks."""
    by_groups = jnp.floor(blocks / layout.groups) * layout.smallest_block * layout.context_parallel
    by_requests = jnp.floor(max_concurrency(blocks, layout) * max_model_length)
    return jnp.where(engine.counts_concurrency > 0, by_requests, by_groups)


def bytes_per_token(engine: EngineColumns, layout: Layout, max_model_length: Tokens) -> Bytes:
    """Bytes of a device's pool per token of the count that the engine prints, whole blocks apart."""
    by_groups = layout.groups * layout.block_bytes / layout.smallest_block / layout.context_parallel
    by_requests = layout.request_blocks * layout.block_bytes / max_model_length
    return jnp.where(engine.counts_concurrency > 0, by_requests, by_groups)
