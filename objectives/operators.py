"""What a decode step asks of the busiest device, operator by operator: bytes, FLOP, calls.

It is the ceiling's ledger in finer parts: nothing here depends on what engines achieve. Prefill of arriving prompts is
apart.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp

from kvwall.objectives import collectives, compute, dies, kv, parallel, prefill, tiers, weights
from kvwall.objectives.compute import ByFormat
from kvwall.objectives.load import Load, evaluated_context, experts_of_busiest, spread_over_tiers
from kvwall.spaces.achieved import ByWeight
from kvwall.spaces.design import Design, Experts, Matrices, ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count, Flag, Flop, Ratio, Real, Tokens

_SIXTEEN, _EIGHT = 12.0, 6.0
"""Bits above which weights are read like 16-bit ones, and above which like 8-bit ones."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stages:
    """The pipeline: what a step waits for of work that all layers share."""

    layers: Count
    stages: Count
    micro: Count

    def awaited(self, body: Real, end: Real, beside: Real) -> Real:
        """Of the most loaded stage for all micro-batches: of the layers, of the model's end, of layers besides."""
        worst = parallel.worst_stage(body, end, beside, self.layers, self.stages)
        return parallel.pipelined(worst, body + end + beside, self.micro, self.stages)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Operators:
    """Work of one decode step on the busiest device, all stages; of prompts that arrive meanwhile, of one."""

    stages: Stages
    dense: ByWeight
    """Bytes of the decoder layers without routed experts, by format."""
    experts: ByWeight
    """Bytes of routed experts."""
    ends: ByWeight
    """Bytes of the LM head, of embedding rows and of drafts."""
    matrices: tuple[ByFormat, ByFormat]
    """FLOP of the layers' matrices, and of the LM head."""
    kv: Bytes
    """KV read and written in device memory."""
    attention: Flop
    narrow_cache: Flag
    """Whether the KV is read at 8 bits or fewer."""
    latent: Flag
    """Whether it is latents."""
    query_group: Ratio
    """Query heads per KV head."""
    sent: collectives.Sent
    calls: Count
    """Collectives that wait for each other."""
    devices: Count
    """That take part in one."""
    hidden: Bytes
    """Of the hidden vectors of a rank's tokens, once for each layer."""
    expert_layers: Count
    sequences: Count
    spread: Bytes
    """KV that moves over the links of tiers, by their fractions."""
    prompt: ByFormat
    """FLOP of one prompt's prefill."""
    prompt_sent: collectives.Sent


def operators_of(design: Design, load: Load, cache: kv.Cache, prompt: prefill.Prompt) -> Operators:
    """The work of a step whose arriving prompts are apart: `load.arriving` and `load.tokens` must not count them."""
    model, layout, chip = design.model, design.parallel, design.hardware
    context, own = evaluated_context(design), design.workload.output_tokens / 2
    on_die = dies.imbalance(load.rank_sequences, chip.memory_domains.value, design.placement.pinned)
    kv_read = load.rank_sequences * cache.read(context, own)
    spread = spread_over_tiers(design, load, prompt, kv_read, load.rank_sequences)
    in_hbm = (1 - tiers.streamed_fraction(design.placement)) * kv_read
    in_hbm = in_hbm + load.rank_sequences * cache.written(load.scored)
    dense, experts, ends = _weights(design, load)
    layers, head, attention = _flop(design, load, cache, context)
    share = parallel.pipelined(
        parallel.layers_of_stage(model.layers, layout.pipeline), 1.0, load.micro, layout.pipeline
    )
    stage = parallel.stage_devices(layout)
    rank_tokens = load.rank_sequences * load.scored
    return Operators(
        stages=Stages(model.layers, layout.pipeline, load.micro),
        dense=dense,
        experts=experts,
        ends=ends,
        matrices=(layers, head),
        kv=in_hbm * on_die,
        attention=attention,
        narrow_cache=compute.attention_operand_bits(design.kv_format.key_bits, design.kv_format.value_bits) <= 8,
        latent=jnp.any(jnp.logical_and(model.groups.fixed_dim > 0, model.groups.layers > 0), axis=0),
        query_group=_query_group(model),
        sent=collectives.sent_in_step(design, rank_tokens, load.tokens, share),
        calls=collective_calls(design),
        devices=jnp.maximum(stage, layout.pipeline),
        hidden=rank_tokens * model.hidden * model.layers * kv.FULL_BITS / kv.BITS_PER_BYTE,
        expert_layers=model.experts.layers,
        sequences=load.rank_sequences,
        spread=spread,
        prompt=prompt.flop(1.0, 1.0, parallel.hot_rank(model.experts, design.workload.expert_skew, layout.expert)),
        prompt_sent=collectives.sent_in_step(design, prompt.tokens, prompt.tokens, 1.0),
    )


