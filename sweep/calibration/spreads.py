"""How far estimates are off on rows left out, beyond what the fit's own covariance says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.estimate import DEVIATIONS_OF_BAND
from kvwall.sweep.calibration.held_out import HeldOut, chip_of, pair_of
from kvwall.sweep.calibration.steps import MeasuredSteps

COVERED: Final = 0.8
"""Share of rows that a band from 10 % to 90 % is to hold."""
_CANDIDATES: Final = np.arange(0.02, 0.5, 0.005)
_INFLATIONS: Final = np.arange(0.5, 4.01, 0.25)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of ln time among models, and the factor on those of the fit."""

    dense: float
    experts: float
    inflation: float

    def total(self, routed: Mask, of_fit: Floats) -> Floats:
        """Standard deviation of ln time of rows."""
        own = np.where(routed, self.experts, self.dense)
        found: Floats = np.hypot(own, self.inflation * of_fit)
        return found

    def covered(self, routed: Mask, left: HeldOut) -> Mask:
        """Rows inside their band."""
        found: Mask = np.abs(left.log_ratio) <= DEVIATIONS_OF_BAND * self.total(routed, left.spread)
        return found


def spreads_of(steps: MeasuredSteps, by_pair: HeldOut, by_chip: HeldOut, which: Mask | None = None) -> Spreads:
    """Spreads among models that hold COVERED of the rows of pairs left out, and the inflation that does so of chips.

    Each chip left out counts alike, whatever its rows; `which` rows count, all by default.
    """
    counted = ~steps.too_fast if which is None else np.logical_and(which, ~steps.too_fast)
    found = [_spreads(steps.routed, counted, by_pair, float(inflation)) for inflation in _INFLATIONS]
    off = [abs(_of_chips(steps, counted, spreads, by_chip) - COVERED) for spreads in found]
    return found[int(np.argmin(off))]


def covered_elsewhere(steps: MeasuredSteps, by_pair: HeldOut, by_chip: HeldOut) -> tuple[Mask, Mask]:
    """Rows inside bands whose spreads were set on other rows: (pairs left out, chips left out).

    Models and chips are dealt to two halves; each is covered by the spreads of the other.
    """
    found = []
    for left, group in ((by_pair, pair_of), (by_chip, chip_of)):
        groups = [group(steps, place) for place in range(len(steps))]
        first = {each for place, each in enumerate(sorted(set(groups), key=repr)) if place % 2}
        half = np.array([each in first for each in groups])
        inside = np.zeros(len(steps), bool)
        for own in (half, ~half):
            spreads = spreads_of(steps, by_pair, by_chip, ~own)
            inside[own] = spreads.covered(steps.routed, left)[own]
        found.append(inside)
    return found[0], found[1]


def _spreads(routed: Mask, counted: Mask, left: HeldOut, inflation: float) -> Spreads:
    dense, experts = (_spread(np.logical_and(counted, which), left, inflation) for which in (~routed, routed))
    return Spreads(dense, experts, inflation)


def _spread(which: Mask, left: HeldOut, inflation: float) -> float:
    ratio, of_fit = np.abs(left.log_ratio[which]), left.spread[which]
    shares = [np.mean(ratio <= DEVIATIONS_OF_BAND * np.hypot(own, inflation * of_fit)) for own in _CANDIDATES]
    return float(_CANDIDATES[int(np.argmin(np.abs(np.array(shares) - COVERED)))])


def _of_chips(steps: MeasuredSteps, counted: Mask, spreads: Spreads, left: HeldOut) -> float:
    inside = spreads.covered(steps.routed, left)
    return float(np.mean([np.mean(inside[rows]) for rows in _by_chip(steps, counted)]))


def _by_chip(steps: MeasuredSteps, counted: Mask) -> Sequence[NDArray[np.int64]]:
    chips = np.array([str(usable.axes["hardware"]) for usable in steps.rows])
    return [np.flatnonzero(np.logical_and(counted, chips == chip)) for chip in np.unique(chips[counted])]
