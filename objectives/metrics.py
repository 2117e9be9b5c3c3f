"""Metrics and labels of a step: each a function of a design and its step, the unit in the return annotation.

Metrics are of a replica unless the name says otherwise; bytes are summed over its devices, replication included.
"""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives import (
    collectives,
    cost,
    dies,
    energy,
    engine_memory,
    estimate,
    inverse,
    kv,
    parallel,
    pool,
    prefill,
    quality,
    status,
    tiers,
    time,
    transfer,
    veto,
    wall,
)
from kvwall.objectives.compute import ffn_format_bits, uses_4_bit, uses_16_bit
from kvwall.objectives.known import surely
from kvwall.objectives.step import Step
from kvwall.objectives.whole import parts_down
from kvwall.spaces.design import NO_LIMIT, Design
from kvwall.spaces.quality_tasks import Task
from kvwall.spaces.units import (
    Bits,
    Bytes,
    BytesPerSecond,
    Code,
    Count,
    FlopPerByte,
    FlopPerSecond,
    Joules,
    PerSecond,
    Ratio,
    Seconds,
    Tokens,
    Usd,
)


def time_per_output_token(design: Design, step: Step) -> Seconds:
    """Time per output token (TPOT)."""
    return step.token_time / step.load.yielded


def tokens_per_second(design: Design, step: Step) -> PerSecond:
    """Output tokens per second of the replica."""
    return step.load.active * (step.load.yielded / step.time)


def tokens_per_second_per_device(design: Design, step: Step) -> PerSecond:
    """Output tokens per second and device."""
    return tokens_per_second(design, step) / parallel.replica_devices(design.parallel)


def tokens_per_second_per_user(design: Design, step: Step) -> PerSecond:
    """Output tokens per second that each sequence sees."""
    return step.load.yielded / step.token_time


def time_to_first_token(design: Design, step: Step) -> Seconds:
    """Time to first token (TTFT) of one prompt of `context` tokens, alone on the replica."""
    if step.estimate is None:
        return prefill.time_to_first_token(design, step.ledger.cache)
    return step.estimate.first_token


def weight_bytes_read(design: Design, step: Step) -> Bytes:
    """Weight bytes read per step."""
    return parallel.stage_devices(design.parallel) * step.ledger.weights_read


def kv_bytes_read(design: Design, step: Step) -> Bytes:
    """KV bytes read per step, from all tiers."""
    return parallel.stage_devices(design.parallel) * step.ledger.kv_read


def kv_bytes_stored(design: Design, step: Step) -> Bytes:
    """KV bytes stored when the output is complete, in all tiers."""
    return parallel.stage_devices(design.parallel) * step.ledger.kv_stored


def kv_bytes_reserved(design: Design, step: Step) -> Bytes:
    """KV bytes reserved when the output is complete, in all tiers: whole blocks, or the longest sequence at once."""
    return parallel.attention_devices(design.parallel) * (design.workload.batch * step.memory.reserved)


def memory_margin(design: Design, step: Step) -> Bytes:
    """Memory left on the fullest device, or in its part of a tier; negative = does not fit."""
    return step.memory.margin


def max_batch(design: Design, step: Step) -> Count:
    """Most sequences that fit at this context."""
    return step.memory.max_batch


def max_context(design: Design, step: Step) -> Tokens:
    """Longest context that fits at this batch; infinite where KV in HBM does not grow."""
    return step.memory.max_context


def kv_pool_bytes(design: Design, step: Step) -> Bytes:
    """Memory for KV on the fullest device, once weights and activations are in."""
    return step.memory.pool


def kv_pool_blocks(design: Design, step: Step) -> Count:
    """Blocks of the KV pool: the engine's own; with the ideal engine its tokens by the block."""
    if surely(design.engine.starts_up, 0.0):
        return parts_down(_ideal_tokens(design, step), engine_memory.paging_of(design).block_size)
    of_engine = pool.pool_blocks(step.memory.pool, engine_memory.layout_of(design, engine_memory.longest_of(design)))
    block = engine_memory.paging_of(design).block_size
    return jnp.where(engine_memory.starts_up(design), of_engine, parts_down(_ideal_tokens(design, step), block))


