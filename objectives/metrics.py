"""Metrics and labels of a step: each a function of a design and its step, the unit in the return annotation.

Metrics are of a replica unless the name says otherwise; bytes are summed over its devices, replication included.
"""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives import capacity, cost, energy, inverse, kv, quality, status, time, wall
from kvwall.objectives.compute import ffn_format_bits, uses_4_bit, uses_16_bit
from kvwall.objectives.step import Step
from kvwall.spaces.design import Design
from kvwall.spaces.units import (
    Bytes,
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
    return step.time


def tokens_per_second(design: Design, step: Step) -> PerSecond:
    """Output tokens per second of the replica."""
    return design.workload.batch * tokens_per_second_per_user(design, step)


def tokens_per_second_per_device(design: Design, step: Step) -> PerSecond:
    """Output tokens per second and device."""
    return tokens_per_second(design, step) / design.parallel.tensor


def tokens_per_second_per_user(design: Design, step: Step) -> PerSecond:
    """Output tokens per second that each sequence sees."""
    return 1 / step.time


def weight_bytes_read(design: Design, step: Step) -> Bytes:
    """Weight bytes read per step."""
    return design.parallel.tensor * step.ledger.weights_read


def kv_bytes_read(design: Design, step: Step) -> Bytes:
    """KV bytes read per step, from all tiers."""
    return design.parallel.tensor * step.ledger.kv_read


def kv_bytes_stored(design: Design, step: Step) -> Bytes:
    """KV bytes stored when the output is complete, in all tiers."""
    return design.parallel.tensor * step.ledger.kv_stored


def kv_bytes_reserved(design: Design, step: Step) -> Bytes:
    """KV bytes reserved: pages of one token reserve what they store."""
    return kv_bytes_stored(design, step)


def memory_margin(design: Design, step: Step) -> Bytes:
    """Memory left on the fullest device; negative = does not fit."""
    return step.memory.margin


def max_batch(design: Design, step: Step) -> Count:
    """Most sequences that fit at this context."""
    return capacity.max_batch(step.memory.room, step.memory.per_sequence)


def max_context(design: Design, step: Step) -> Tokens:
    """Longest context that fits at this batch; infinite where KV in HBM does not grow."""
    in_hbm = 1 - design.placement.host
    room = capacity.room_per_sequence(step.memory.room, design.workload.batch, step.memory.activations)
    share = jnp.where(in_hbm > 0, in_hbm, 1.0)
    fitting = inverse.context_stored_in(room / share, step.ledger.cache)
    limited = capacity.max_context(fitting, design.workload.output_tokens)
    unlimited = jnp.where(room > 0, jnp.inf, 0.0)
    return jnp.where(in_hbm > 0, limited, unlimited)


def arithmetic_intensity(design: Design, step: Step) -> FlopPerByte:
    """FLOP per byte of the step, bytes of all tiers."""
    return step.ledger.flop / (step.ledger.hbm_bytes + step.ledger.tier_read)


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
    per_device = energy.step_energy(
        ledger.hbm_bytes,
        chip.memory_energy.value,
        ledger.tier_read,
        chip.link_energy.value,
        ledger.flop,
        chip.flop_energy.value,
    )
    return per_device * design.parallel.tensor / design.workload.batch


def cost_per_million_tokens(design: Design, step: Step) -> Usd:
    """USD per million output tokens, the replica always busy."""
    return cost.token_cost(design.parallel.tensor, design.usd_per_second.value, step.time, design.workload.batch)


def crossover_context_bytes(design: Design, step: Step) -> Tokens:
    """Context at which a step reads as many KV bytes as weight bytes; infinite where it never does."""
    return wall.crossover_context(step.ledger.weights_read, design.workload.batch, step.ledger.cache)


def regime_distance(design: Design, step: Step) -> Ratio:
    """ln(longest resource time / second longest)."""
    return time.regime_distance(step.time, time.second_longest(step.times))


def task_loss(design: Design, step: Step, *, rows: tuple[int, ...], upper: bool) -> Ratio:
    """Loss of a task: the worst of its rows of the task axis, central or upper."""
    bits = design.precision.weight_bits
    compose = quality.composed_loss_upper if upper else quality.composed_loss
    losses = compose(
        design.kv_format.key_bits,
        design.kv_format.value_bits,
        step.ledger.kept_fraction,
        jnp.where(bits > 0, bits, kv.FULL_BITS),  # the checkpoint as published is its own reference
        quality.rows_of(design.quality, rows),
    )
    return jnp.max(losses, axis=0)


def phase(design: Design, step: Step) -> Code:
    """Weight, KV or capacity phase."""
    return wall.phase(step.ledger.weights_read, step.ledger.kv_read, step.memory.margin)


def bound_by(design: Design, step: Step) -> Code:
    """The resource that binds."""
    return time.bound_by(step.times)


def regime(design: Design, step: Step) -> Code:
    """The regime of the step."""
    in_hbm = (1 - design.placement.host) * step.ledger.kv_read + step.ledger.kv_written
    return wall.regime(bound_by(design, step), step.ledger.weights_read, in_hbm)


def design_status(design: Design, step: Step) -> Code:
    """Ok, or why not."""
    possible = status.layout_possible(design.model.groups, design.parallel.tensor, design.hardware.scale_up_domain)
    return status.status(possible, status.step_sourced(design), step.memory.margin)
