"""One decode step of a design: the ledger of bytes and FLOP, the times and the memory, everything metrics read."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from kvwall.objectives import capacity, collectives, compute, kv, time, weights
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bytes, BytesPerToken, Flop, Ratio, Seconds, Tokens


@dataclass(frozen=True)
class Ledger:
    """Bytes and FLOP of one step on the worst device, and what one token or sequence weighs there."""

    pinned: Tokens
    kept_fraction: Ratio
    kept: Tokens
    token_bytes: BytesPerToken
    full_token_bytes: BytesPerToken
    weights_read: Bytes
    kv_read: Bytes
    """All tiers together."""
    kv_written: Bytes
    kv_stored: Bytes
    """At the end of the output, all tiers together."""
    tier_read: Bytes
    hbm_bytes: Bytes
    scale_up_bytes: Bytes
    flop_by_format: tuple[Flop, Flop, Flop]
    """16-bit, 8-bit, 4-bit."""

    @property
    def flop(self) -> Flop:
        """All formats together."""
        sixteen, eight, four = self.flop_by_format
        return sixteen + eight + four


@dataclass(frozen=True)
class Memory:
    """Bytes on the fullest device."""

    weights: Bytes
    room: Bytes
    """Usable memory less weights: for KV and activations."""
    activations: Bytes
    """Per sequence."""
    per_sequence: Bytes
    """KV in HBM and activations."""
    margin: Bytes


@dataclass(frozen=True)
class Step:
    """What every metric of a design is computed from."""

    ledger: Ledger
    memory: Memory
    times: time.ResourceTimes
    time: Seconds


def evaluate_step(design: Design) -> Step:
    """The step of a design, or of every point of a grid of designs."""
    ledger = ledger_of(design)
    times = times_of(design, ledger)
    return Step(ledger, memory_of(design, ledger), times, time.step_time(times))


def ledger_of(design: Design) -> Ledger:
    """Bytes and FLOP of one step on the worst device."""
    model, work, form = design.model, design.workload, design.kv_format
    devices, batch = design.parallel.tensor, work.batch
    pinned = design.eviction.sink_tokens + design.eviction.recent_tokens
    retention = design.eviction.retention
    context = work.context + work.output_tokens / 2
    kept_fraction = kv.kept_fraction(retention, pinned, context)
    kept = kept_fraction * context
    at_end = work.context + work.output_tokens
    kept_at_end = kv.kept_fraction(retention, pinned, at_end) * at_end
    key_bits, value_bits = kv.stored_bits(form.key_bits, form), kv.stored_bits(form.value_bits, form)
    token = kv.token_bytes(model.groups, devices, key_bits, value_bits)
    full_token = kv.token_bytes(
        model.groups, devices, jnp.maximum(form.key_bits, kv.FULL_BITS), jnp.maximum(form.value_bits, kv.FULL_BITS)
    )
    new_token = jnp.where(form.residual_window > 0, full_token, token)
    kv_read = batch * kv.sequence_bytes(kept, token, full_token, form.residual_window)
    kv_written = batch * new_token
    bits = design.precision
    weights_read = weights.matrix_bytes(model, bits.weight_bits, devices) + batch * weights.embedding_row_bytes(
        model, devices
    )
    tier_read = design.placement.host * kv_read
    return Ledger(
        pinned=pinned,
        kept_fraction=kept_fraction,
        kept=kept,
        token_bytes=token,
        full_token_bytes=full_token,
        weights_read=weights_read,
        kv_read=kv_read,
        kv_written=kv_written,
        kv_stored=batch * kv.sequence_bytes(kept_at_end, token, full_token, form.residual_window),
        tier_read=tier_read,
        hbm_bytes=weights_read + (1 - design.placement.host) * kv_read + kv_written,
        scale_up_bytes=batch * collectives.all_reduce_bytes(model, bits.activation_bits, devices),
        flop_by_format=_flop(design, kept),
    )


def _flop(design: Design, kept: Tokens) -> tuple[Flop, Flop, Flop]:
    bits, form, devices = design.precision, design.kv_format, design.parallel.tensor
    gemm = compute.gemm_flop_per_token(design.model, bits.weight_bits, bits.activation_bits)
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    per_token = compute.attention_flop_per_kept_token(design.model.groups)
    attention = compute.split_by_format(per_token, operand, bits.activation_bits)
    sixteen, eight, four = (
        compute.step_flop(design.workload.batch, of_weights / devices, kept, of_kv / devices)
        for of_weights, of_kv in zip(gemm, attention, strict=True)
    )
    return sixteen, eight, four


def times_of(design: Design, ledger: Ledger) -> time.ResourceTimes:
    """Seconds each resource needs."""
    chip = design.hardware
    return time.ResourceTimes(
        hbm=time.transfer_time(ledger.hbm_bytes, chip.memory_bandwidth),
        compute=time.compute_time(
            ledger.flop_by_format, (chip.bf16_flops.value, chip.fp8_flops.value, chip.fp4_flops.value)
        ),
        scale_up=time.transfer_time(ledger.scale_up_bytes, chip.scale_up_bandwidth.value),
        tier_link=time.transfer_time(ledger.tier_read, chip.host_link_bandwidth.value),
    )


def memory_of(design: Design, ledger: Ledger) -> Memory:
    """Bytes on the fullest device and the margin left."""
    model, devices, batch = design.model, design.parallel.tensor, design.workload.batch
    stored = weights.matrix_bytes(model, design.precision.weight_bits, devices) + weights.embedding_table_bytes(
        model, devices
    )
    room = design.utilisation * design.hardware.memory_capacity - stored
    activations = capacity.activation_bytes(model, design.precision.activation_bits, devices)
    per_sequence = (1 - design.placement.host) * ledger.kv_stored / batch + activations
    return Memory(stored, room, activations, per_sequence, capacity.memory_margin(room, batch, per_sequence))
