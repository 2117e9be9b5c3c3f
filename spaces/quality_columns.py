"""Quality curves as the laws read them: numeric columns along the task axis and the name axes.

`quality_record_columns` fills them with NumPy arrays; gathered at a design's positions they broadcast like the rest of
a `Design`. Every leaf has the task axis first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax

from kvwall.spaces.units import Flag, Ratio, Real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BitCurve:
    """Hazard of narrow numbers: scale*(exp(slope*(4 - bits)) - exp(-12*slope)) + floor*((16 - bits)/8)^4.

    Leaves of shape (task, name), or (task,) for activations.
    """

    scale: Real
    """Hazard at 4 bits, less the constant that makes 16 bits free."""
    slope: Real
    """Natural-log growth of the hazard per bit taken away."""
    floor: Real
    """Hazard at 8 bits that the exponential does not explain."""
    spread: Ratio
    """Factor on the hazard of the upper curve, >= 1."""
    noise: Real
    """Hazard that the upper curve adds at 4 bits, and ((16 - bits)/12)^5 of it elsewhere."""

    def scaled(self, factor: Real) -> BitCurve:
        """The curve of a hazard so many times as large at 4 bits; the floor, the spread and the noise stay."""
        return replace(self, scale=self.scale * factor)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CacheCurve:
    """Hazard of quantized KV: keys and values each with a `BitCurve`, of leaves (task, quantizer, model)."""

    key: BitCurve
    value: BitCurve


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
    """Loss when nearly all is dropped, in (0, 1)."""
    spread: Ratio
    noise: Real
    """Hazard that the upper curve adds for each e-fold of fewer tokens."""

    def moved(self, by: Real) -> EvictionCurve:
        """The curve that loses as much at e^by times as many dropped tokens per kept one."""
        return replace(self, log_half=self.log_half + by)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SmallBudget:
    """What few bits lose beyond their curve where few tokens are kept. Leaves of shape (task,)."""

    hazard: Real
    """At 2 bits and `kept` of the tokens."""
    kept: Ratio
    """Kept fraction at which it is whole; gone at four times as much, double at a quarter."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class QualityParameters:
    """The curves of a design; all numbers, so that it can enter jit."""

    cache: CacheCurve
    evictor: EvictionCurve
    """Of tokens dropped."""
    reader: EvictionCurve
    """Of kept tokens that a step does not read."""
    weight: BitCurve
    activation: BitCurve
    small_budget: SmallBudget
    log_ratio: Flag
    """Of shape (task,): where the task's loss is ln(PPL/PPL0), not a relative accuracy loss."""
