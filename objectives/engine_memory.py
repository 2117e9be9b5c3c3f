"""A design's memory as its serving engine divides it: the pool that is left for KV, and how it is laid out in blocks.

The ideal engine is neutral: it uses the nominal memory, has no overhead and its blocks are those asked for.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp

from kvwall.objectives import kv, pages, paging, pool, startup
from kvwall.objectives.known import repeated, surely
from kvwall.objectives.kv import Cache
from kvwall.objectives.pages import Layout
from kvwall.objectives.whole import parts_up
from kvwall.spaces.design import Design, Groups, Paging
from kvwall.spaces.engine_columns import CacheBits, Startup
from kvwall.spaces.units import Bytes, Flag, Ratio, Tokens

_HALVINGS = 31
_LONGEST = 2.0**_HALVINGS
"""Tokens, above any context that the axes allow."""
MODEL_BITS = 16.0
"""Of the dtype that engines compute in."""


def starts_up(design: Design) -> Flag:
    """Whether the engine is a real program, not the ideal one."""
    return design.engine.starts_up > 0


def paging_of(design: Design) -> Paging:
    """How memory is reserved: blocks of the asked size, or of the engine's own where none is asked for."""
    asked = design.paging.block_size
    if surely(design.engine.block_size, 1.0):
        return design.paging
    return replace(design.paging, block_size=jnp.where(asked > 1, asked, jnp.maximum(design.engine.block_size, 1.0)))


def memory_seen(design: Design) -> Bytes:
    """Memory of a device that the fraction is of: nominal, or what a driver reports to a program."""
    return jnp.where(starts_up(design), design.hardware.reported_capacity, design.hardware.memory_capacity)


def utilisation_of(design: Design) -> Ratio:
    """The memory fraction: as asked, or the engine's own."""
    return jnp.where(design.utilisation > 0, design.utilisation, design.engine.utilisation)


def longest_of(design: Design) -> Tokens:
    """The longest sequence that is served."""
    return paging.longest(design.paging, design.workload.context + design.workload.output_tokens)


def startup_of(design: Design, length: Tokens) -> Startup:
    """What the engine is started with, for sequences of this length; what no axis states is the engine's default."""
    engine, memory = design.engine, memory_seen(design)
    drafts = design.speculation.draft_tokens
    sharing = jnp.logical_and(design.prefix.share > 0, design.prefix.group > 1)
    return Startup(
        max_model_length=length,
        block_size=paging_of(design).block_size,
        batched_tokens=startup.default_batched_tokens(engine, memory),
        sequences=startup.default_sequences(engine, memory),
        prefix_caching=jnp.where(jnp.logical_or(sharing, design.prefix.hit_rate > 0), 1.0, 0.0),
        draft_tokens=drafts,
        draft_layers=jnp.where(drafts > 0, 1.0, 0.0),
        tensor_parallel=design.parallel.tensor,
        context_parallel=design.parallel.context,
    )


def pool_of(design: Design, weights: Bytes) -> Bytes:
    """Bytes that a device with so many bytes of weights has for KV; for the ideal engine activations come out of it."""
    engine, memory, start = design.engine, memory_seen(design), startup_of(design, longest_of(design))
    if surely(engine.starts_up, 0.0):
        return pool.pool_bytes(engine, memory, utilisation_of(design), weights, 0.0, 0.0, 0.0)
    profiled = startup.activation_peak(engine, design.model, start, MODEL_BITS)
    libraries = startup.non_torch(engine, design.parallel.tensor, memory)
    graphs = startup.graph_estimate(engine, start.sequences)
    real = starts_up(design)
    parts = (jnp.where(real, part, 0.0) for part in (profiled, libraries, graphs))
    left = pool.pool_bytes(engine, memory, utilisation_of(design), weights, *parts)
    return jnp.where(real, pool.pool_of_kv(engine, left, design.model.groups), left)


def layout_of(design: Design, length: Tokens) -> Layout:
    """The engine's blocks on a device of the stage with most layers, and those of a request of this length."""
    form = design.kv_format
    bits = CacheBits(
        kv.stored_bits(form.key_bits, form), kv.stored_bits(form.value_bits, form), jnp.asarray(MODEL_BITS)
    )
    return pages.layout(design.engine, stage_groups(design), design.model.states, bits, startup_of(design, length))


def stage_groups(design: Design) -> Groups:
    """The stores of the stage with most layers."""
    groups, stages = design.model.groups, design.parallel.pipeline
    return replace(groups, layers=jnp.where(stages > 1, parts_up(groups.layers, stages), groups.layers))


def overhead(design: Design, cache: Cache, length: Tokens) -> Ratio:
    """Bytes of a request of this length in the engine's blocks, over what its KV alone takes; 1 for the ideal.

    It has whole blocks, pad layers, replicated heads of unlike stores and states in pages of attention.
    """
    if surely(design.engine.starts_up, 0.0):
        return 1.0
    layout = layout_of(design, length)
    plain = replace(
        cache.alone,
        groups=stage_groups(design),
        guide=kv.index_bytes(cache.groups),
        residual_window=jnp.zeros_like(cache.residual_window),
        retention=jnp.ones_like(cache.retention),
    )
    alone = plain.stored(length, length)
    return jnp.where(starts_up(design), layout.request_blocks * layout.block_bytes / alone, 1.0)


def reserved(design: Design, cache: Cache, context: Tokens, own: Tokens) -> Bytes:
    """KV bytes that a sequence reserves, all layers: by pages or at once, in the engine's blocks."""
    if surely(design.engine.starts_up, 0.0):
        return paging.reserved(cache, design.paging, context, own)
    once = replace(design.paging, block_size=jnp.where(starts_up(design), 1.0, design.paging.block_size))
    length = jnp.where(design.paging.contiguous, paging.longest(design.paging, context), context)
    # the overhead rounds to blocks by itself
    return paging.reserved(cache, once, context, own) * overhead(design, cache, length)


def context_reserved_in(size: Bytes, design: Design, cache: Cache, own: Tokens) -> Tokens:
    """The longest whole sequence that reserves no more than `size` bytes in a real engine's blocks, by halving.

    Its last `own` tokens are of no prompt. Infinite where no length that is served takes so much.
    """

    def fits(length: Tokens) -> Flag:
        return reserved(design, cache, length, own) <= size

    def halved(ends: tuple[Tokens, Tokens]) -> tuple[Tokens, Tokens]:
        low, high = ends
        middle = jnp.floor((low + high) / 2)
        enough = fits(jnp.maximum(middle, 1.0))
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    shape = jnp.shape(size + reserved(design, cache, jnp.ones_like(size), own))
    ends: tuple[Tokens, Tokens] = (
        jnp.zeros(shape, jnp.result_type(size)),
        jnp.full(shape, _LONGEST, jnp.result_type(size)),
    )
    longest, _ = repeated(halved, ends, _HALVINGS)
    return jnp.where(fits(jnp.full(shape, _LONGEST)), jnp.inf, longest)
