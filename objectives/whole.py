"""Whole parts of quotients, exact in any precision.

A compiler may multiply by a reciprocal instead of dividing, which puts an exact quotient just beside a whole number.
"""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.spaces.units import Count, Real


def parts_up(amount: Real, size: Real) -> Count:
    """The fewest parts of this size that hold the amount.

    >>> float(parts_up(33.0, 16.0)), float(parts_up(32.0, 16.0))
    (3.0, 2.0)
    """
    parts = jnp.ceil(amount / size)
    return jnp.where((parts - 1) * size >= amount, parts - 1, parts)


def parts_down(amount: Real, size: Real) -> Count:
    """The most whole parts of this size in the amount.

    >>> float(parts_down(33.0, 16.0)), float(parts_down(32.0, 16.0))
    (2.0, 2.0)
    """
    parts = jnp.floor(amount / size)
    return jnp.where((parts + 1) * size <= amount, parts + 1, parts)
