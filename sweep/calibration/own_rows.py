"""What ten rows of one's own are worth: the error on a chip that the fit has not seen, before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.calibration.estimate_fit import Fit, StepFitter
from kvwall.sweep.calibration.held_out import ROUNDS

ROWS: Final = 10
LEAST: Final = 40
"""Rows of a chip below which what is left says little."""
DRAWS: Final = 5
"""Times that the rows are drawn."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class OwnRows:
    """One chip: median error on the rows that were not drawn, the mean over draws."""

    chip: str
    rows: int
    before: float
    after: float


def own_rows(fitter: StepFitter, whole: Fit, fitting: Mask) -> tuple[OwnRows, ...]:
    """Every chip with enough rows, left out of the fit and then told ROWS of its own, drawn at random."""
    chips = np.array([fitter.steps.cells[cell][1].name for cell in fitter.steps.cell])
    found = []
    for chip in np.unique(chips[fitting]):
        own = np.logical_and(fitting, chips == chip)
        if np.sum(own) < LEAST:
            continue
        without = fitter.fit(np.logical_and(fitting, ~own), whole.values, ROUNDS)
        errors = [_errors(fitter, without, own, seed) for seed in range(DRAWS)]
        before, after = (float(np.mean([each[place] for each in errors])) for place in (0, 1))
        found.append(OwnRows(str(chip), int(np.sum(own)), before, after))
    return tuple(found)


def _errors(fitter: StepFitter, without: Fit, own: Mask, seed: int) -> tuple[float, float]:
    """Median errors on the rows not drawn: (before, after)."""
    drawn = np.zeros_like(own)
    drawn[np.random.default_rng(seed).choice(np.flatnonzero(own), ROWS, replace=False)] = True
    rest = np.logical_and(own, ~drawn)
    after = fitter.refit(without, drawn, ROUNDS)
    before, now = (np.abs(np.expm1(fitter.log_ratio(fit.values)[rest])) for fit in (without, after))
    return float(np.median(before)), float(np.median(now))
