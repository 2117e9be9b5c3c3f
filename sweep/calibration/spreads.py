"""How far estimates are off on rows left out, beyond what the fit's own covariance says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.estimate import DEVIATIONS_OF_BAND
from kvwall.sweep.calibration.held_out import HeldOut, chip_of, pair_of
from kvwall.sweep.calibration.steps import MeasuredSteps

COVERED: Final = 0.8
"""Share of rows that a band from 10 % to 90 % is to hold."""
_CANDIDATES: Final = np.arange(0.02, 0.6, 0.005)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of ln time among models."""

    dense: float
    experts: float

    def total(self, routed: Mask, of_fit: Floats) -> Floats:
        """Standard deviation of ln time of rows."""
        found: Floats = np.hypot(np.where(routed, self.experts, self.dense), of_fit)
        return found

    def covered(self, routed: Mask, left: HeldOut) -> Mask:
        """Rows inside their band."""
        found: Mask = np.abs(left.log_ratio) <= DEVIATIONS_OF_BAND * self.total(routed, left.spread)
        return found


def spreads_of(steps: MeasuredSteps, by_pair: HeldOut, which: Mask | None = None) -> Spreads:
    """Spreads that hold COVERED of the rows of pairs left out; `which` rows count, all by default."""
    counted = ~steps.too_fast if which is None else np.logical_and(which, ~steps.too_fast)
    dense, experts = (_spread(np.logical_and(counted, of), by_pair) for of in (~steps.routed, steps.routed))
    return Spreads(dense, experts)


def covered_elsewhere(steps: MeasuredSteps, by_pair: HeldOut, by_chip: HeldOut) -> tuple[Mask, Mask]:
    """Rows inside bands whose spreads were set on other rows: (pairs left out, chips left out).

    Pairs and chips are dealt to two halves; each is covered by the spreads of the other.
    """
    found = []
    for left, group in ((by_pair, pair_of), (by_chip, chip_of)):
        groups = [group(steps, place) for place in range(len(steps))]
        first = {each for place, each in enumerate(sorted(set(groups), key=repr)) if place % 2}
        half = np.array([each in first for each in groups])
        inside = np.zeros(len(steps), bool)
        for own in (half, ~half):
            inside[own] = spreads_of(steps, by_pair, ~own).covered(steps.routed, left)[own]
        found.append(inside)
    return found[0], found[1]


def _spread(which: Mask, left: HeldOut) -> float:
    ratio, of_fit = np.abs(left.log_ratio[which]), left.spread[which]
    shares = [np.mean(ratio <= DEVIATIONS_OF_BAND * np.hypot(own, of_fit)) for own in _CANDIDATES]
    return float(_CANDIDATES[int(np.argmin(np.abs(np.array(shares) - COVERED)))])