def _query_group(model: ModelColumns) -> Ratio:
    """Query heads per KV head of the store that has most of them."""
    some = jnp.logical_and(model.groups.kv_heads > 0, model.groups.layers > 0)
    each = model.groups.query_heads / jnp.where(some, model.groups.kv_heads, 1.0)
    return jnp.maximum(jnp.max(jnp.where(some, each, 1.0), axis=0), 1.0)


def by_weight(amount: Bytes, bits: Bits, activation_bits: Bits) -> ByWeight:
    """The amount in the slot of its format.

    >>> slots = by_weight(100.0, 4.0, 16.0)
    >>> float(slots.four_only), float(slots.four), float(slots.sixteen)
    (100.0, 0.0, 0.0)
    """
    wide, narrow = bits > _SIXTEEN, bits <= _EIGHT
    middle = jnp.logical_not(jnp.logical_or(wide, narrow))
    eight, four = activation_bits <= 8, activation_bits <= 4

    def where(*flags: Flag) -> Bytes:
        found = amount
        for flag in flags:
            found = jnp.where(flag, found, 0.0)
        return found

    return ByWeight(
        sixteen=where(wide),
        eight=where(middle, eight),
        eight_only=where(middle, jnp.logical_not(eight)),
        four=where(narrow, four),
        four_only=where(narrow, jnp.logical_not(four)),
    )


def added(*parts: ByWeight) -> ByWeight:
    """The sum, format by format."""
    return ByWeight(**{field.name: sum(getattr(part, field.name) for part in parts) for field in fields(ByWeight)})


def _class_bytes(design: Design, matrices: Matrices | Experts, size: Bytes) -> ByWeight:
    bits = weights.format_bits(matrices, design.precision.weight_bits)
    return by_weight(size, bits, design.precision.activation_bits)


def _dense(design: Design, passes: Count) -> ByWeight:
    """Bytes of the decoder layers without routed experts, by format, read so many times."""
    model, layout = design.model, design.parallel
    parts = weights.layer_parts(model, design.precision.weight_bits, layout)
    return added(
        _class_bytes(design, model.query_output, passes * parts.query_output),
        _class_bytes(design, model.key_value, passes * parts.key_value),
        _class_bytes(design, model.ffn, passes * parts.ffn),
        by_weight(passes * parts.whole, kv.FULL_BITS, design.precision.activation_bits),
    )


