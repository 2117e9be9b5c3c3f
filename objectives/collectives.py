"""Collectives of a step: bytes that one device sends inside its scale-up domain and across domains, and messages.

A collective over more devices than a domain joins is done in two levels: inside each domain as over that many devices,
and across domains by each device for its share of the message.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE
from kvwall.objectives.parallel import (
    attention_devices,
    expert_tensor,
    hot_rank,
    replica_devices,
    stage_devices,
)
from kvwall.objectives.whole import parts_down, parts_up
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bytes, Count, Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sent:
    """Bytes that one device of a stage sends in a step, all layers."""

    inside: Bytes
    across: Bytes


def ring_share(devices: Count) -> Ratio:
    """Part of a message that each of the devices sends once around: (n - 1)/n.

    >>> ring_share(4.0)
    0.75
    """
    return (devices - 1) / devices


def sent_by_collective(message: Bytes, devices: Count, rounds: Count, domain: Count) -> Sent:
    """What one device sends: `rounds` times a share of the message; an all-reduce has two rounds, ring algorithm.

    >>> sent = sent_by_collective(100.0, 16.0, 2.0, 8.0)
    >>> float(sent.inside), float(sent.across)
    (175.0, 12.5)
    """
    near = jnp.minimum(devices, domain)
    domains = parts_up(devices, domain)
    crossing = devices > domain
    across = jnp.where(crossing, rounds * ring_share(domains) * message / near, 0.0)
    return Sent(rounds * ring_share(near) * message, across)


def sent_to_experts(message: Bytes, visits: tuple[Ratio, Ratio], ranks: Count, split: Count, domain: Count) -> Sent:
    """Dispatch and combine over expert ranks of `split` devices each, which may lie in several domains.

    A token crosses into a domain once and is handed on inside it.

    Args:
        message: bytes of all tokens.
        visits: shares of the tokens that visit a rank, and a domain.
        ranks: expert ranks.
        split: devices of each.
        domain: devices that a scale-up link joins.

    >>> sent = sent_to_experts(100.0, (1.0, 0.5), 8.0, 4.0, 8.0)
    >>> float(sent.inside), float(sent.across)
    (100.0, 9.375)
    """
    to_rank, to_domain = visits
    near = jnp.minimum(ranks, jnp.maximum(parts_down(domain, split), 1.0))
    domains = parts_up(ranks * split, domain)
    crossing = jnp.logical_and(ranks > 1, domains > 1)
    across = jnp.where(crossing, 2 * ring_share(domains) * message * to_domain / domain, 0.0)
    return Sent(jnp.where(ranks > 1, 2 * ring_share(near), 0.0) * message * to_rank, across)


def visiting_share(active: Count, ranks: Count, hot: Ratio) -> Ratio:
    """Share of the tokens that the busiest of the expert ranks gets: those with one or more of their experts there.

    >>> float(visiting_share(2.0, 4.0, 1.0)), float(visiting_share(2.0, 1.0, 1.0))
    (0.4375, 1.0)
    """
    several = ranks > 1
    missed = jnp.where(several, 1 - jnp.minimum(hot / ranks, 1.0), 0.5)
    return jnp.where(several, 1 - missed**active, 1.0)


def expert_visits(design: Design) -> tuple[Ratio, Ratio]:
    """Shares of the tokens that visit the busiest expert rank, and a scale-up domain."""
    experts, ranks = design.model.experts, design.parallel.expert
    hot = hot_rank(experts, design.workload.expert_skew, ranks)
    domains = parts_up(stage_devices(design.parallel), design.hardware.scale_up_domain)
    to_domain = visiting_share(experts.active, jnp.minimum(ranks, domains), 1.0)
    return visiting_share(experts.active, ranks, hot), to_domain


def sent_in_step(design: Design, rank_tokens: Count, tokens: Count, layer_share: Ratio) -> Sent:
    """All collectives of a step on the busiest device.

    Half of a layer's all-reduces are attention's, of the tokens of an attention rank; half the FFN's, of all tokens.
    In expert layers the latter are a dispatch and a combine over expert ranks and an all-reduce over the devices that
    split an expert.

    Args:
        design: the design.
        rank_tokens: tokens of the attention rank with most of them.
        tokens: tokens of all ranks.
        layer_share: share of the layers whose collectives a step waits for.
    """
    model, parallel, domain = design.model, design.parallel, design.hardware.scale_up_domain
    size = model.hidden * design.precision.activation_bits / BITS_PER_BYTE
    half = model.reduces_per_layer / 2
    ranks, split, stage = parallel.expert, expert_tensor(parallel), stage_devices(parallel)
    to_rank, to_domain = expert_visits(design)
    expert_layers = model.experts.layers
    parts = (
        (model.layers * half, sent_by_collective(rank_tokens * size, attention_devices(parallel), 2.0, domain)),
        ((model.layers - expert_layers) * half, sent_by_collective(tokens * size, stage, 2.0, domain)),
        (expert_layers * half, sent_to_experts(tokens * size, (to_rank, to_domain), ranks, split, domain)),
        (expert_layers * half, sent_by_collective(tokens * to_rank * size, split, 2.0, domain)),
        (1.0, sent_by_collective(rank_tokens * partial_results(design), parallel.context, 1.0, domain)),
    )
    inside = sum((layer_share * each * one.inside for each, one in parts), start=0.0)
    across = sum((layer_share * each * one.across for each, one in parts), start=0.0)
    handed = jnp.where(parallel.pipeline > 1, tokens * size / stage, 0.0)  # by every stage at the same time
    apart = replica_devices(parallel) > domain
    return Sent(inside + jnp.where(apart, 0.0, handed), across + jnp.where(apart, handed, 0.0))


def partial_results(design: Design) -> Bytes:
    """Bytes of a token's queries and partial results that ranks of context parallelism exchange, all layers."""
    groups = design.model.groups
    heads = groups.query_heads * (groups.score_dim + groups.mix_dim) / design.parallel.tensor
    elements = jnp.sum(groups.layers * groups.readers * heads, axis=0)
    exchanged = elements * design.precision.activation_bits / BITS_PER_BYTE
    return jnp.where(design.parallel.context > 1, exchanged, 0.0)


def messages_in_step(design: Design) -> Count:
    """Messages of a step that wait for each other: hops of every collective on a ring, hand-overs of the pipeline.

    Times a hop's latency they are what a step costs at the least when messages are small (alpha of alpha-beta).
    """
    model, parallel = design.model, design.parallel
    half, expert_layers = model.reduces_per_layer / 2, model.experts.layers
    reduces = (
        model.layers * half * (attention_devices(parallel) - 1)
        + (model.layers - expert_layers) * half * (stage_devices(parallel) - 1)
        + expert_layers * half * (parallel.expert - 1 + expert_tensor(parallel) - 1)
    )
    exchanges = jnp.sum(model.groups.layers * model.groups.readers, axis=0) * (parallel.context - 1)
    return 2 * reduces + exchanges + parallel.pipeline - 1
