"""Estimate of the time to the first token: one prompt alone on the replica, at what the engine achieves."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives import prefill, tiers, time, transfer
from kvwall.objectives.estimate import inverse, multiply_time, of_devices, of_large_messages, read_time
from kvwall.objectives.known import surely
from kvwall.objectives.kv import Cache
from kvwall.objectives.operators import PromptWork, prompt_work
from kvwall.objectives.overlap import overlapped
from kvwall.spaces.achieved import Achieved
from kvwall.spaces.design import Design
from kvwall.spaces.units import Ratio, Seconds


def first_token_time(design: Design, cache: Cache, achieved: Achieved) -> Seconds:
    """Seconds to the first token of a prompt of `context` tokens; never below the ceiling.

    As in `prefill.time_to_first_token`: cached tokens that lie in tiers are loaded, or all computed again.
    """
    hit_rate, placement = design.prefix.hit_rate, design.placement
    ceiling = prefill.time_to_first_token(design, cache)
    found = _prompt_seconds(design, cache, hit_rate, achieved)
    if surely(hit_rate, 0.0):
        return jnp.maximum(found, ceiling)
    cached = cache.alone.stored(hit_rate * design.workload.context, 0.0)
    load = transfer.slowdown(design, cache) * tiers.slowest_transfer(cached, placement, design.hardware)
    loaded = tiers.exposed(found, load, placement.link_overlap)
    away = jnp.logical_and(tiers.placed_fraction(placement) > 0, hit_rate > 0)
    again = _prompt_seconds(design, cache, 0.0, achieved)
    return jnp.maximum(jnp.where(away, jnp.minimum(loaded, again), found), ceiling)


def _prompt_seconds(design: Design, cache: Cache, hit_rate: Ratio, achieved: Achieved) -> Seconds:
    return sum(prompt_times(design, prompt_work(design, prefill.prompt_of(design, cache, hit_rate)), achieved))


def prompt_times(design: Design, work: PromptWork, achieved: Achieved) -> tuple[Seconds, Seconds, Seconds]:
    """Seconds of a prompt alone: (matrices with attention and what they read, collectives, what calls cost besides)."""
    chip = design.hardware
    read = read_time(work.dense, achieved.weights, chip.memory_bandwidth)
    read = read + read_time(work.experts, achieved.experts, chip.memory_bandwidth)
    read = read + time.transfer_time(work.kv, chip.memory_bandwidth)
    multiplied = achieved.prefill * multiply_time(work.flop, achieved.compute, chip)
    multiplied = multiplied + multiply_time(work.head, achieved.compute, chip)
    slower, fixed = (of_devices(each, work.devices) for each in (inverse(achieved.link), achieved.collective))
    sent = time.link_time(work.sent, chip) * of_large_messages(slower) + work.calls * fixed
    calls = design.model.layers * achieved.prompt_layer + achieved.step + achieved.sequence
    return overlapped(read, multiplied), sent, calls
