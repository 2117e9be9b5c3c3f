"""Quality loss of a compressed KV cache and compressed weights: pure laws over fitted curves.

Every remedy adds a hazard h >= 0 that is exactly 0 at its neutral setting and never falls when bits or tokens are
taken away. In accuracy tasks the surviving share of the score is exp(-h), so hazards that add are survivals that
multiply; in perplexity the hazard is ln(PPL/PPL0) itself and ln-ratios add. The upper curve multiplies each hazard
by the spread of its remedy. Parameters carry a leading task axis before the design's dimensions; all is elementwise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kvwall.spaces.quality import BitCurve, EvictionCurve, QualityParameters, WeightCurve
from kvwall.spaces.units import Bits, Flag, Ratio, Real


def composed_loss(
    key_bits: Bits, value_bits: Bits, kept_fraction: Ratio, weight_bits: Bits, parameters: QualityParameters
) -> Ratio:
    """Central loss of all remedies together: survival product, in perplexity the sum of ln-ratios."""
    hazard = (
        quantization_hazard(key_bits, value_bits, parameters.quantizer)
        + eviction_hazard(kept_fraction, parameters.evictor)
        + weight_hazard(weight_bits, parameters.weight)
    )
    return loss_from_hazard(hazard, parameters.weight.log_ratio)


def composed_loss_upper(
    key_bits: Bits, value_bits: Bits, kept_fraction: Ratio, weight_bits: Bits, parameters: QualityParameters
) -> Ratio:
    """Upper loss of all remedies together, at the confidence the parameters were taken for; never below the central."""
    hazard = (
        parameters.quantizer.spread * quantization_hazard(key_bits, value_bits, parameters.quantizer)
        + parameters.evictor.spread * eviction_hazard(kept_fraction, parameters.evictor)
        + parameters.weight.spread * weight_hazard(weight_bits, parameters.weight)
    )
    return loss_from_hazard(hazard, parameters.weight.log_ratio)


def loss_from_hazard(hazard: Real, log_ratio: Flag) -> Ratio:
    """1 - exp(-hazard) in [0, 1], or the hazard itself where the task's loss is a ln-ratio.

    >>> round(float(loss_from_hazard(0.5, False)), 4), float(loss_from_hazard(0.5, True))
    (0.3935, 0.5)
    """
    return jnp.where(log_ratio, hazard, -jnp.expm1(-hazard))


def quantization_hazard(key_bits: Bits, value_bits: Bits, parameters: BitCurve) -> Real:
    """Hazard of KV payload bits, K and V each with its own term; 0 at 16 bits and above.

    Source: rows of published KV quantization results, `spaces/catalog/quality/rows.parquet`.
    """
    half_floor = parameters.floor / 2
    return _bit_hazard(key_bits, parameters.key_scale, parameters.slope, half_floor) + _bit_hazard(
        value_bits, parameters.value_scale, parameters.slope, half_floor
    )


def weight_hazard(weight_bits: Bits, parameters: WeightCurve) -> Real:
    """Hazard of bits per weight; 0 at 16 bits and above.

    Source: rows of published weight quantization results, `spaces/catalog/quality/rows.parquet`.
    """
    return _bit_hazard(weight_bits, parameters.scale, parameters.slope, parameters.floor)


def eviction_hazard(kept_fraction: Ratio, parameters: EvictionCurve) -> Real:
    """-ln(1 - ceiling*w/(1 + w)), w = (u/half)^exponent, u = (1 - r)/r.

    At r = 1 the value and the gradient are 0 (the exponent is at least 1; at exactly 1 the left derivative is not 0).
    Source: rows of published eviction results, `spaces/catalog/quality/rows.parquet`.
    """
    evicts = kept_fraction < 1
    kept = jnp.where(evicts, kept_fraction, 0.5)  # a harmless stand-in keeps the unused branch's gradient finite
    log_ratio_to_half = jnp.log((1 - kept) / kept) - parameters.log_half
    overload = jnp.exp(parameters.exponent * log_ratio_to_half)
    hazard = jnp.log1p(overload) - jnp.log1p((1 - parameters.ceiling) * overload)
    return jnp.where(evicts, hazard, 0.0)


def _bit_hazard(bits: Bits, scale: Real, slope: Real, floor: Real) -> Real:
    """scale*(exp(slope*(4 - b)) - exp(-12*slope)) + floor*((16 - b)/8)^4; expm1 makes 16 bits give exactly 0."""
    missing = jnp.maximum(16 - bits, 0.0)
    return scale * jnp.exp(-12 * slope) * jnp.expm1(slope * missing) + floor * (missing / 8) ** 4


def rows_of(parameters: QualityParameters, rows: tuple[int, ...]) -> QualityParameters:
    """The parameters of some rows of the task axis only."""
    found: QualityParameters = jax.tree.map(lambda leaf: leaf[rows[0] : rows[-1] + 1], parameters)
    return found
