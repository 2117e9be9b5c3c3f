"""Prefill: the work of reading a prompt into the cache, the time to the first token, and reloading against it."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from kvwall.objectives import collectives, compute, parallel, tiers, time, weights
from kvwall.objectives.compute import ByFormat
from kvwall.objectives.known import surely
from kvwall.objectives.kv import Cache
from kvwall.spaces.design import Design, Groups
from kvwall.spaces.units import Bytes, BytesPerSecond, Count, Ratio, Seconds, Tokens


@dataclass(frozen=True)
class Prompt:
    """Work of one prompt on a device, the weights' traffic apart."""

    tokens: Tokens
    """Not found cached."""
    attending: ByFormat
    """FLOP of each device of its attention rank: attention and its matrices."""
    dense: ByFormat
    """FLOP of every device of a stage: the other matrices but the experts'."""
    routed: ByFormat
    """FLOP of every device of a stage: experts, where they are met evenly."""
    written: Bytes
    """KV of the tokens not found cached."""
    cached: Bytes
    """KV of those found."""
    in_hbm: Ratio
    """Share of what was cached that is read in device memory; the rest comes over the links of tiers."""

    @property
    def kv_bytes(self) -> Bytes:
        """KV that moves in device memory."""
        return self.written + self.in_hbm * self.cached

    def flop(self, of_rank: Count, of_replica: Count, hot: Ratio) -> ByFormat:
        """FLOP of a device for so many prompts of its attention rank and of the replica; `hot`: load of its experts."""
        return compute.added(
            compute.times(of_rank, self.attending),
            compute.times(of_replica, self.dense),
            compute.times(of_replica * hot, self.routed),
        )


def tokens_seen(context: Tokens, limit: Tokens) -> Count:
    """Sum over the tokens of a context of those each attends to, all before it up to a limit; the causal half.

    >>> float(tokens_seen(100.0, 1e20)), float(tokens_seen(100.0, 10.0))
    (5000.0, 950.0)
    """
    within = jnp.minimum(context, limit)
    return within * (context - within / 2)


def chunked_tokens_seen(context: Tokens, chunk: Tokens) -> Count:
    """As `tokens_seen`, where attention restarts with every chunk: beyond the first, half a chunk on average."""
    within = jnp.minimum(context, chunk)
    return within * within / 2 + jnp.maximum(context - chunk, 0.0) * (chunk + 1) / 2


def pairs(groups: Groups, context: Tokens) -> tuple[Count, Count]:
    """Per group: (pairs of a token and an entry it reads, pairs of a token and an entry whose index it reads)."""
    restarting = chunked_tokens_seen(context, groups.window)
    seen = jnp.where(groups.chunked, restarting, tokens_seen(context, groups.window))
    limit = jnp.minimum(groups.window, groups.top_k * groups.stride)
    chosen = jnp.where(groups.chunked, restarting, tokens_seen(context, limit))
    return chosen / groups.stride, seen / groups.stride


def new_tokens(design: Design) -> Tokens:
    """Tokens of a prompt that are not found cached."""
    return design.workload.context * (1 - design.prefix.hit_rate)


def prompt_of(design: Design, cache: Cache, hit_rate: Ratio) -> Prompt:
    """One prompt of the design's context, of which a share is found cached."""
    context, bits, layout = design.workload.context, design.precision, design.parallel
    cached = hit_rate * context
    tokens = context - cached
    of_rank, of_stage = tokens / parallel.attention_devices(layout), tokens / parallel.stage_devices(layout)
    attended = [pairs(cache.groups, end) for end in ((context,) if surely(hit_rate, 0.0) else (context, cached))]
    chosen, seen = (found[0] - sum(found[1:]) for found in zip(*attended, strict=True))
    attention = compute.prefill_attention_flop(cache.groups, chosen, seen)
    operand = compute.attention_operand_bits(design.kv_format.key_bits, design.kv_format.value_bits)

    def matrices(attending: Count, dense: Count, routed: Count) -> ByFormat:
        each = (attending, dense, routed)
        return compute.layers_flop(design.model, bits.weight_bits, bits.activation_bits, each)

    return Prompt(
        tokens=tokens,
        attending=compute.added(
            matrices(of_rank, 0.0, 0.0),
            compute.split_by_format(attention / parallel.attention_devices(layout), operand, bits.activation_bits),
        ),
        dense=matrices(0.0, of_stage, 0.0),
        routed=matrices(0.0, 0.0, of_stage),
        written=cache.written(tokens),
        cached=jnp.where(cached > 0, cache.alone.stored(cached, 0.0), 0.0),
        in_hbm=1 - tiers.streamed_fraction(design.placement),
    )


