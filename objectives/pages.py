"""Pages: how an engine lays a model's stores out in blocks, what a block costs and what a request needs of them.

Per-group arrays lead with the layer group, as in `kv`. Groups without layers pad a model and count as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE, device_heads
from kvwall.objectives.whole import parts_up
from kvwall.spaces.design import NO_LIMIT, Groups
from kvwall.spaces.engine_columns import CacheBits, EngineColumns, Startup, StateColumns
from kvwall.spaces.units import Bytes, Count, Flag, Tokens

_EIGHT_BITS = 8.0
_SIXTEEN_BITS = 16.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layout:
    """The blocks of a model in one engine, on one device."""

    block_bytes: Bytes
    """One block in all the layers it spans."""
    groups: Count
    """Groups that share the blocks; a request takes its blocks in every one."""
    smallest_block: Tokens
    """Tokens of the smallest block of any group."""
    request_blocks: Count
    """Blocks of a request of max_model_len."""
    context_parallel: Count


def recurrent(groups: Groups) -> Flag:
    """Which stores are a fixed state."""
    return groups.state_bytes > 0


def windowed(groups: Groups) -> Flag:
    """Which stores end at a window or chunk."""
    return groups.window < NO_LIMIT


def token_bytes(engine: EngineColumns, groups: Groups, bits: CacheBits, devices: Count) -> Bytes:
    """Bytes of one token in one layer on one device, per group; heads past the devices are replicated, latents copied.

    Sparse MLA at 8 bits has rows of its own, and an 8-bit index with a scale.
    """
    payload = groups.key_dim * bits.key + groups.value_dim * bits.value
    row = (device_heads(groups, devices) * payload + groups.fixed_dim * bits.key) / BITS_PER_BYTE
    own_row = jnp.logical_and(engine.sparse_row_bytes > 0, bits.key <= _EIGHT_BITS)
    row = jnp.where(jnp.logical_and(own_row, groups.top_k < NO_LIMIT), engine.sparse_row_bytes, row)
    narrow = groups.index_dim * _EIGHT_BITS / BITS_PER_BYTE + engine.index_scale_bytes
    wide = groups.index_dim * _SIXTEEN_BITS / BITS_PER_BYTE
    index = jnp.where(engine.index_scale_bytes > 0, narrow, wide) * (groups.index_dim > 0)
    return (row + index) / groups.stride


def state_page(states: StateColumns, bits: CacheBits, devices: Count, draft_tokens: Count) -> Bytes:
    """Bytes of one layer's recurrent state on one device, per group: a draft lengthens the convolution's tail."""
    state = states.elements * jnp.where(states.bits > 0, states.bits, bits.model)
    taps = jnp.where(states.taps > 0, states.taps + draft_tokens, 0.0)
    return (state + states.convolution * taps * bits.model) / BITS_PER_BYTE / devices


def with_draft_layers(groups: Groups, draft_layers: Count) -> Count:
    """Layers per group, a draft's own added to the first group that attends to everything."""
    attends = jnp.logical_and(groups.layers > 0, jnp.logical_not(jnp.logical_or(recurrent(groups), windowed(groups))))
    first = jnp.logical_and(attends, jnp.cumsum(attends, axis=0) == 1)
    return groups.layers + jnp.where(first, draft_layers, 0.0)


def group_size(engine: EngineColumns, layers: Count) -> Count:
    """Layers of every group of equal size: those of the rarest kind, or of the commonest where kinds are near equal.

    >>> from kvwall.spaces.engines import load_engine
    >>> vllm = load_engine("vllm").columns
    >>> [float(group_size(vllm, jnp.array(each))) for each in ([52.0, 10.0, 0.0], [12.0, 13.0, 0.0])]
    [10.0, 13.0]
    """
    fewest = jnp.min(jnp.where(layers > 0, layers, NO_LIMIT), axis=0)
    most = jnp.max(layers, axis=0)
    return jnp.where(most < engine.group_slack * fewest, most, fewest)


def raised_block(block: Tokens, page: Bytes, token: Bytes, alignment: Tokens) -> Tokens:
    """Tokens of an attention block whose page holds one recurrent page, in steps of `alignment`.

    Qwen3.5-35B: a state of 2,146,304 bytes beside 2,048 bytes per token.

    >>> float(raised_block(16.0, 2146304.0, 2048.0, 16.0)), float(raised_block(16.0, 0.0, 2048.0, 16.0))
    (1056.0, 16.0)
    """
    token = jnp.where(token > 0, token, 1.0)
    return jnp.maximum(block, alignment * parts_up(page, alignment * token))