def _weights(design: Design, load: Load) -> tuple[ByWeight, ByWeight, ByWeight]:
    """Bytes by format: (dense of the layers, routed experts, ends with drafts), all micro-batches."""
    model, layout = design.model, design.parallel
    bits, drafted = design.precision.weight_bits, design.speculation.draft_tokens
    dense = _dense(design, load.micro)
    more, more_of_drafts = experts_of_busiest(design, load)
    skew = design.workload.expert_skew

    def routed(tokens: Count) -> Bytes:
        return weights.experts_streamed(model, bits, tokens / load.micro, skew, layout)

    experts = _class_bytes(design, model.experts, load.micro * routed(load.tokens) + more)
    stage = parallel.stage_devices(layout)
    head = weights.head_bytes(model, bits, stage)
    draft_dense = weights.layer_bytes(model, bits, layout) / model.layers
    draft_experts = load.micro * drafted * routed(load.active) / model.layers + more_of_drafts
    rows = load.tokens * weights.embedding_row_bytes(model, stage)
    ends = added(
        _class_bytes(design, model.head, load.micro * (1 + drafted) * head),
        _class_bytes(design, model.ffn, load.micro * drafted * draft_dense),
        _class_bytes(design, model.experts, draft_experts),
        by_weight(rows, kv.FULL_BITS, design.precision.activation_bits),
    )
    return dense, experts, ends


@dataclass(frozen=True)
class PromptWork:
    """Work of one prompt alone on the replica, in one piece through all stages, on the mean device."""

    dense: ByWeight
    """Bytes of the decoder layers without routed experts, of the LM head and of embedding rows, by format."""
    experts: ByWeight
    """Bytes of the routed experts that the prompt meets."""
    flop: ByFormat
    """Of the layers, attention included."""
    head: ByFormat
    """FLOP of the LM head, for the last token."""
    kv: Bytes
    """KV written, and cached KV read, in device memory."""
    sent: collectives.Sent
    calls: Count
    devices: Count


def prompt_work(design: Design, prompt: prefill.Prompt) -> PromptWork:
    """The work of a prompt that arrives at an idle replica."""
    model, layout, form = design.model, design.parallel, design.precision
    stage, skew = parallel.stage_devices(layout), design.workload.expert_skew
    met = weights.experts_streamed(model, form.weight_bits, prompt.tokens, skew, layout)
    rows = prompt.tokens * weights.embedding_row_bytes(model, stage)
    return PromptWork(
        dense=added(
            _dense(design, 1.0),
            _class_bytes(design, model.head, weights.head_bytes(model, form.weight_bits, stage)),
            by_weight(rows, kv.FULL_BITS, form.activation_bits),
        ),
        experts=_class_bytes(design, model.experts, met),
        flop=prompt.flop(1.0, 1.0, parallel.hot_rank(model.experts, skew, layout.expert)),
        head=compute.head_flop(model, form.weight_bits, form.activation_bits, 1 / stage),
        kv=prompt.kv_bytes,
        sent=collectives.sent_in_step(design, prompt.tokens, prompt.tokens, 1.0),
        calls=collective_calls(design),
        devices=jnp.maximum(stage, layout.pipeline),
    )


def collective_calls(design: Design) -> Count:
    """Collectives of a pass through all layers that wait for each other."""
    model, layout = design.model, design.parallel
    inside = jnp.where(parallel.stage_devices(layout) > 1, model.reduces_per_layer * model.layers, 0.0)
    return inside + layout.pipeline - 1


def _flop(design: Design, load: Load, cache: kv.Cache, context: Tokens) -> tuple[ByFormat, ByFormat, Flop]:
    """FLOP on the busiest device: (the layers' matrices, the LM head, attention), drafts in all."""
    model, bits, layout = design.model, design.precision, design.parallel
    attending, stage = parallel.attention_devices(layout), parallel.stage_devices(layout)
    drafted = design.speculation.draft_tokens
    passes = load.scored + drafted / model.layers
    hot = parallel.hot_rank(model.experts, design.workload.expert_skew, layout.expert)
    of_rank = load.rank_sequences * passes / attending
    tokens = (of_rank, load.active * passes / stage, load.active * passes * hot / stage)
    layers = compute.layers_flop(model, bits.weight_bits, bits.activation_bits, tokens)
    scored = load.active * (load.scored + drafted) / stage
    head = compute.head_flop(model, bits.weight_bits, bits.activation_bits, scored)
    return layers, head, of_rank * compute.attention_flop(model.groups, *cache.read_entries(context))
