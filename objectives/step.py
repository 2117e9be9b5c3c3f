"""One decode step of a design: the ledger of bytes and FLOP, the times and the memory, everything metrics read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp

from kvwall.objectives import (
    collectives,
    compute,
    dies,
    kv,
    memory,
    parallel,
    prefill,
    tiers,
    time,
    transfer,
    weights,
)
from kvwall.objectives.beyond import spread_beyond
from kvwall.objectives.compute import ByFormat
from kvwall.objectives.estimate import Estimate, Served
from kvwall.objectives.first_token import first_token_time
from kvwall.objectives.known import surely
from kvwall.objectives.load import Load, evaluated_context, experts_of_busiest, load_of, spread_over_tiers
from kvwall.objectives.operators import Operators, operators_of
from kvwall.spaces.achieved import Calibrated
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bytes, Count, Flop, Ratio, Real, Seconds


@dataclass(frozen=True)
class Ledger:
    """Bytes and FLOP of one step on a device, the mean over a stage's devices and summed over the stages.

    Times the devices of a stage they are those of the replica.
    """

    cache: kv.Cache
    kept_fraction: Ratio
    layers_read: Bytes
    """Weights of the decoder layers."""
    ends_read: Bytes
    """Weights of the LM head, of embedding rows and of drafts."""
    kv_read: Bytes
    """All tiers together."""
    kv_written: Bytes
    kv_stored: Bytes
    """At the end of the output, all tiers together."""
    spread: Bytes
    """KV of which every tier moves its fraction over its link."""
    kv_in_hbm: Bytes
    """KV that moves in device memory: read, written, and that of prompts."""
    sent: collectives.Sent
    """By the busiest device, as much as a step waits for."""
    flop_by_format: ByFormat

    @property
    def weights_read(self) -> Bytes:
        """All weights."""
        return self.layers_read + self.ends_read

    @property
    def hbm_bytes(self) -> Bytes:
        """All that moves in device memory."""
        return self.weights_read + self.kv_in_hbm

    @property
    def flop(self) -> Flop:
        """All formats together."""
        sixteen, eight, four = self.flop_by_format
        return sixteen + eight + four


@dataclass(frozen=True)
class Step:
    """What every metric of a design is computed from."""

    load: Load
    ledger: Ledger
    memory: memory.Memory
    times: time.ResourceTimes
    time: Seconds
    """Of a step on average: throughput follows from it."""
    token_time: Seconds
    """Between the tokens of a sequence; the same but for an estimate with arriving prompts."""
    estimate: Estimate | None = None
    """Of a design that has a calibration; None in ceiling mode."""

    @property
    def estimated(self) -> Estimate:
        """The estimate of a step that is one."""
        if self.estimate is None:
            raise TypeError("a step of ceiling mode has no estimate")
        return self.estimate

    @property
    def ceiling(self) -> Step:
        """The same step as the ceiling has it."""
        if self.estimate is None:
            return self
        fastest = self.estimate.served.ceiling
        return replace(self, time=fastest, token_time=fastest, estimate=None)


def evaluate_step(design: Design) -> Step:
    """The step of a design, or of every point of a grid of designs: an estimate where the design is calibrated."""
    load = load_of(design)
    cache = kv.cache_of(design, load.resident, load.rank_sequences)
    prompt = prefill.prompt_of(design, cache, design.prefix.hit_rate)
    ledger = ledger_of(design, load, cache, prompt)
    times = times_of(design, load, ledger, prompt)
    held = memory.memory_of(design, cache, load.resident)
    ceiling = time.step_time(times, design.placement.link_overlap)
    if design.calibrated is None:
        return Step(load, ledger, held, times, ceiling, ceiling)
    estimate = estimate_of(design, load, cache, prompt, ceiling)
    return Step(load, ledger, held, times, estimate.iteration, estimate.token, estimate)


def estimate_of(design: Design, load: Load, cache: kv.Cache, prompt: prefill.Prompt, ceiling: Seconds) -> Estimate:
    """The step of a calibrated design as a deployment will see it, never faster than `ceiling`."""
    work = decoding_work(design, load, cache, prompt)
    loaded = work.spread + load.prompts_of(load.rank_sequences) * prompt.cached
    moved = work.stages.awaited(0.0, 0.0, loaded)
    served = Served(
        transfer=transfer.slowdown(design, cache) * tiers.slowest_transfer(moved, design.placement, design.hardware),
        link_overlap=design.placement.link_overlap,
        arriving=load.arriving,
        static=surely(design.workload.continuous, False),
        active=load.active,
        ceiling=ceiling,
    )
    return Estimate(
        work=work,
        calibrated=_calibrated(design),
        chip=design.hardware,
        served=served,
        routed=design.model.experts.layers > 0,
        beyond=spread_beyond(design, load, _calibrated(design).reached),
        first=partial(first_token_time, design, cache),
    )


def decoding_work(design: Design, load: Load, cache: kv.Cache, prompt: prefill.Prompt) -> Operators:
    """Operators of a step without the prompts that arrive."""
    decoding = replace(load, arriving=jnp.zeros_like(load.arriving), tokens=load.active * load.scored)
    return operators_of(design, decoding, cache, prompt)


def _calibrated(design: Design) -> Calibrated:
    if design.calibrated is None:
        raise TypeError("a design of ceiling mode has no calibration")
    return design.calibrated


def ledger_of(design: Design, load: Load, cache: kv.Cache, prompt: prefill.Prompt) -> Ledger:
    """Bytes and FLOP of one step."""
    work, layout = design.workload, design.parallel
    context = evaluated_context(design)
    kv_read = load.mean_sequences * cache.read(context, work.output_tokens / 2)
    kv_written = load.mean_sequences * cache.written(load.scored)
    streamed = tiers.streamed_fraction(design.placement)
    layers_read, ends_read = weights_streamed(design, load)
    rank_tokens = load.rank_sequences * load.scored + load.prompts_of(load.rank_sequences) * prompt.tokens
    share = parallel.pipelined(
        parallel.layers_of_stage(design.model.layers, layout.pipeline), 1.0, load.micro, layout.pipeline
    )
    layers, ends = flop_of(design, load, cache, prompt, load.mean_sequences, 1.0)
    return Ledger(
        cache=cache,
        kept_fraction=cache.kept_fraction(context),
        layers_read=layers_read,
        ends_read=ends_read,
        kv_read=kv_read,
        kv_written=kv_written,
        kv_stored=work.batch
        / layout.attention_data
        * cache.stored(work.context + work.output_tokens, work.output_tokens),
        spread=spread_over_tiers(design, load, prompt, kv_read, load.mean_sequences),
        kv_in_hbm=(1 - streamed) * kv_read + kv_written + load.prompts_of(load.mean_sequences) * prompt.kv_bytes,
        sent=collectives.sent_in_step(design, rank_tokens, load.tokens, share),
        flop_by_format=compute.added(layers, ends),
    )


def weights_streamed(design: Design, load: Load) -> tuple[Bytes, Bytes]:
    """Bytes of weights that a device reads per step: (decoder layers, the rest); each micro-batch reads them again.

    The rest is the LM head, a row of the input tables per token and, for each drafted token, one layer and the head.
    """
    model, bits, layout = design.model, design.precision.weight_bits, design.parallel
    stage, skew, drafted = parallel.stage_devices(layout), design.workload.expert_skew, design.speculation.draft_tokens
    layers = weights.layers_streamed(model, bits, load.tokens / load.micro, skew, layout)
    head = weights.head_bytes(model, bits, stage)
    draft_layer = weights.layers_streamed(model, bits, load.active / load.micro, skew, layout) / model.layers
    ends = head + drafted * (draft_layer + head)
    return load.micro * layers, load.micro * ends + load.tokens * weights.embedding_row_bytes(model, stage)


def flop_of(
    design: Design, load: Load, cache: kv.Cache, prompt: prefill.Prompt, rank_sequences: Count, hot: Ratio
) -> tuple[ByFormat, ByFormat]:
    """FLOP of a step on a device: (decoder layers with attention and prompts, LM head), drafts in both.

    Args:
        design: the design.
        load: who works.
        cache: what attention reads.
        prompt: the work of one prompt.
        rank_sequences: sequences of the device's attention rank.
        hot: tokens at its experts over the mean.
    """
    model, bits, form, layout = design.model, design.precision, design.kv_format, design.parallel
    attending, stage = parallel.attention_devices(layout), parallel.stage_devices(layout)
    drafted = design.speculation.draft_tokens
    passes = load.scored + drafted / model.layers
    tokens = (rank_sequences * passes / attending, load.active * passes / stage, load.active * passes * hot / stage)
    of_token = compute.attention_flop(model.groups, *cache.read_entries(evaluated_context(design)))
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    layers = compute.added(
        compute.layers_flop(model, bits.weight_bits, bits.activation_bits, tokens),
        compute.split_by_format(rank_sequences * passes / attending * of_token, operand, bits.activation_bits),
        prompt.flop(load.prompts_of(rank_sequences), load.arriving, hot),
    )
    scored = load.active * (load.scored + drafted) / stage
    return layers, compute.head_flop(model, bits.weight_bits, bits.activation_bits, scored)


def times_of(design: Design, load: Load, ledger: Ledger, prompt: prefill.Prompt) -> time.ResourceTimes:
    """Seconds each resource of the busiest device needs."""
    chip, model, layout = design.hardware, design.model, design.parallel

    def awaited(body: Real, end: Real, beside: Real) -> Real:
        worst = parallel.worst_stage(body, end, beside, model.layers, layout.pipeline)
        return parallel.pipelined(worst, body + end + beside, load.micro, layout.pipeline)

    on_die = dies.imbalance(load.rank_sequences, chip.memory_domains.value, design.placement.pinned)
    more, more_of_drafts = experts_of_busiest(design, load)
    of_kv = ledger.kv_in_hbm * load.uneven * on_die
    moved = awaited(ledger.layers_read + more, ledger.ends_read + more_of_drafts, of_kv)
    hot = parallel.hot_rank(model.experts, design.workload.expert_skew, layout.expert)
    layers, ends = flop_of(design, load, ledger.cache, prompt, load.rank_sequences, hot)
    sixteen, eight, four = (awaited(body, end, 0.0) for body, end in zip(layers, ends, strict=True))
    spread = spread_over_tiers(design, load, prompt, ledger.kv_read * load.uneven, load.rank_sequences)
    return time.ResourceTimes(
        hbm=time.transfer_time(moved, chip.memory_bandwidth),
        compute=time.compute_time((sixteen, eight, four), time.peaks(chip)),
        scale_up=time.link_time(ledger.sent, chip),
        tier_link=tiers.slowest_transfer(awaited(0.0, 0.0, spread), design.placement, chip),
    )