def blocks_needed(groups: Groups, block: Tokens, start: Startup) -> Count:
    """Blocks of a request of max_model_len in one attention group, per group of stores.

    All of it; of a window, what it and the batch being written span, one more for the offset; of a chunk likewise.
    """
    length = start.max_model_length
    everything = parts_up(parts_up(length, start.context_parallel), block)
    seen = jnp.minimum(groups.window - 1 + start.batched_tokens, length)
    in_chunk = jnp.minimum(groups.window + start.batched_tokens, length)
    ends = jnp.where(groups.chunked, parts_up(in_chunk, block), parts_up(seen, block) + 1)
    return jnp.where(windowed(groups), ends, everything)


def states_needed(start: Startup) -> Count:
    """Blocks of a request in one recurrent group: its state, one more to resume from a cached prefix, and drafts."""
    return 1 + start.prefix_caching + start.draft_tokens


def layout(engine: EngineColumns, groups: Groups, states: StateColumns, bits: CacheBits, start: Startup) -> Layout:
    """How this engine lays these stores out: in groups of equal size where they are unlike, else each by itself."""
    layers = with_draft_layers(groups, start.draft_layers)
    token = token_bytes(engine, groups, bits, start.tensor_parallel)
    state = state_page(states, bits, start.tensor_parallel, start.draft_tokens)
    alone = _layout_of_each(engine, groups, layers, token, state, start)
    equal = _layout_of_equals(engine, groups, layers, token, state, start)
    grouped = jnp.logical_and(engine.equal_groups > 0, _kinds(groups, layers) > 1)
    chosen: Layout = jax.tree.map(lambda one, other: jnp.where(grouped, one, other), equal, alone)
    return chosen


def _kinds(groups: Groups, layers: Count) -> Count:
    """Kinds of store that a model mixes; windows of unlike length are unlike."""
    some = layers > 0
    states = jnp.any(jnp.logical_and(some, recurrent(groups)), axis=0)
    held = jnp.where(jnp.logical_and(some, jnp.logical_not(recurrent(groups))), groups.window, -1.0)
    longest = jnp.max(held, axis=0)
    shortest = jnp.min(jnp.where(held > 0, held, NO_LIMIT), axis=0)
    attention = jnp.where(longest > 0, jnp.where(shortest < longest, 2, 1), 0)
    return attention + states


def _layout_of_equals(
    engine: EngineColumns, groups: Groups, layers: Count, token: Bytes, state: Bytes, start: Startup
) -> Layout:
    some, fixed = layers > 0, recurrent(groups)
    size = group_size(engine, layers)
    of_kind = parts_up(layers, size)
    widest = jnp.max(jnp.where(some, token, 0.0), axis=0)
    page_of_state = jnp.max(jnp.where(some, state, 0.0), axis=0)
    block = raised_block(start.block_size, page_of_state, widest, engine.state_alignment)
    page = widest * block
    blocks = block * jnp.floor(page / (jnp.where(token > 0, token, jnp.inf) * block) * (1 + 1e-6))
    blocks = jnp.where(token > 0, blocks, block)
    cached = jnp.where(start.prefix_caching > 0, block, start.max_model_length)
    blocks = jnp.where(fixed, cached, blocks)
    needed = jnp.where(fixed, states_needed(start), blocks_needed(groups, blocks, start))
    return Layout(
        block_bytes=size * page,
        groups=jnp.sum(of_kind, axis=0),
        smallest_block=jnp.min(jnp.where(some, blocks, NO_LIMIT), axis=0),
        request_blocks=jnp.sum(of_kind * needed, axis=0),
        context_parallel=start.context_parallel,
    )


def _layout_of_each(
    engine: EngineColumns, groups: Groups, layers: Count, token: Bytes, state: Bytes, start: Startup
) -> Layout:
    """One block is a page of every store that grows (or of a window, where none does); the rest is charged beside."""
    block, length = start.block_size, start.max_model_length
    ends = jnp.logical_and(windowed(groups), engine.window_share <= 0)
    charged = jnp.where(windowed(groups), engine.window_share, 1.0)
    of_all = jnp.sum(jnp.where(ends, 0.0, layers * token * charged), axis=0)
    held = parts_up(jnp.minimum(jnp.where(ends, groups.window, 0.0), length), block)
    beside = jnp.sum(jnp.where(ends, layers * token * held * block, 0.0), axis=0)
    whole = parts_up(parts_up(length, start.context_parallel), block)
    only_windows = jnp.sum(layers * token, axis=0) * block
    shared = jnp.logical_or(engine.state_share <= 0, only_windows <= 0)  # else states have a pool of their own
    fixed = states_needed(start) * jnp.sum(layers * state, axis=0) * shared
    page = jnp.where(of_all > 0, of_all * block, only_windows)
    page = jnp.where(page > 0, page, jnp.maximum(fixed, 1.0))
    request = jnp.where(of_all > 0, whole * of_all * block, 0.0) + beside + fixed
    return Layout(
        block_bytes=page,
        groups=jnp.ones_like(page),
        smallest_block=jnp.broadcast_to(jnp.asarray(block, page.dtype), page.shape),
        request_blocks=request / page,
        context_parallel=start.context_parallel,
    )