def kv_pool_tokens(design: Design, step: Step) -> Tokens:
    """Tokens of the KV pool as the engine counts them; with the ideal engine those of its longest requests."""
    if surely(design.engine.starts_up, 0.0):
        return _ideal_tokens(design, step)
    longest = engine_memory.longest_of(design)
    layout = engine_memory.layout_of(design, longest)
    blocks = pool.pool_blocks(step.memory.pool, layout)  # finite also where the ideal engine's are not
    of_engine = pool.pool_tokens(design.engine, blocks, layout, longest)
    return jnp.where(engine_memory.starts_up(design), of_engine, _ideal_tokens(design, step))


def _ideal_tokens(design: Design, step: Step) -> Tokens:
    requests = step.memory.pool_requests
    tokens = jnp.floor(requests * engine_memory.longest_of(design))
    unlimited = jnp.where(step.memory.pool >= 0, jnp.inf, 0.0)
    return jnp.where(requests >= NO_LIMIT, unlimited, tokens)


def max_concurrency(design: Design, step: Step) -> Count:
    """Requests of the longest length that the fullest device's memory holds, of all attention ranks, not rounded."""
    return step.memory.max_concurrency


def messages_per_step(design: Design, step: Step) -> Count:
    """Messages between devices that wait for each other in a step."""
    return collectives.messages_in_step(design)


def reload_time(design: Design, step: Step) -> Seconds:
    """Time to reload a sequence's KV from the placed tiers, or from host memory where none is placed."""
    cached = step.ledger.cache.alone.stored(design.workload.context, 0.0)
    chip, placed = design.hardware, tiers.placed_fraction(design.placement)
    some = placed > 0
    slowest = tiers.slowest_transfer(cached, design.placement, chip) / jnp.where(some, placed, 1.0)
    return jnp.where(some, slowest, cached / chip.host.bandwidth.value)


def tier_bandwidth(design: Design, step: Step) -> BytesPerSecond:
    """Bandwidth that the slowest placed tier, or host memory, reaches when KV moves page by page, layer by layer."""
    return transfer.reached_bandwidth(design, step.ledger.cache)


def break_even_bandwidth(design: Design, step: Step) -> BytesPerSecond:
    """Link bandwidth of a device above which reloading a sequence's KV is faster than computing it again."""
    cache = step.ledger.cache
    recompute = prefill.prefill_time(design, cache, 0.0)
    return prefill.break_even_bandwidth(cache.alone.stored(design.workload.context, 0.0), recompute)


def break_even_context(design: Design, step: Step) -> Tokens:
    """Context above which reloading a sequence's KV is faster than computing it again; infinite where it never is."""
    linear, quadratic = prefill.compute_parts(design, step.ledger.cache)
    return prefill.break_even_context(design.workload.context, reload_time(design, step), linear, quadratic)


def arithmetic_intensity(design: Design, step: Step) -> FlopPerByte:
    """FLOP per byte of the step, bytes of all tiers."""
    over_links = tiers.placed_fraction(design.placement) * step.ledger.spread
    return step.ledger.flop / (step.ledger.hbm_bytes + over_links)


def ridge_point(design: Design, step: Step) -> FlopPerByte:
    """FLOP per byte at which the device turns from memory-bound to compute-bound, in the format of the FFN."""
    return gemm_peak(design) / design.hardware.memory_bandwidth


def gemm_peak(design: Design) -> FlopPerSecond:
    """Peak of the format that multiplies the FFN's weights."""
    chip, activation_bits = design.hardware, design.precision.activation_bits
    bits = ffn_format_bits(design.model, design.precision.weight_bits)
    narrow = jnp.where(uses_4_bit(bits, activation_bits), chip.fp4_flops.value, chip.fp8_flops.value)
    return jnp.where(uses_16_bit(bits, activation_bits), chip.bf16_flops.value, narrow)


def energy_per_token(design: Design, step: Step) -> Joules:
    """Energy of traffic and arithmetic per output token, without idle power."""
    chip, ledger = design.hardware, step.ledger
    placed = tiers.placed_tiers(design.placement, chip)
    per_device = energy.step_energy(
        (ledger.hbm_bytes, chip.memory_energy.value),
        *((fraction * ledger.spread, tier.energy.value) for fraction, tier in placed),
        (ledger.flop, chip.flop_energy.value),
    )
    return per_device * parallel.stage_devices(design.parallel) / tokens_per_step(design, step)


def tokens_per_step(design: Design, step: Step) -> Count:
    """Output tokens of a step, all sequences."""
    return step.load.active * step.load.yielded


