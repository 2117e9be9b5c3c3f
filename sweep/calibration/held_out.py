"""Predictions of rows that a fit has not seen: whole pairs of model and chip left out, or whole chips."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.models.load import load_model
from kvwall.sweep.calibration.estimate_fit import Fit, StepFitter
from kvwall.sweep.calibration.steps import MeasuredSteps

FOLDS: Final = 12
"""Parts that pairs of model and chip are left out in."""
ROUNDS: Final = 30
"""Of a fit that starts from that of all rows."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeldOut:
    """Every row predicted without its group."""

    log_ratio: Floats
    """ln(predicted / measured)."""
    spread: Floats
    """Standard deviation of ln time that the fit's own covariance gives."""


def pair_of(steps: MeasuredSteps, place: int) -> Hashable:
    """Model and chip of a row; models of the same matrices, such as Llama-3 and 3.1 of 8B, are one."""
    return _matrices(steps.rows[place].model), steps.rows[place].axes["hardware"]


@cache
def _matrices(model: str) -> Hashable:
    found = load_model(model)
    return found.parameters_total, found.parameters_active, found.decoder_layers


def chip_of(steps: MeasuredSteps, place: int) -> Hashable:
    """Chip of a row."""
    return steps.rows[place].axes["hardware"]


def held_out(
    fitter: StepFitter,
    fitted: Fit,
    fitting: NDArray[np.bool_],
    group: Callable[[MeasuredSteps, int], Hashable],
    folds: int = 0,
) -> HeldOut:
    """Each group's rows as a fit of the other rows of `fitting` predicts them; `folds` 0 leaves out one at a time."""
    steps = fitter.steps
    ratio, spread = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for outside in _parts([group(steps, place) for place in range(len(steps))], folds):
        found = fitter.fit(np.logical_and(fitting, ~outside), fitted.values, ROUNDS)
        ratio[outside] = fitter.log_ratio(found)[outside]
        spread[outside] = spread_of(fitter, found)[outside]
    return HeldOut(ratio, spread)


def spread_of(fitter: StepFitter, fit: Fit) -> Floats:
    """Standard deviation of ln(predicted) of every row from the fit's covariance."""
    slopes = fitter.slopes(fit)
    found: Floats = np.sqrt(np.sum((slopes @ fit.covariance) * slopes, axis=1))
    return found


def _parts(groups: list[Hashable], folds: int) -> Iterator[NDArray[np.bool_]]:
    """Masks of the rows to leave out: group by group, or groups dealt to `folds` parts, the largest first."""
    names = sorted(set(groups), key=lambda group: (-groups.count(group), repr(group)))
    size = [0] * (folds or len(names))
    part = {}
    for name in names:
        part[name] = size.index(min(size))
        size[part[name]] += groups.count(name)
    places = np.array([part[group] for group in groups])
    for each in range(len(size)):
        yield places == each
