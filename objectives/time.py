"""Ceiling mode: perfect overlap, datasheet peaks. The step takes as long as its slowest single resource."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from kvwall.objectives import tiers
from kvwall.objectives.collectives import Sent
from kvwall.spaces.design import HardwareColumns
from kvwall.spaces.units import Bytes, BytesPerSecond, Code, Flop, FlopPerSecond, Ratio, Seconds

RESOURCES = ("hbm", "compute", "scale_up", "tier_link")
"""What can bind a step, in the order of the `bound_by` codes; of equal times the first binds."""


@dataclass(frozen=True)
class ResourceTimes:
    """Seconds that each resource of the worst device needs for the whole step."""

    hbm: Seconds
    compute: Seconds
    """The slowest arithmetic format."""
    scale_up: Seconds
    tier_link: Seconds

    def ordered(self) -> tuple[Seconds, ...]:
        """The times in the order of RESOURCES."""
        return self.hbm, self.compute, self.scale_up, self.tier_link


def transfer_time(size: Bytes, bandwidth: BytesPerSecond) -> Seconds:
    """Seconds to move `size` bytes.

    >>> transfer_time(70e9, 3.5e12)
    0.02
    """
    return size / bandwidth


def compute_time(flop: tuple[Flop, Flop, Flop], peaks: tuple[FlopPerSecond, FlopPerSecond, FlopPerSecond]) -> Seconds:
    """Seconds of arithmetic: each format against its own peak, the slowest counts."""
    sixteen, eight, four = (work / peak for work, peak in zip(flop, peaks, strict=True))
    return jnp.maximum(jnp.maximum(sixteen, eight), four)


def peaks(chip: HardwareColumns) -> tuple[FlopPerSecond, FlopPerSecond, FlopPerSecond]:
    """Peak of each arithmetic format, in the order of `compute.ByFormat`."""
    return chip.bf16_flops.value, chip.fp8_flops.value, chip.fp4_flops.value


def link_time(sent: Sent, chip: HardwareColumns) -> Seconds:
    """Seconds of a step's collectives: inside the scale-up domain and across domains, at the same time."""
    inside = transfer_time(sent.inside, chip.scale_up_bandwidth.value)
    return jnp.maximum(inside, transfer_time(sent.across, chip.scale_out_bandwidth.value))


def longest(times: ResourceTimes) -> Seconds:
    """The time of the resource that binds."""
    hbm, compute, scale_up, tier_link = times.ordered()
    return jnp.maximum(jnp.maximum(hbm, compute), jnp.maximum(scale_up, tier_link))


def on_device(times: ResourceTimes) -> Seconds:
    """The longest time but for tier links."""
    return jnp.maximum(jnp.maximum(times.hbm, times.compute), times.scale_up)


def step_time(times: ResourceTimes, link_overlap: Ratio) -> Seconds:
    """Seconds of one decode step: its slowest resource, and what of the tier links is not hidden behind the others."""
    partly = tiers.exposed(on_device(times), times.tier_link, link_overlap)
    return jnp.where(link_overlap < 1, partly, longest(times))


def second_longest(times: ResourceTimes) -> Seconds:
    """The time of the resource that would bind next."""
    hbm, compute, scale_up, tier_link = times.ordered()
    first, second = jnp.maximum(hbm, compute), jnp.maximum(scale_up, tier_link)
    others = jnp.maximum(jnp.minimum(hbm, compute), jnp.minimum(scale_up, tier_link))
    return jnp.maximum(jnp.minimum(first, second), others)


def bound_by(times: ResourceTimes) -> Code:
    """Index into RESOURCES of the resource that binds; of equal times the first.

    Compares times with each other, never with their maximum: a compiler may round the same time in two ways.
    """
    hbm, compute, scale_up, tier_link = times.ordered()
    on_chip, linked = jnp.maximum(hbm, compute), jnp.maximum(scale_up, tier_link)
    return jnp.where(linked > on_chip, jnp.where(tier_link > scale_up, 3, 2), jnp.where(compute > hbm, 1, 0))


def regime_distance(slowest: Seconds, second: Seconds) -> Ratio:
    """ln(slowest / second slowest): 0 on a boundary; how far the binding resource is ahead.

    >>> round(float(regime_distance(2.0, 1.0)), 4)
    0.6931
    """
    return jnp.log(slowest / second)
