"""Chiplets: KV striped over all dies of a device, or a sequence's pages pinned to the memory of one."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.whole import parts_up
from kvwall.spaces.units import Count, Flag, Ratio


def imbalance(sequences: Count, domains: Count, pinned: Flag) -> Ratio:
    """KV of the busiest die over the mean: striped 1; pinned, sequences go round the dies and one die has most.

    A page on one die is read at that die's share of the bandwidth, whichever die asks.

    >>> float(imbalance(1.0, 2.0, True)), float(imbalance(3.0, 2.0, True)), float(imbalance(3.0, 2.0, False))
    (2.0, 1.3333333730697632, 1.0)
    """
    some = jnp.maximum(sequences, 1.0)
    return jnp.where(pinned, parts_up(some, domains) * domains / some, 1.0)
