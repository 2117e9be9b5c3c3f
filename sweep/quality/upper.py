"""The fit of the upper curves: quantiles of losses over curves that have not seen their source.

A source is new to whoever asks, so the spread between sources must be in the band: the central hazards that go in here
are of fits without the row's source. The upper hazard of a remedy is exp(z)*h plus a noise that grows with how far the
setting is from neutral; both have an effect of the task, the remedy and the family, found by quantile regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality.central import row_weights, scaled
from kvwall.sweep.quality.hierarchy import predicted
from kvwall.sweep.quality.rows import FULL, Row
from kvwall.sweep.quality.terms import FAMILIES, Floats, Terms

REMEDIES: Final = ("evictor", "quantizer", "weight_quantizer", "activation")
UPPER_FAMILIES: Final = {remedy: FAMILIES.get(remedy, (remedy,)) for remedy in REMEDIES}
CONFIDENCES: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels at which the upper curves are tabulated."""

_ANCHOR: Final = 0.9
_RAISE: Final = 0.2
"""Share of what a level lacks to 1 by which it is raised: quantiles cover less than they say on a new source."""
_UNSEEN: Final = (3.0, 1.0)
"""What a task or a family that no source measured adds to ln of the spread, and to ln of the noise."""
_RARE_FAMILY: Final = 0.5
_UNIT, _SMOOTH, _LIKELIHOOD, _RARER = 0.02, 0.25, 0.5, -0.5
_NOISE_CENTRE: Final = -4.0
_PRIORS: Final = {
    "spread": 2.0, "spread_task": 0.8, "spread_remedy_task": 0.1, "spread_family": 0.5,
    "noise": 2.0, "noise_task": 1.0, "noise_remedy_task": 0.1, "noise_family": 0.5,
}  # fmt: skip


@dataclass(frozen=True)
class Upper:
    """Spread and noise of every remedy, family and task at one level."""

    log_spread: dict[str, Floats]
    """Remedy -> shape (family, task)."""
    noise: dict[str, Floats]


