"""Quality curves as the laws read them: numeric columns along the task axis and the name axes.

`quality` fills them with NumPy arrays; gathered at a design's positions they broadcast like the rest of a `Design`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from kvwall.spaces.units import Flag, Ratio, Real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BitCurve:
    """Hazard of KV quantization, a term for K and one for V.

    h = sum over K, V of scale*(exp(slope*(4 - bits)) - exp(-12*slope)) + floor/2*((16 - bits)/8)^4.
    Every leaf has the same shape, (task, quantizer) as loaded; reshape all alike to broadcast over a grid.
    """

    key_scale: Real
    """Hazard that 4-bit keys add, all else at 16 bits (less the constant that makes 16 bits free)."""
    value_scale: Real
    """The same for values; smaller than key_scale."""
    slope: Real
    """Natural-log growth of the hazard per bit taken away."""
    floor: Real
    """Hazard at 8-bit K and V that the exponential does not explain, times ((16 - bits)/8)^4 elsewhere."""
    spread: Ratio
    """Factor on the hazard of the upper curve, exp(shift), >= 1."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WeightCurve:
    """Hazard of weight quantization, same form with one term. Leaves of shape (task,)."""

    scale: Real
    slope: Real
    floor: Real
    spread: Ratio
    log_ratio: Flag
    """True where the task's loss is ln(PPL/PPL0), False where it is a relative accuracy loss."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EvictionCurve:
    """Loss of eviction, ceiling*w/(1 + w) with w = (u/half)^exponent, u = (1 - r)/r dropped tokens per kept one.

    Leaves of shape (task, evictor, question_visible) as loaded, index 0 of the last axis = the question is hidden.
    """

    exponent: Real
    log_half: Real
    """ln of the dropped-per-kept ratio at which half the ceiling is lost."""
    ceiling: Ratio
    """Loss when nearly all is dropped, in (0, 1]."""
    spread: Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class QualityParameters:
    """The three curves of a design; all numbers, so that it can enter jit."""

    quantizer: BitCurve
    evictor: EvictionCurve
    weight: WeightCurve
