"""Fits the terms of the calibration to measured steps: the most likely values, and their covariance.

Every effect has a normal prior (`spaces.terms`); rows that differ by much more than `NOISE` count less; rows of one
model on one chip with one generation of an engine from one source repeat each other's errors, so many of them count
little more than a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.terms import LEVELS, TERMS, achieved
from kvwall.sweep.calibration.steps import MeasuredSteps

NOISE: Final = 0.12
"""Standard deviation of ln time that a row may be off by itself."""
ROBUST: Final = 2.0
"""Standard deviations beyond which a row counts less."""
REPEATED: Final = 0.3
"""Correlation of the errors of rows of one group."""

_STEEP: Final = 0.05
"""Gradient at which a fit has arrived, per standard deviation of a prior."""

Floats = NDArray[np.float64]
Name = tuple[str, str, str]


@dataclass(frozen=True)
class Effects:
    """The parameters: (term, level or "mean", member), with their priors, and which of them speak for each cell."""

    names: tuple[Name, ...]
    prior_mean: Floats
    prior_sd: Floats
    spoken: Floats
    """(cells, terms, parameters): a term of a cell is the sum of these."""


@dataclass(frozen=True)
class Fit:
    """What was found."""

    effects: Effects
    values: Floats
    covariance: Floats


def effects_of(steps: MeasuredSteps) -> Effects:
    """The parameters of these rows: a member of a level for every generation, architecture and chip among them."""
    members = [_members(engine, chip.name) for engine, chip in steps.cells]
    names: list[Name] = []
    mean, sd = [], []
    for term, known in TERMS.items():
        names.append((term, "mean", ""))
        mean.append(known.mean)
        sd.append(known.sd)
        for level in LEVELS:
            spread = known.spread.get(level, 0.0)
            found = sorted({each[level] for each in members}) if spread else []
            names += [(term, level, member) for member in found]
            mean += [0.0] * len(found)
            sd += [spread] * len(found)
    spoken = np.zeros((len(steps.cells), len(TERMS), len(names)))
    place = {term: row for row, term in enumerate(TERMS)}
    for column, (term, level, member) in enumerate(names):
        for cell, own in enumerate(members):
            spoken[cell, place[term], column] = level == "mean" or own[level] == member
    return Effects(tuple(names), np.array(mean), np.array(sd), spoken)


def _members(engine: str, chip: str) -> Mapping[str, str]:
    return {"engine": engine, "architecture": load_architectures().of(chip), "chip": chip}


def log_seconds(steps: MeasuredSteps, terms: jax.Array) -> jax.Array:
    """ln of the predicted seconds of every row; `terms` has one row per row and one column per term."""
    kernels = jax.tree.map(lambda leaf: leaf[steps.cell], steps.kernels)
    found = achieved(kernels, {name: terms[:, place] for place, name in enumerate(TERMS)})
    return jnp.log(steps.predicted(found))


def terms_of(steps: MeasuredSteps, effects: Effects, values: Floats) -> Floats:
    """The terms of every row."""
    found: Floats = (effects.spoken @ values)[steps.cell]
    return found


def weights_of(groups: list[Hashable]) -> Floats:
    """How much each row counts: n rows of a group together as much as n/(1 + (n - 1) REPEATED) independent ones."""
    count = Counter(groups)
    return np.array([1 / (1 + (count[group] - 1) * REPEATED) for group in groups])


def group_of(steps: MeasuredSteps, place: int) -> Hashable:
    """What the rows have in common whose errors are alike: model, chip, generation, source."""
    usable = steps.rows[place]
    engine, chip = steps.cells[steps.cell[place]]
    return usable.model, chip.name, engine, usable.row.id.partition("-")[0]


class _Problem:
    """Half the robust sum of squares and the prior's, with its gradient and Gauss-Newton curvature.

    A miss of r standard deviations costs ROBUST^2 (sqrt(1 + (r/ROBUST)^2) - 1), r^2/2 where it is small.
    """

    def __init__(self, misses: Callable[[Floats], Floats], slopes: Callable[[Floats], Floats]) -> None:
        self._misses, self._slopes = misses, slopes
        self._at: Floats | None = None
        self._known: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))

    def _linear(self, point: Floats) -> tuple[Floats, Floats]:
        """Misses and slopes; gradient and curvature are asked for at the same points."""
        if self._at is None or not np.array_equal(self._at, point):
            self._known = self._misses(point), self._slopes(point)
            self._at = point.copy()
        return self._known

    def cost(self, point: Floats) -> float:
        off = self._misses(point)
        return float(np.sum(ROBUST**2 * (np.sqrt(1 + (off / ROBUST) ** 2) - 1)) + point @ point / 2)

    def gradient(self, point: Floats) -> Floats:
        off, slope = self._linear(point)
        found: Floats = slope.T @ (off / np.sqrt(1 + (off / ROBUST) ** 2)) + point
        return found

    def curvature(self, point: Floats) -> Floats:
        off, slope = self._linear(point)
        counted = 1 / np.sqrt(1 + (off / ROBUST) ** 2)
        found: Floats = slope.T @ (slope * counted[:, None]) + np.eye(len(point))
        return found


class StepFitter:
    """Fits the terms to any of these rows; the law and its slopes are compiled once."""

    def __init__(self, steps: MeasuredSteps) -> None:
        self.steps = steps
        self.effects = effects_of(steps)
        self._groups = [group_of(steps, place) for place in range(len(steps))]
        self._measured = np.log(steps.seconds)
        turns = np.eye(len(TERMS))

        def slopes(terms: jax.Array) -> jax.Array:
            def along(turn: jax.Array) -> jax.Array:
                return jax.jvp(partial(log_seconds, steps), (terms,), (jnp.broadcast_to(turn, terms.shape),))[1]

            return jax.vmap(along, out_axes=1)(turns)

        self._predict = jax.jit(partial(log_seconds, steps))
        self._slopes = jax.jit(slopes)

    def log_ratio(self, values: Floats) -> Floats:
        """ln(predicted / measured) of every row."""
        with jax.enable_x64(True):
            found: Floats = np.asarray(self._predict(terms_of(self.steps, self.effects, values))) - self._measured
        return found

    def slopes(self, values: Floats) -> Floats:
        """How ln(predicted) of every row changes with every effect."""
        with jax.enable_x64(True):
            of_terms = np.asarray(self._slopes(terms_of(self.steps, self.effects, values)))
        found: Floats = np.matmul(of_terms[:, None, :], self.effects.spoken[self.steps.cell])[:, 0, :]
        return found

    def fit(self, keep: NDArray[np.bool_], start: Floats | None = None, rounds: int = 60) -> Fit:
        """The most likely effects of the kept rows; `start` saves rounds where much the same rows were fitted before."""
        effects = self.effects
        weight = np.zeros(len(self.steps))
        weight[keep] = np.sqrt(weights_of([self._groups[place] for place in np.flatnonzero(keep)])) / NOISE

        def values(point: Floats) -> Floats:
            found: Floats = effects.prior_mean + effects.prior_sd * point
            return found

        problem = _Problem(
            lambda point: weight * self.log_ratio(values(point)),
            lambda point: weight[:, None] * self.slopes(values(point)) * effects.prior_sd,
        )
        begin = np.zeros(len(effects.names)) if start is None else (start - effects.prior_mean) / effects.prior_sd
        found = minimize(
            problem.cost,
            begin,
            method="trust-exact",
            jac=problem.gradient,
            hess=problem.curvature,
            options={"maxiter": rounds, "gtol": _STEEP},
        )
        covariance = np.linalg.inv(problem.curvature(found.x)) * np.outer(effects.prior_sd, effects.prior_sd)
        return Fit(effects, values(found.x), covariance)
