"""The fit of the central curves: robust, near the median of losses, sources weighted by the root of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kvwall.sweep.quality.hierarchy import PRIORS, Hierarchy, hazards, penalty, predicted
from kvwall.sweep.quality.rows import Row
from kvwall.sweep.quality.terms import Floats

_UNIT: Final = 0.02
"""Loss below which residuals count squared; near the reading error of published plots and sampling noise."""
_LIKELIHOOD: Final = 0.25
"""Weight of a row against the priors: rows of a source and task are not independent."""
_RARER: Final = -0.5
"""Power of a source's rows of a task in their weight."""
_ROUNDS: Final = 1500
_OVERFLOWN: Final = 1e10
"""Objective of a point at which hazards are no finite numbers."""


class CentralFit:
    """The compiled fit of a set of rows; each call fits those that a mask selects.

    A point is all effects in units of their priors, which the optimiser needs to be quick.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.hierarchy = Hierarchy(rows)
        flat, unflat = jax.flatten_util.ravel_pytree(self.hierarchy.initial())
        self._start = np.asarray(flat)

        def unflattened(point: Any) -> dict[str, Any]:
            return {name: PRIORS[name] * each for name, each in unflat(point).items()}

        self._unflat = unflattened
        terms = self.hierarchy.terms
        log_ratio = np.array([row.log_ratio for row in rows])
        target = scaled(np.array([row.loss for row in rows]), log_ratio)

        def objective(point: Any, weight: Any) -> Any:
            effects = self._unflat(point)
            loss = predicted(sum(hazards(effects, terms).values()), terms)
            residual = (target - scaled(loss, log_ratio)) / _UNIT
            return _LIKELIHOOD * jnp.sum(weight * (jnp.sqrt(1 + residual**2) - 1)) + penalty(effects)

        self._objective = jax.jit(jax.value_and_grad(objective))
        self._hazards = jax.jit(lambda point: hazards(self._unflat(point), terms, peculiar=False))

    def fit(self, mask: NDArray[np.bool_]) -> Floats:
        """The optimum."""
        weight = jnp.asarray(row_weights(self.hierarchy.rows, mask, _RARER))

        def value(point: Floats) -> tuple[Floats, Floats]:
            found, gradient = self._objective(point, weight)
            if not (np.isfinite(found) and np.isfinite(gradient).all()):  # the search turns back
                return np.asarray(_OVERFLOWN), np.zeros_like(point)
            return np.asarray(found), np.asarray(gradient)

        options = {"maxiter": _ROUNDS, "maxcor": 20, "ftol": 1e-9}
        with jax.debug_nans(False):
            point: Floats = minimize(value, self._start, jac=True, method="L-BFGS-B", options=options).x
        return point

    def effects(self, point: Floats) -> dict[str, Floats]:
        """The effects by name."""
        return {name: np.asarray(value) for name, value in self._unflat(jnp.asarray(point)).items()}

    def hazards(self, point: Floats) -> dict[str, Floats]:
        """Central hazard by remedy of every entry, as a new source's would be."""
        return {name: np.asarray(value) for name, value in self._hazards(jnp.asarray(point)).items()}


def scaled(loss: Any, log_ratio: NDArray[np.bool_]) -> Any:
    """Losses as residuals are taken of: as they are, in perplexity near the logarithm above 0.02."""
    return jnp.where(log_ratio, 0.1 * jnp.arcsinh(loss / 0.02), loss)


def row_weights(rows: Sequence[Row], mask: NDArray[np.bool_], power: float) -> Floats:
    """Weights of the rows selected, a power of how many share source and task, with mean 1; 0 for the others."""
    keys = [(row.source, row.task) for row in rows]
    count = Counter(key for key, chosen in zip(keys, mask, strict=True) if chosen)
    found = np.array([count[key] ** power if chosen else 0.0 for key, chosen in zip(keys, mask, strict=True)])
    mean: Floats = found[mask].mean()
    return found / mean
