"""Quality loss of compressed KV caches, weights and activations: pure laws over fitted curves.

Every remedy adds a hazard h >= 0 that is exactly 0 at its neutral setting and never falls when bits or tokens are
taken away. In accuracy tasks the surviving share of the score is exp(-h), so hazards that add are survivals that
multiply; in perplexity the hazard is ln(PPL/PPL0) itself and ln-ratios add. The upper curve multiplies each hazard by
the spread between sources, and adds what published results scatter by where little is lost. Parameters carry a leading
task axis before the design's dimensions; all is elementwise.

Source: rows of published results, `spaces/catalog/quality/rows.parquet`; docs/decisions/0009-quality.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from kvwall.objectives.known import surely
from kvwall.objectives.kv import FULL_BITS
from kvwall.spaces.quality_columns import BitCurve, CacheCurve, EvictionCurve, QualityParameters, SmallBudget
from kvwall.spaces.units import Bits, Flag, Ratio, Real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Compression:
    """How much a design compresses, each neutral at 16 bits or 1."""

    key_bits: Bits
    value_bits: Bits
    kept_fraction: Ratio
    read_fraction: Ratio
    weight_bits: Bits
    activation_bits: Bits


def composed_loss(asked: Compression, parameters: QualityParameters) -> Ratio:
    """Central loss of all remedies together: survival product, in perplexity the sum of ln-ratios."""
    return loss_from_hazard(_hazard(asked, parameters, upper=False), parameters.log_ratio)


def composed_loss_upper(asked: Compression, parameters: QualityParameters) -> Ratio:
    """Upper loss of all remedies together, at the confidence the parameters were taken for; never below the central."""
    return loss_from_hazard(_hazard(asked, parameters, upper=True), parameters.log_ratio)


def _hazard(asked: Compression, parameters: QualityParameters, upper: bool) -> Real:
    """The sum of what each remedy adds; one whose axes are fixed at neutral is left out."""
    narrow = not (surely(asked.key_bits, FULL_BITS) and surely(asked.value_bits, FULL_BITS))
    drops = not surely(asked.kept_fraction, 1.0)
    parts: list[Real] = [jnp.zeros_like(parameters.weight.scale)]
    if narrow:
        parts.append(cache_hazard(asked.key_bits, asked.value_bits, parameters.cache, upper=upper))
    if drops:
        parts.append(eviction_hazard(asked.kept_fraction, parameters.evictor, upper=upper))
    if narrow and drops:
        spread = parameters.cache.key.spread if upper else 1.0
        narrower = jnp.minimum(asked.key_bits, asked.value_bits)
        parts.append(spread * small_budget_hazard(narrower, asked.kept_fraction, parameters.small_budget))
    if not surely(asked.read_fraction, 1.0):
        parts.append(eviction_hazard(asked.read_fraction, parameters.reader, upper=upper))
    if not surely(asked.weight_bits, FULL_BITS):
        parts.append(bit_hazard(asked.weight_bits, parameters.weight, upper=upper))
    if not surely(asked.activation_bits, FULL_BITS):
        parts.append(bit_hazard(asked.activation_bits, parameters.activation, upper=upper))
    return sum(parts[1:], start=parts[0])


def loss_from_hazard(hazard: Real, log_ratio: Flag) -> Ratio:
    """1 - exp(-hazard) in [0, 1], or the hazard itself where the task's loss is a ln-ratio.

    >>> round(float(loss_from_hazard(0.5, False)), 4), float(loss_from_hazard(0.5, True))
    (0.3935, 0.5)
    """
    return jnp.where(log_ratio, hazard, -jnp.expm1(-hazard))


def cache_hazard(key_bits: Bits, value_bits: Bits, curve: CacheCurve, *, upper: bool) -> Real:
    """Hazard of KV payload bits, K and V each with its own term; 0 at 16 bits and above."""
    return bit_hazard(key_bits, curve.key, upper=upper) + bit_hazard(value_bits, curve.value, upper=upper)


def bit_hazard(bits: Bits, curve: BitCurve, *, upper: bool) -> Real:
    """scale*(exp(slope*(4 - b)) - exp(-12*slope)) + floor*((16 - b)/8)^4; upper: *spread + noise*((16 - b)/12)^5.

    The constant makes 16 bits free; expm1 makes that exact.

    >>> curve = BitCurve(scale=0.01, slope=1.0, floor=0.0, spread=2.0, noise=0.03)
    >>> [round(float(bit_hazard(4.0, curve, upper=each)), 4) for each in (False, True)]
    [0.01, 0.05]
    """
    missing = jnp.maximum(FULL_BITS - bits, 0.0)
    hazard = curve.scale * jnp.exp(-12 * curve.slope) * jnp.expm1(curve.slope * missing)
    hazard = hazard + curve.floor * (missing / 8) ** 4
    return curve.spread * hazard + curve.noise * (missing / 12) ** 5 if upper else hazard


def eviction_hazard(kept_fraction: Ratio, curve: EvictionCurve, *, upper: bool) -> Real:
    """-ln(1 - ceiling*w/(1 + w)), w = (u/half)^exponent, u = (1 - r)/r; upper: *spread - noise*ln(r).

    At r = 1 the value is 0, and so is the central gradient (the exponent is at least 1; at exactly 1 the left
    derivative is not 0).

    >>> curve = EvictionCurve(exponent=1.0, log_half=0.0, ceiling=0.5, spread=2.0, noise=0.0)
    >>> [round(float(eviction_hazard(0.5, curve, upper=each)), 4) for each in (False, True)]
    [0.2877, 0.5754]
    """
    drops = kept_fraction < 1
    kept = jnp.where(drops, kept_fraction, 0.5)  # a harmless stand-in keeps the unused branch's gradient finite
    log_ratio_to_half = jnp.log((1 - kept) / kept) - curve.log_half
    overload = jnp.exp(curve.exponent * log_ratio_to_half)
    hazard = jnp.log1p(overload) - jnp.log1p((1 - curve.ceiling) * overload)
    if upper:
        hazard = curve.spread * hazard - curve.noise * jnp.log(kept)
    return jnp.where(drops, hazard, 0.0)


def small_budget_hazard(bits: Bits, kept_fraction: Ratio, curve: SmallBudget) -> Real:
    """Hazard * (1 - r) * fewness * narrowness^2: what a 2-bit cache of few tokens loses beyond the product.

    Fewness is 1 - ln(r/kept)/ln(4) from 0 to 2, narrowness (4 - bits)/2 from 0 to 1.

    >>> round(float(small_budget_hazard(2.0, 0.0625, SmallBudget(hazard=0.16, kept=0.0625))), 6)
    0.15
    """
    fewness = jnp.clip(1 - jnp.log(kept_fraction / curve.kept) / jnp.log(4.0), 0.0, 2.0)
    narrowness = jnp.clip((4 - bits) / 2, 0.0, 1.0)
    return curve.hazard * (1 - kept_fraction) * fewness * narrowness**2


def rows_of(parameters: QualityParameters, rows: tuple[int, ...]) -> QualityParameters:
    """The parameters of some rows of the task axis only, which lie side by side."""
    found: QualityParameters = jax.tree.map(lambda leaf: leaf[rows[0] : rows[-1] + 1], parameters)
    return found
