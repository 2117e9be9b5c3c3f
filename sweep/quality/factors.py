"""What measured losses say of the factor on a curve's hazard: a posterior on a grid of its logarithm.

The factor that belongs to one point is the curve's own, times a deviation of the subtask that all its points share,
times one of the setting; all are log-normal, with `Scatter` as their standard deviations. So points of one subtask say
less than as many of several, and no number of points says all. Losses level off near none and near all: a posterior on
a grid takes what such points say, a bound, as what it is, where a curvature at the optimum would not.

Source: standard deviations of greatest likelihood on published rows, `python -m kvwall.sweep.quality.probe_check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import fftconvolve

from kvwall.objectives import quality
from kvwall.spaces.quality import QualityCurves
from kvwall.spaces.quality_columns import BitCurve, CacheCurve, EvictionCurve, QualityParameters
from kvwall.spaces.units import Real
from kvwall.sweep.quality.prediction import parts_of
from kvwall.sweep.quality.rows import Row
from kvwall.sweep.quality.terms import Floats
from kvwall.sweep.quality.upper import REMEDIES


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of ln(factor)."""

    between: float
    """Between models, methods and sources."""
    subtask: float
    """Between subtasks of a class, of one model and method."""
    setting: float
    """Between settings of one subtask."""

    @property
    def within(self) -> float:
        """Of one model and method, whatever the subtask and the setting."""
        return hypot(self.subtask, self.setting)


SCATTER: Final[Mapping[str, Scatter]] = {
    "query_agnostic": Scatter(1.7, 1.4, 0.7),
    "evictor": Scatter(1.7, 1.2, 0.6),
    "quantizer": Scatter(0.8, 0.8, 0.4),
    "weight_quantizer": Scatter(0.7, 0.4, 0.4),
    "activation": Scatter(0.7, 0.4, 0.4),
}
"""By remedy, and of a family with rows enough; too few are of activations alone, which are taken as weights."""

NOISE: Final = 0.02
"""Standard error of a loss that states none: near sampling noise and the reading error of published plots."""
LOG_NOISE: Final = (0.005, 0.05)
"""The same of ln(PPL/PPL0): a constant, and a share of it."""
_LEAST_NOISE: Final = 0.002
"""Of a loss that states one: scores are rounded."""
_OUTLIER: Final = 1e-30
"""Likelihood of any loss, relative to the likeliest: so small that a lone point is believed, however far it is from the
curve, and that of points which contradict one another those that agree decide."""
_HALF: Final = 20.0
_STEP: Final = 0.05
GRID: Final[Floats] = np.arange(-_HALF, _HALF + _STEP / 2, _STEP)
"""ln(factor)."""


@dataclass(frozen=True)
class Posterior:
    """What is known of the factor on a curve's hazard."""

    density: Floats
    """Over `GRID`."""
    within: float
    """`Scatter.within`."""

    @property
    def mode(self) -> float:
        """The likeliest ln(factor)."""
        top = int(np.clip(np.argmax(self.density), 1, len(GRID) - 2))
        left, middle, right = np.log(np.maximum(self.density[top - 1 : top + 2], 1e-300))
        bend = left - 2 * middle + right
        shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
        return float(GRID[top] + _STEP * np.clip(shift, -1.0, 1.0))

    def quantile(self, level: float) -> float:
        """Of ln(factor) of a new subtask and setting."""
        new = blurred(self.density[None], self.within)[0]
        return float(np.interp(level, np.cumsum(new) / new.sum(), GRID + _STEP / 2))


def scatter_of(remedy: str, family: str) -> Scatter:
    """The scatter of a family's curves.

    >>> scatter_of("evictor", "query_agnostic").subtask, scatter_of("evictor", "position").subtask
    (1.4, 1.2)
    """
    return SCATTER[family if remedy == "evictor" and family in SCATTER else remedy]


def posterior(likelihoods: Mapping[str, Floats], between: float, scatter: Scatter) -> Posterior:
    """The posterior of a curve's factor from a normal prior of its logarithm.

    Args:
        likelihoods: subtask -> `likelihood` of its points.
        between: standard deviation of the prior.
        scatter: deviations of subtasks and settings.
    """
    log_density = -0.5 * (GRID / between) ** 2
    for of_points in likelihoods.values():
        of_subtask = np.log(blurred(of_points, scatter.setting)).sum(axis=0)
        shared = np.exp(of_subtask - of_subtask.max())
        log_density = log_density + np.log(blurred(shared[None], scatter.subtask)[0])
    density = np.exp(log_density - np.max(log_density))
    return Posterior(density / density.sum(), scatter.within)


def likelihood(rows: Sequence[Row], losses: Floats, errors: Iterable[float | None]) -> Floats:
    """Likelihood of each row's observed loss at each factor, as if the factor were its own; shape (row, factor)."""
    observed = np.array([row.loss for row in rows])
    noise = np.array([noise_of(row, error) for row, error in zip(rows, errors, strict=True)])
    found: Floats = np.exp(-0.5 * ((losses - observed[:, None]) / noise[:, None]) ** 2) + _OUTLIER
    return found


def noise_of(row: Row, error: float | None) -> float:
    """Standard error of a row's loss: its own where it is known."""
    if error is not None:
        return max(error, _LEAST_NOISE)
    return hypot(LOG_NOISE[0], LOG_NOISE[1] * row.loss) if row.log_ratio else NOISE


def losses_at_factors(rows: Sequence[Row], remedies: Sequence[str], curves: QualityCurves) -> Floats:
    """Central loss of each row if the hazard of its remedy were multiplied by each factor; shape (row, factor).

    Args:
        rows: of one part and one remedy each.
        remedies: that of each row.
        curves: the record, whose own narrowing is at work.
    """
    with jax.enable_x64(True):
        parts = parts_of(rows, curves)
        asked, own = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], (parts.asked, parts.curves))
        moved = {name: jnp.asarray((np.array(remedies) == name)[:, None] * GRID) for name in REMEDIES}
        return np.asarray(quality.composed_loss(asked, _moved(own, moved)))


def blurred(density: Floats, sd: float) -> Floats:
    """Each row of a function over `GRID`, averaged over normal deviations, if any; constant beyond the grid's ends."""
    if sd == 0:
        return np.maximum(density, 1e-300)
    reach = len(GRID) // 2
    kernel = np.exp(-0.5 * (GRID / sd) ** 2)
    padded = np.pad(density, ((0, 0), (reach, reach)), mode="edge")
    found: Floats = np.maximum(fftconvolve(padded, kernel[None] / kernel.sum(), mode="valid", axes=1), 1e-300)
    return found


def _moved(curves: QualityParameters, log_factor: Mapping[str, Real]) -> QualityParameters:
    def bits(curve: BitCurve, remedy: str) -> BitCurve:
        factor = jnp.exp(log_factor[remedy])
        return replace(curve.scaled(factor), floor=curve.floor * factor)

    def eviction(curve: EvictionCurve) -> EvictionCurve:
        return curve.moved(-log_factor["evictor"] / curve.exponent)

    return QualityParameters(
        cache=CacheCurve(bits(curves.cache.key, "quantizer"), bits(curves.cache.value, "quantizer")),
        evictor=eviction(curves.evictor),
        reader=eviction(curves.reader),
        weight=bits(curves.weight, "weight_quantizer"),
        activation=bits(curves.activation, "activation"),
        small_budget=curves.small_budget,
        log_ratio=curves.log_ratio,
    )