def cost_per_million_tokens(design: Design, step: Step) -> Usd:
    """USD per million output tokens, the replica always busy."""
    devices = parallel.replica_devices(design.parallel)
    return cost.token_cost(devices, design.usd_per_second.value, step.time, tokens_per_step(design, step))


def crossover_context_bytes(design: Design, step: Step) -> Tokens:
    """Context at which a step reads as many KV bytes as weight bytes; infinite where it never does."""
    own = design.workload.output_tokens / 2
    return wall.crossover_context(step.ledger.weights_read, step.load.mean_sequences, step.ledger.cache, own)


def crossover_context_time(design: Design, step: Step) -> Tokens:
    """Context at which attention takes as long as all else of a decode step; infinite where it never does."""
    cache, own, busiest = step.ledger.cache, design.workload.output_tokens / 2, step.load.rank_sequences
    work, times, in_hbm = step.estimated.work, step.estimated.times, 1 - tiers.streamed_fraction(design.placement)
    some = jnp.logical_and(in_hbm > 0, times.attention > 0)
    wanted = work.kv * (times.besides_attention / jnp.where(some, times.attention, 1.0))
    on_die = dies.imbalance(busiest, design.hardware.memory_domains.value, design.placement.pinned)
    read = jnp.maximum(wanted / on_die / busiest - cache.written(step.load.scored), 0.0)
    found = inverse.context_read_in(read / jnp.where(some, in_hbm, 1.0), cache, own)
    return jnp.where(some, found, jnp.inf)


def regime_distance(design: Design, step: Step) -> Ratio:
    """ln(longest resource time / second longest)."""
    if step.estimate is not None:
        return estimate.lead(step.estimate.ordered)
    return time.regime_distance(time.longest(step.times), time.second_longest(step.times))


def task_loss(design: Design, step: Step, *, task: Task, upper: bool) -> Ratio:
    """Loss of a task: the worst of its rows of the task axis or their weighted mean, central or upper."""
    compose = quality.composed_loss_upper if upper else quality.composed_loss
    losses = compose(compression(design, step), quality.rows_of(design.quality, task.rows))
    if task.weights is None:
        return jnp.max(losses, axis=0)
    weights = jnp.reshape(jnp.asarray(task.weights, jnp.result_type(losses)), (-1,) + (1,) * (jnp.ndim(losses) - 1))
    return jnp.sum(weights * losses, axis=0)


def compression(design: Design, step: Step) -> quality.Compression:
    """What a design compresses, as the quality laws read it; fixed neutral axes stay plain numbers."""
    form, bits = design.kv_format, design.precision
    kept = 1.0 if surely(design.eviction.retention, 1.0) else step.ledger.kept_fraction
    return quality.Compression(
        key_bits=form.key_bits,
        value_bits=form.value_bits,
        kept_fraction=kept,
        read_fraction=design.sparse_read.fraction,
        weight_bits=_payload_bits(bits.weight_bits),
        activation_bits=bits.activation_bits,
    )


def _payload_bits(weight_bits: Bits) -> Bits:
    """Bits that a remedy left; the checkpoint as published is its own reference."""
    return kv.FULL_BITS if surely(weight_bits, 0.0) else jnp.where(weight_bits > 0, weight_bits, kv.FULL_BITS)


def phase(design: Design, step: Step) -> Code:
    """Weight, KV or capacity phase."""
    return wall.phase(step.ledger.weights_read, step.ledger.kv_read, step.memory.margin)


def bound_by(design: Design, step: Step) -> Code:
    """The resource that binds."""
    if step.estimate is not None:
        return estimate.largest(step.estimate.ordered)
    return time.bound_by(step.times)


def regime(design: Design, step: Step) -> Code:
    """The regime of the step."""
    if step.estimate is not None:
        times = step.estimate.times
        return wall.regime(bound_by(design, step), times.moved, times.attention)
    of_fullest = step.ledger.kv_in_hbm * step.load.uneven
    return wall.regime(bound_by(design, step), step.ledger.weights_read, of_fullest)


def design_status(design: Design, step: Step) -> Code:
    """Ok, or why not."""
    vetoed = veto.vetoed(design.kv_format, step.ledger.kept_fraction, design.veto.imposed)
    return status.status(status.layout_possible(design), status.step_sourced(design), step.memory.margin, vetoed)


def known_veto(design: Design, step: Step) -> Code:
    """The first veto that applies, whether it is allowed or not."""
    return veto.first_veto(design.kv_format, step.ledger.kept_fraction, design.veto.known)
