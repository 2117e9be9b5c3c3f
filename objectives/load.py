"""Who works at a step: sequences and tokens, how unevenly they fall on devices, and what of KV moves over links."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from kvwall.objectives import parallel, prefill, speculation, tiers, weights
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bytes, Count, Ratio, Tokens


@dataclass(frozen=True)
class Load:
    """Who works at a step: sequences, tokens, and how unevenly they fall on the devices."""

    resident: Count
    """Sequences that the fullest attention rank keeps, parked ones included."""
    active: Count
    """Sequences of the replica that decode."""
    rank_sequences: Count
    """Of them, those of the attention rank that has most."""
    mean_sequences: Count
    """Of them, those of an attention rank on average."""
    scored: Count
    """Tokens per sequence that go through the model."""
    yielded: Count
    """Tokens per sequence that come out."""
    arriving: Count
    """Prompts that are prefilled meanwhile."""
    tokens: Count
    """Through the model, of all sequences and prompts."""
    micro: Count
    """Micro-batches of the pipeline."""

    def prompts_of(self, rank_sequences: Count) -> Count:
        """Prompts that an attention rank with so many sequences prefills meanwhile."""
        return self.arriving * (rank_sequences / self.active)

    @property
    def uneven(self) -> Ratio:
        """Sequences of the fullest rank over the mean."""
        return self.rank_sequences / self.mean_sequences


def load_of(design: Design) -> Load:
    """Who works at a step."""
    work, layout = design.workload, design.parallel
    active = tiers.active_sequences(work.batch, design.placement)
    of_rank = parallel.sequences_of_rank(active, layout)
    yielded = speculation.tokens_per_step(design.speculation)
    scored = speculation.scored_tokens(design.speculation)
    served = yielded * active / jnp.maximum(work.output_tokens, 1.0)
    arriving = jnp.where(work.continuous, served, 0.0)
    return Load(
        resident=parallel.sequences_of_rank(work.batch, layout),
        active=active,
        rank_sequences=of_rank,
        mean_sequences=active / layout.attention_data,
        scored=scored,
        yielded=yielded,
        arriving=arriving,
        tokens=active * scored + arriving * prefill.new_tokens(design),
        micro=parallel.micro_batches(of_rank, layout),
    )


def evaluated_context(design: Design) -> Tokens:
    """Tokens in the cache at the step that stands for the output: half of it written."""
    return design.workload.context + design.workload.output_tokens / 2


def spread_over_tiers(
    design: Design, load: Load, prompt: prefill.Prompt, kv_read: Bytes, rank_sequences: Count
) -> Bytes:
    """KV that lies in tiers by their fractions and moves in a step: streamed reads, and cached parts of prompts."""
    streamed = jnp.where(design.placement.parked, 0.0, kv_read)
    return streamed + load.prompts_of(rank_sequences) * prompt.cached


def experts_of_busiest(design: Design, load: Load) -> tuple[Bytes, Bytes]:
    """Bytes of experts that the busiest rank reads per step beyond the mean: (of decoder layers, of drafts)."""

    def more(tokens: Count) -> Bytes:
        bits, skew = design.precision.weight_bits, design.workload.expert_skew
        return load.micro * weights.experts_of_busiest(design.model, bits, tokens / load.micro, skew, design.parallel)

    return more(load.tokens), design.speculation.draft_tokens / design.model.layers * more(load.active)
