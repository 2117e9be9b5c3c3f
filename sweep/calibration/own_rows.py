"""What ten rows of one's own are worth: the error on a chip that the fit has not seen, before and after."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.calibration.estimate_fit import Fit, StepFitter
from kvwall.sweep.calibration.held_out import ROUNDS
from kvwall.sweep.held_out_record import OwnRows

ROWS: Final = 10
LEAST: Final = 40
"""Rows of a chip below which what is left says little."""
DRAWS: Final = 3
"""Times that the rows are drawn."""

Mask = NDArray[np.bool_]


def own_rows(fitter: StepFitter, whole: Fit, fitting: Mask) -> tuple[OwnRows, ...]:
    """Every machine with enough rows, its chip left out of the fit and then told ROWS of its own, drawn at random.

    Median errors on the rows that were not drawn, the mean over draws.
    """
    cells = np.array([f"{engine}/{chip.name}" for engine, chip in fitter.steps.cells])[fitter.steps.cell]
    chips = np.array([chip.name for _, chip in fitter.steps.cells])[fitter.steps.cell]
    machines = [cell for cell in np.unique(cells[fitting]) if np.sum(np.logical_and(fitting, cells == cell)) >= LEAST]
    without: dict[str, Fit] = {}
    found = []
    for machine in machines:
        own = np.logical_and(fitting, cells == machine)
        engine, _, chip = str(machine).partition("/")
        if chip not in without:
            without[chip] = fitter.fit(np.logical_and(fitting, chips != chip), whole.values, ROUNDS)
        errors = [_errors(fitter, without[chip], own, seed) for seed in range(DRAWS)]
        before, after = (float(np.mean([each[place] for each in errors])) for place in (0, 1))
        found.append(OwnRows(chip, engine, int(np.sum(own)), before, after))
    return tuple(found)


def _errors(fitter: StepFitter, without: Fit, own: Mask, seed: int) -> tuple[float, float]:
    """Median errors on the rows not drawn: (before, after)."""
    drawn = np.zeros_like(own)
    drawn[np.random.default_rng(seed).choice(np.flatnonzero(own), ROWS, replace=False)] = True
    rest = np.logical_and(own, ~drawn)
    after = fitter.refit(without, drawn, ROUNDS)
    before, now = (np.abs(np.expm1(fitter.log_ratio(fit)[rest])) for fit in (without, after))
    return float(np.median(before)), float(np.median(now))
