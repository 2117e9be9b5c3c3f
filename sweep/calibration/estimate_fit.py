"""Fits the terms of the calibration to measured steps: the most likely values, and their covariance.

Every effect has a normal prior (`spaces.terms`); rows that differ by much more than `NOISE` count less; rows of one
model on one chip with one generation of an engine from one source repeat each other's errors, so many of them count
little more than a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.calibration import root_of
from kvwall.spaces.terms import LEVELS, MACHINE, TERMS, Term, achieved
from kvwall.sweep.calibration.steps import MeasuredSteps

NOISE: Final = 0.12
"""Standard deviation of ln time that a row may be off by itself."""
ROBUST: Final = 2.0
"""Standard deviations beyond which a row counts less."""
REPEATED: Final = 0.3
"""Correlation of the errors of rows of one group."""

_STEEP: Final = 0.5
"""Gradient at which a fit has arrived, per standard deviation of a prior."""

Floats = NDArray[np.float64]
Name = tuple[str, str, str]


@dataclass(frozen=True)
class Effects:
    """The parameters: (term, level or "mean", member), with their priors, and which of them speak for each cell."""

    names: tuple[Name, ...]
    prior_mean: Floats
    prior_root: Floats
    """Standard deviations; or a matrix whose product with its own transpose is the covariance."""
    spoken: Floats
    """(cells, terms, parameters): a term of a cell is the sum of these."""

    @property
    def prior(self) -> Fit:
        """The parameters before any row is seen."""
        return Fit(self, self.prior_mean, self.spread(np.eye(len(self.names))))

    def at(self, point: Floats) -> Floats:
        """The parameters so many standard deviations from the prior's mean."""
        moved = self.prior_root * point if self.prior_root.ndim == 1 else self.prior_root @ point
        found: Floats = self.prior_mean + moved
        return found

    def along(self, slopes: Floats) -> Floats:
        """Slopes by parameter as slopes by standard deviation."""
        found: Floats = slopes * self.prior_root if self.prior_root.ndim == 1 else slopes @ self.prior_root
        return found

    def spread(self, covariance: Floats) -> Floats:
        """A covariance of standard deviations as one of parameters."""
        root = np.diag(self.prior_root) if self.prior_root.ndim == 1 else self.prior_root
        found: Floats = root @ covariance @ root.T
        return found

    def rows(self, steps: MeasuredSteps, keep: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Of the kept rows, those that each parameter speaks for."""
        speaks = np.any(self.spoken > 0, axis=1)
        found: NDArray[np.int64] = np.sum(speaks[steps.cell[keep]], axis=0)
        return found


@dataclass(frozen=True)
class Fit:
    """What was found."""

    effects: Effects
    values: Floats
    covariance: Floats


def effects_of(steps: MeasuredSteps, terms: Mapping[str, Term] = TERMS) -> Effects:
    """The parameters of these rows: a member of a level for every generation, architecture and chip among them."""
    members = [members_of(engine, chip.name) for engine, chip in steps.cells]
    names: list[Name] = []
    mean, sd = [], []
    for term, known in terms.items():
        names.append((term, "mean", ""))
        mean.append(known.mean)
        sd.append(known.sd)
        for level in LEVELS:
            shared = level in known.spread and level != MACHINE
            found = sorted({each[level] for each in members}) if shared else []
            names += [(term, level, member) for member in found]
            mean += [0.0] * len(found)
            sd += [known.spread_of(level, member) for member in found]
    return Effects(tuple(names), np.array(mean), np.array(sd), spoken_of(names, tuple(terms), members))


def spoken_of(names: Sequence[Name], terms: Sequence[str], members: Sequence[Mapping[str, str]]) -> Floats:
    """(cells, terms, parameters): 1 where a parameter speaks for a term of a cell; `members` are those of each cell."""
    spoken = np.zeros((len(members), len(terms), len(names)))
    for column, (term, level, member) in enumerate(names):
        for cell, own in enumerate(members):
            spoken[cell, terms.index(term), column] = float(own.get(level, "") == member)
    return spoken


def members_of(engine: str, chip: str) -> Mapping[str, str]:
    """The member of each level that an engine's generation and a chip are."""
    architecture = load_architectures().of(chip)
    return {"mean": "", "engine": engine, "architecture": architecture, "chip": chip, "machine": f"{engine}/{chip}"}


def log_seconds(steps: MeasuredSteps, terms: jax.Array) -> jax.Array:
    """Logarithm of the predicted seconds of every row; `terms` has one row per row and one column per term."""
    kernels = jax.tree.map(lambda leaf: leaf[steps.cell], steps.kernels)
    found = achieved(kernels, {name: terms[:, place] for place, name in enumerate(TERMS)})
    return jnp.log(steps.predicted(found))


def terms_of(steps: MeasuredSteps, effects: Effects, values: Floats) -> Floats:
    """The terms of every row."""
    found: Floats = (effects.spoken @ values)[steps.cell]
    return found


def weights_of(groups: Sequence[Hashable], repeated: float = REPEATED) -> Floats:
    """How much each row counts: n rows of a group together as much as n/(1 + (n - 1) repeated) independent ones."""
    count = Counter(groups)
    return np.array([1 / (1 + (count[group] - 1) * repeated) for group in groups])


def group_of(steps: MeasuredSteps, place: int) -> Hashable:
    """What the rows have in common whose errors are alike: model, chip, generation, source."""
    usable = steps.rows[place]
    engine, chip = steps.cells[steps.cell[place]]
    return usable.model, chip.name, engine, usable.row.id.partition("-")[0]


@dataclass(frozen=True)
class Form:
    """A form of the model: its law, the terms it has, and how much rows of a group repeat each other."""

    law: Callable[[MeasuredSteps, jax.Array], jax.Array] = log_seconds
    """ln of the seconds of every row from its terms, one column each."""
    terms: Mapping[str, Term] = field(default_factory=lambda: TERMS)
    repeated: float = REPEATED


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
        counted = (1 + (off / ROBUST) ** 2) ** -1.5
        found: Floats = slope.T @ (slope * counted[:, None]) + np.eye(len(point))
        return found


class StepFitter:
    """Fits the terms to any of these rows; the law and its slopes are compiled once."""

    def __init__(self, steps: MeasuredSteps, form: Form | None = None, effects: Effects | None = None) -> None:
        self.steps = steps
        self.form = form or Form()
        self.effects = effects or effects_of(steps, self.form.terms)
        self._groups = [group_of(steps, place) for place in range(len(steps))]
        self._measured = np.log(steps.seconds)
        law = partial(self.form.law, steps)

        def slopes(terms: jax.Array) -> jax.Array:
            def along(turn: jax.Array) -> jax.Array:
                slope: jax.Array = jax.jvp(law, (terms,), (jnp.broadcast_to(turn, terms.shape),))[1]
                return slope

            return jax.vmap(along, out_axes=1)(jnp.eye(terms.shape[1], dtype=terms.dtype))

        self._predict = jax.jit(law)
        self._slopes = jax.jit(slopes)

    def log_ratio(self, fit: Fit) -> Floats:
        """ln(predicted / measured) of every row."""
        with jax.enable_x64(True):
            found: Floats = np.asarray(self._predict(terms_of(self.steps, fit.effects, fit.values))) - self._measured
        return found

    def of_terms(self, fit: Fit) -> Floats:
        """How ln(predicted) of every row changes with every term: the share of its time that follows the term."""
        with jax.enable_x64(True):
            found: Floats = np.asarray(self._slopes(terms_of(self.steps, fit.effects, fit.values)))
        return found

    def slopes(self, fit: Fit) -> Floats:
        """How ln(predicted) of every row changes with every effect."""
        found: Floats = np.matmul(self.of_terms(fit)[:, None, :], fit.effects.spoken[self.steps.cell])[:, 0, :]
        return found

    def fit(self, keep: NDArray[np.bool_], start: Floats | None = None, rounds: int = 40) -> Fit:
        """The most likely effects of the kept rows; `start`, those of much the same rows, saves rounds."""
        effects = self.effects
        begin = np.zeros(len(effects.names)) if start is None else (start - effects.prior_mean) / effects.prior_root
        groups = [self._groups[place] for place in np.flatnonzero(keep)]
        return self._fitted(effects, keep, weights_of(groups, self.form.repeated), begin, rounds)

    def refit(self, fit: Fit, keep: NDArray[np.bool_], rounds: int = 40) -> Fit:
        """What is known after a fit, brought up to date with more rows of one's own, each counted in full.

        Their machines get effects of their own.
        """
        cells = [self.steps.cells[cell] for cell in np.unique(self.steps.cell[keep])]
        known = with_machines(fit, [members_of(engine, chip.name)[MACHINE] for engine, chip in cells], self.steps)
        return self._fitted(known, keep, np.ones(int(np.sum(keep))), np.zeros(len(known.names)), rounds)

    def _fitted(self, effects: Effects, keep: NDArray[np.bool_], weights: Floats, begin: Floats, rounds: int) -> Fit:
        def there(point: Floats) -> Fit:
            return Fit(effects, effects.at(point), np.zeros((0, 0)))

        weight = np.zeros(len(self.steps))
        weight[keep] = np.sqrt(weights) / NOISE
        problem = _Problem(
            lambda point: weight * self.log_ratio(there(point)),
            lambda point: effects.along(weight[:, None] * self.slopes(there(point))),
        )
        found = minimize(
            problem.cost,
            begin,
            method="trust-krylov",
            jac=problem.gradient,
            hess=problem.curvature,
            options={"maxiter": rounds, "gtol": _STEEP},
        )
        covariance = effects.spread(np.asarray(np.linalg.inv(problem.curvature(found.x)), np.float64))
        return Fit(effects, effects.at(found.x), covariance)


def with_machines(fit: Fit, machines: Sequence[str], steps: MeasuredSteps) -> Effects:
    """A fit as what is known, with effects of these machines that it lacks, of which nothing is known."""
    new = [
        (term, MACHINE, machine)
        for term, known in TERMS.items()
        for machine in machines
        if MACHINE in known.spread and (term, MACHINE, machine) not in fit.effects.names
    ]
    return extended(fit.effects.names, fit.values, fit.covariance, new, steps)


def extended(
    known: Sequence[Name], values: Floats, covariance: Floats, new: Sequence[Name], steps: MeasuredSteps
) -> Effects:
    """Known effects and their covariance, with new ones as uncertain as those of any stranger, for these steps."""
    size, names = len(known), (*known, *new)
    whole = np.diag([0.0] * size + [TERMS[term].spread_of(level, member) ** 2 for term, level, member in new])
    whole[:size, :size] = covariance
    members = [members_of(engine, chip.name) for engine, chip in steps.cells]
    mean = np.concatenate([values, np.zeros(len(new))])
    return Effects(names, mean, root_of(whole), spoken_of(names, tuple(TERMS), members))
