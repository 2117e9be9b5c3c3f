"""Tiers: which share of the KV each holds, what a step moves over its link, and the sequences that decode."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.spaces.design import NO_LIMIT, HardwareColumns, Placement, Tier
from kvwall.spaces.units import Bytes, Count, Flag, Ratio, Seconds

TIERS = ("host", "cxl", "nvme", "remote")
_SOME = 1e-6
"""Share that decodes where all is parked, which is no possible layout: its numbers stay finite."""


def placed_tiers(placement: Placement, chip: HardwareColumns) -> tuple[tuple[Ratio, Tier], ...]:
    """(fraction of the kept KV, tier) in the order of TIERS."""
    return (
        (placement.host, chip.host),
        (placement.cxl, chip.cxl),
        (placement.nvme, chip.nvme),
        (placement.remote, chip.remote),
    )


def placed_fraction(placement: Placement) -> Ratio:
    """Share of the kept KV that is not in device memory."""
    return placement.host + placement.cxl + placement.nvme + placement.remote


def streamed_fraction(placement: Placement) -> Ratio:
    """Share of the KV that a step reads over links: none where tiers hold idle sequences."""
    return jnp.where(placement.parked, 0.0, jnp.minimum(placed_fraction(placement), 1.0))


def active_sequences(batch: Count, placement: Placement) -> Count:
    """Sequences that decode: those not parked in a tier.

    >>> half = Placement(0.5, 0.0, 0.0, 0.0, True, 1.0, False)
    >>> float(active_sequences(64.0, half))
    32.0
    """
    return batch * active_share(placement)


def active_share(placement: Placement) -> Ratio:
    """Share of the sequences that decode."""
    return jnp.where(placement.parked, jnp.maximum(1 - placed_fraction(placement), _SOME), 1.0)


def links_known(placement: Placement, chip: HardwareColumns) -> Flag:
    """Whether the link of every tier that holds KV has a source."""
    return reduce(
        jnp.logical_and,
        [jnp.logical_or(tier.bandwidth.known, placed <= 0) for placed, tier in placed_tiers(placement, chip)],
    )


def slowest_transfer(size: Bytes, placement: Placement, chip: HardwareColumns) -> Seconds:
    """Seconds to move `size` bytes of KV that lie in the tiers by their fractions, all links at once."""
    (at_host, host), *others = placed_tiers(placement, chip)
    used = [jnp.where(placed > 0, placed * size / tier.bandwidth.value, -NO_LIMIT) for placed, tier in others]
    return reduce(jnp.maximum, used, at_host * size / host.bandwidth.value)


def exposed(hidden_behind: Seconds, transfer: Seconds, overlap: Ratio) -> Seconds:
    """Seconds of work and transfer together, `overlap` of the transfer hidden behind the work.

    >>> float(exposed(3.0, 2.0, 1.0)), float(exposed(3.0, 2.0, 0.0)), float(exposed(3.0, 2.0, 0.5))
    (3.0, 5.0, 4.0)
    """
    return jnp.maximum(hidden_behind, overlap * transfer) + (1 - overlap) * transfer