class UpperFit:
    """The compiled quantile regression of a set of rows; each call fits those that a mask selects."""

    def __init__(self, rows: Sequence[Row], terms: Terms) -> None:
        self._rows, self._terms = tuple(rows), terms
        self._family = {
            "evictor": terms.evictor_family,
            "quantizer": terms.quantizer_family,
            "weight_quantizer": terms.weight_family,
            "activation": np.zeros_like(terms.task),
        }
        self._far = departures(terms)
        flat, self._unflat = jax.flatten_util.ravel_pytree(_initial())
        self._start = np.asarray(flat)
        self._log_ratio = np.array([row.log_ratio for row in rows])
        target = scaled(np.array([row.loss for row in rows]), self._log_ratio)

        def objective(point: Any, hazards: Any, weight: Any, level: Any, unseen: Any) -> Any:
            effects = self._unflat(point)
            loss = self._loss(_tables(effects, unseen), hazards)
            residual = (target - scaled(loss, self._log_ratio)) / _UNIT
            tilt = jnp.where(residual > 0, level, 1 - level)
            pinball = tilt * (jnp.sqrt(_SMOOTH**2 + residual**2) - _SMOOTH)
            prior = 0.5 * sum(jnp.sum((effects[name] / sd) ** 2) for name, sd in _PRIORS.items())
            return _LIKELIHOOD * jnp.sum(weight * pinball) + prior

        self._objective = jax.jit(jax.value_and_grad(objective))
        self._predict = jax.jit(self._loss)

    def fit(self, mask: NDArray[np.bool_], hazards: Mapping[str, Floats], confidence: float) -> Upper:
        """Spread and noise that rows of new sources stay under with this confidence, from hazards blind to sources."""
        weight = jnp.asarray(row_weights(self._rows, mask, _RARER))
        level = raised(confidence)
        unseen = self._unseen(mask)
        blind = {name: jnp.asarray(np.nan_to_num(hazard)) for name, hazard in hazards.items()}

        def value(point: Floats) -> tuple[Floats, Floats]:
            found, gradient = self._objective(point, blind, weight, level, unseen)
            return np.asarray(found), np.asarray(gradient)

        point = minimize(value, self._start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
        spread, noise = _tables(self._unflat(jnp.asarray(point)), unseen)
        return Upper(*({name: np.asarray(table) for name, table in each.items()} for each in (spread, noise)))

    def predict(self, upper: Upper, hazards: Mapping[str, Floats]) -> Floats:
        """Upper loss of every row."""
        return np.asarray(
            self._predict((upper.log_spread, upper.noise), {k: jnp.asarray(v) for k, v in hazards.items()})
        )

    def _unseen(self, mask: NDArray[np.bool_]) -> dict[str, Floats]:
        """Remedy -> (family, task), 1/(1 + sources)^2 of the task and of the family, summed: what few have measured."""
        chosen, found = mask[self._terms.rows], {}
        source = np.array([row.source for row in self._rows])[self._terms.rows]
        for remedy, far in self._far.items():
            used = chosen & (far > 0)
            of_task = [len(set(source[used & (self._terms.task == task)])) for task in range(len(TASKS))]
            families = range(len(UPPER_FAMILIES[remedy]))
            of_family = [len(set(source[used & (self._family[remedy] == family)])) for family in families]
            rare_task, rare_family = (1 / (1 + np.array(each, np.float64)) ** 2 for each in (of_task, of_family))
            found[remedy] = _RARE_FAMILY * rare_family[:, None] + rare_task
        return found

    def _loss(self, tables: tuple[Mapping[str, Any], Mapping[str, Any]], hazards: Mapping[str, Any]) -> Any:
        spread, noise = tables
        total = 0.0
        for remedy in REMEDIES:
            place = (self._family[remedy], self._terms.task)
            total = total + jnp.exp(spread[remedy][place]) * hazards[remedy] + noise[remedy][place] * self._far[remedy]
        return predicted(total, self._terms)


def raised(confidence: float) -> float:
    """The level of a quantile that covers a confidence on a new source.

    >>> round(raised(0.9), 3)
    0.92
    """
    return confidence + _RAISE * (1 - confidence)


def rising(uppers: Mapping[float, Upper]) -> dict[float, Upper]:
    """The same by confidence, none lower than one of less: 0.9, or the highest, stays, and the others give way."""
    levels = sorted(uppers)
    stays = levels.index(_ANCHOR) if _ANCHOR in uppers else len(levels) - 1

    def bent(field: str, name: str) -> Floats:
        table = np.stack([getattr(uppers[level], field)[name] for level in levels])
        below = np.minimum.accumulate(table[stays::-1])[::-1]
        return np.concatenate([below, np.maximum.accumulate(table[stays:])[1:]])

    spread, noise = ({name: bent(field, name) for name in REMEDIES} for field in ("log_spread", "noise"))
    return {
        level: Upper(*({name: of[name][place] for name in REMEDIES} for of in (spread, noise)))
        for place, level in enumerate(levels)
    }


def departures(terms: Terms) -> dict[str, Floats]:
    """How far each entry is from neutral, by remedy: what multiplies the noise in the laws of `objectives.quality`."""

    def missing(bits: Floats) -> Floats:
        found: Floats = (np.maximum(FULL - bits, 0.0) / 12) ** 5
        return found

    return {
        "evictor": -np.log(terms.kept) * terms.evicts,
        "quantizer": (missing(terms.key_bits) + missing(terms.value_bits)) / 2,
        "weight_quantizer": missing(terms.weight_bits),
        "activation": missing(terms.activation_bits),
    }


def _initial() -> dict[str, Floats]:
    families = sum(len(names) for names in UPPER_FAMILIES.values())
    shapes = {"": (), "_task": (len(TASKS),), "_remedy_task": (len(REMEDIES), len(TASKS)), "_family": (families,)}
    return {f"{what}{end}": np.zeros(shape) for what in ("spread", "noise") for end, shape in shapes.items()}


def _tables(effects: Mapping[str, Any], unseen: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ln of the spread, and the noise: remedy -> (family, task)."""
    spread, noise, first = {}, {}, 0
    for place, remedy in enumerate(REMEDIES):
        last = first + len(UPPER_FAMILIES[remedy])

        def of(what: str, place: int = place, first: int = first, last: int = last) -> Any:
            of_task = effects[what] + effects[f"{what}_task"] + effects[f"{what}_remedy_task"][place]
            return effects[f"{what}_family"][first:last, None] + of_task

        spread[remedy] = jnp.exp(of("spread")) + _UNSEEN[0] * unseen[remedy]
        noise[remedy] = jnp.exp(_NOISE_CENTRE + of("noise") + _UNSEEN[1] * unseen[remedy])
        first = last
    return spread, noise