def prefill_time(design: Design, cache: Cache, hit_rate: Ratio) -> Seconds:
    """Seconds of one prompt alone on the replica, in one piece through all stages: its slowest resource."""
    prompt, chip, bits = prompt_of(design, cache, hit_rate), design.hardware, design.precision
    model, stage, skew = design.model, parallel.stage_devices(design.parallel), design.workload.expert_skew
    hot = parallel.hot_rank(model.experts, skew, design.parallel.expert)
    head = compute.head_flop(model, bits.weight_bits, bits.activation_bits, 1 / stage)
    streamed = weights.layers_streamed(model, bits.weight_bits, prompt.tokens, skew, design.parallel)
    rows = prompt.tokens * weights.embedding_row_bytes(model, stage)
    moved = streamed + weights.head_bytes(model, bits.weight_bits, stage) + rows + prompt.kv_bytes
    sent = collectives.sent_in_step(design, prompt.tokens, prompt.tokens, 1.0)
    return time.on_device(
        time.ResourceTimes(
            hbm=time.transfer_time(moved, chip.memory_bandwidth),
            compute=time.compute_time(compute.added(prompt.flop(1.0, 1.0, hot), head), time.peaks(chip)),
            scale_up=time.link_time(sent, chip),
            tier_link=0.0,
        )
    )


def time_to_first_token(design: Design, cache: Cache) -> Seconds:
    """Seconds to the first token; cached tokens that lie in tiers are loaded, or all computed again if that is faster.

    Loading is hidden behind prefill as far as links overlap.
    """
    hit_rate, placement = design.prefix.hit_rate, design.placement
    found = prefill_time(design, cache, hit_rate)
    if surely(hit_rate, 0.0):
        return found
    cached = cache.alone.stored(hit_rate * design.workload.context, 0.0)
    load = tiers.slowest_transfer(cached, placement, design.hardware)
    loaded = tiers.exposed(found, load, placement.link_overlap)
    away = jnp.logical_and(tiers.placed_fraction(placement) > 0, hit_rate > 0)
    return jnp.where(away, jnp.minimum(loaded, prefill_time(design, cache, 0.0)), found)


def compute_parts(design: Design, cache: Cache) -> tuple[Seconds, Seconds]:
    """Seconds of a prompt's arithmetic: (of matrices, which grows with its tokens, of attention, with their square)."""
    bits, layout, context = design.precision, design.parallel, design.workload.context
    devices = parallel.attention_devices(layout)
    hot = parallel.hot_rank(design.model.experts, design.workload.expert_skew, layout.expert)
    of_stage = context / parallel.stage_devices(layout)
    each = (context / devices, of_stage, of_stage * hot)
    matrices = compute.layers_flop(design.model, bits.weight_bits, bits.activation_bits, each)
    attention = compute.prefill_attention_flop(cache.groups, *pairs(cache.groups, context)) / devices
    operand = compute.attention_operand_bits(design.kv_format.key_bits, design.kv_format.value_bits)
    of_attention = compute.split_by_format(attention, operand, bits.activation_bits)
    peaks = time.peaks(design.hardware)
    return time.compute_time(matrices, peaks), time.compute_time(of_attention, peaks)


def break_even_bandwidth(cached: Bytes, recompute: Seconds) -> BytesPerSecond:
    """Link bandwidth of a device at which reloading its KV of a sequence takes as long as computing it again.

    >>> break_even_bandwidth(1e9, 0.5)
    2000000000.0
    """
    return cached / recompute


def break_even_context(context: Tokens, reload: Seconds, linear: Seconds, quadratic: Seconds) -> Tokens:
    """Context beyond which reloading is faster than computing again; infinite where it never is.

    Args:
        context: tokens that the times are of.
        reload: seconds to reload so many, which grows with the tokens.
        linear: the part of computing them that grows with the tokens.
        quadratic: the part that grows with their square.

    >>> float(break_even_context(1000.0, 3.0, 1.0, 1.0)), float(break_even_context(1000.0, 1.0, 2.0, 1.0))
    (2000.0, 0.0)
    """
    grows = quadratic > 0
    crossing = context * jnp.maximum(reload - linear, 0.0) / jnp.where(grows, quadratic, 1.0)
    return jnp.where(grows, crossing, jnp.where(reload > linear, jnp.inf, 0.0))
