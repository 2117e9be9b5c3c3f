"""How much less sure an estimate is beyond what was measured."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives.load import Load, evaluated_context
from kvwall.spaces.achieved import Reached
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bits, Flag, Ratio, Real

_PER_DOUBLING = 0.05
"""Standard deviation of ln time for every doubling beyond the longest context or largest batch: a judgement."""
_FORMAT = 0.15
"""Standard deviation of ln time where the KV format was not measured: a judgement, of the size by which 8-bit attention
differs among engines on one chip.
"""
_ALIKE = 0.6
"""Bits by which two KV formats differ that are one: 8 and, scales included, 8.5."""


def doublings(amount: Real, reached: Real) -> Real:
    """Doublings by which an amount lies beyond what was reached.

    >>> float(doublings(400.0, 100.0)), float(doublings(50.0, 100.0))
    (2.0, 0.0)
    """
    return jnp.maximum(jnp.log2(jnp.maximum(amount, 1.0) / reached), 0.0)


def unmeasured_format(design: Design, reached: Reached) -> Flag:
    """Whether keys or values are of bits that no row of the engine has."""

    def unmeasured(bits: Bits) -> Flag:
        return jnp.logical_not(reduce(jnp.logical_or, [jnp.abs(bits - each) < _ALIKE for each in reached.cache_bits]))

    return jnp.logical_or(unmeasured(design.kv_format.key_bits), unmeasured(design.kv_format.value_bits))


def spread_beyond(design: Design, load: Load, reached: Reached) -> Ratio:
    """Standard deviation of ln time for how far a design lies beyond what its engine was measured at.

    An unmeasured chip or engine is not part of it: the effects that it lacks are.
    """
    context = _PER_DOUBLING * doublings(evaluated_context(design), reached.context)
    batch = _PER_DOUBLING * doublings(load.active, reached.batch)
    return jnp.sqrt(context**2 + batch**2 + jnp.where(unmeasured_format(design, reached), _FORMAT, 0.0) ** 2)
