"""One decode step of a design: the ledger of bytes and FLOP, the times and the memory, everything metrics read."""

from __future__ import annotations

from dataclasses import dataclass

from kvwall.objectives import capacity, collectives, compute, kv, time, weights
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bytes, Flop, Ratio, Seconds, Tokens


@dataclass(frozen=True)
class Ledger:
    """Bytes and FLOP of one step on the worst device."""

    cache: kv.Cache
    kept_fraction: Ratio
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
    model, work, bits = design.model, design.workload, design.precision
    devices, batch = design.parallel.tensor, work.batch
    cache = kv.cache_of(model.groups, devices, design.kv_format, design.eviction)
    context = work.context + work.output_tokens / 2
    kv_read = batch * cache.read(context)
    kv_written = batch * cache.written()
    tier_read = design.placement.host * kv_read
    weights_read = weights_streamed(design)
    return Ledger(
        cache=cache,
        kept_fraction=cache.kept_fraction(context),
        weights_read=weights_read,
        kv_read=kv_read,
        kv_written=kv_written,
        kv_stored=batch * cache.stored(work.context + work.output_tokens),
        tier_read=tier_read,
        hbm_bytes=weights_read + (1 - design.placement.host) * kv_read + kv_written,
        scale_up_bytes=batch * collectives.all_reduce_bytes(model, bits.activation_bits, devices),
        flop_by_format=_flop(design, cache, context),
    )


def weights_streamed(design: Design) -> Bytes:
    """Bytes of weights that one device reads per step: dense ones, the experts that are met, embedding rows."""
    model, devices, bits = design.model, design.parallel.tensor, design.precision.weight_bits
    batch = design.workload.batch
    met = weights.distinct_experts(model.experts, batch)
    return (
        weights.matrix_bytes(model, bits, devices)
        + weights.expert_bytes(model.experts, bits, met, devices)
        + batch * weights.embedding_row_bytes(model, devices)
    )


def weights_stored(design: Design) -> Bytes:
    """Bytes of all weights that one device holds."""
    model, devices, bits = design.model, design.parallel.tensor, design.precision.weight_bits
    return (
        weights.matrix_bytes(model, bits, devices)
        + weights.expert_bytes(model.experts, bits, model.experts.routed, devices)
        + weights.embedding_table_bytes(model, devices)
    )


def _flop(design: Design, cache: kv.Cache, context: Tokens) -> tuple[Flop, Flop, Flop]:
    bits, form = design.precision, design.kv_format
    gemm = compute.gemm_flop_per_token(design.model, bits.weight_bits, bits.activation_bits)
    of_token = compute.attention_flop(design.model.groups, *cache.read_entries(context))
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    attention = compute.split_by_format(of_token, operand, bits.activation_bits)
    per_device = design.workload.batch / design.parallel.tensor
    sixteen, eight, four = (per_device * (weight + kv_part) for weight, kv_part in zip(gemm, attention, strict=True))
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
    stored = weights_stored(design)
    room = design.utilisation * design.hardware.memory_capacity - stored
    activations = capacity.activation_bytes(model, design.precision.activation_bits, devices)
    per_sequence = (1 - design.placement.host) * ledger.kv_stored / batch + activations
    return Memory(stored, room, activations, per_sequence, capacity.memory_margin(room, batch, per_sequence))
