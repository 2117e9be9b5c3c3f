"""The memory wall: which regime a step is in, and the context at which KV traffic passes weight traffic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import jax.numpy as jnp

from kvwall.objectives import inverse
from kvwall.objectives.kv import Cache
from kvwall.spaces.units import Bytes, Code, Count, Flag, Ratio, Real, Seconds, Tokens

PHASES = ("weight", "kv", "capacity")
REGIMES = ("weight", "kv", "compute", "scale_up", "tier_link", "overhead")


def phase(weights: Bytes, kv_read: Bytes, margin: Bytes) -> Code:
    """Index into PHASES: what the step reads most, or that it does not fit."""
    return jnp.where(margin < 0, 2, jnp.where(kv_read > weights, 1, 0))


def regime(bound_by: Code, weights: Bytes, kv_in_hbm: Bytes) -> Code:
    """Index into REGIMES: the larger HBM share where HBM binds (code 0), else the binding resource."""
    return jnp.where(bound_by == 0, jnp.where(kv_in_hbm > weights, 1, 0), bound_by + 1)


def crossover_context(weights: Bytes, sequences: Count, cache: Cache, own: Tokens) -> Tokens:
    """Context at which a step reads as many KV bytes as weight bytes.

    Infinite where KV never reads so much (windows, recurrent states), 0 where the state alone does.

    Args:
        weights: bytes of weights one device reads per step.
        sequences: that it reads KV of.
        cache: how the same device keeps and reads KV.
        own: tokens at the end of the context that are of no prompt.
    """
    return inverse.context_read_in(weights / sequences, cache, own)


def distance(amount: Real, other: Real) -> Ratio:
    """ln(amount / other): how far on its side of the boundary where both are equal an amount is.

    >>> round(float(distance(2.0, 1.0)), 4), round(float(distance(1.0, 2.0)), 4)
    (0.6931, -0.6931)
    """
    return jnp.log(amount / other)


def resource_distances(times: Sequence[Seconds]) -> tuple[Ratio, ...]:
    """Per resource ln(its time / the longest of the others'): above 0 for the one that binds; -inf where unused.

    >>> [round(float(each), 4) for each in resource_distances((4.0, 2.0, 1.0))]
    [0.6931, -0.6931, -1.3863]
    """
    return tuple(
        distance(own, reduce(jnp.maximum, [*times[:place], *times[place + 1 :]])) for place, own in enumerate(times)
    )


def capacity_distance(margin: Bytes, usable: Bytes) -> Ratio:
    """ln(bytes needed / bytes usable): above 0 where they do not fit.

    >>> round(float(capacity_distance(-100.0, 100.0)), 4), float(capacity_distance(0.0, 100.0))
    (0.6931, 0.0)
    """
    return distance(usable - margin, usable)


def fits(margin: Bytes) -> Flag:
    """Whether the fullest device holds what it must."""
    return margin >= 0
