"""Fits one quality curve: its law in float64, and a robust least-squares fit near the median, drawn to a parent.

Rows of one source count together as the square root of their number; too few rows leave the parent as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from kvwall.spaces.quality import Evidence, FittedBits, FittedEviction
from kvwall.sweep.quality_rows import Row

FEWEST_ROWS = 6
"""A curve with fewer rows is its parent's."""

Floats = NDArray[np.float64]


def bits_hazard(settings: Floats, shares: Sequence[float], curve: FittedBits) -> Floats:
    """Hazard at bits of shape (rows, terms) with the terms' shares; the law of `objectives/quality.py` in float64."""
    missing = np.maximum(16 - settings, 0)
    grown = np.exp(curve.slope * (missing - 12)) - np.exp(-12 * curve.slope)
    total: Floats = grown @ np.asarray(shares) * curve.scale + ((missing / 8) ** 4).mean(axis=1) * curve.floor
    return total


def eviction_hazard(settings: Floats, curve: FittedEviction) -> Floats:
    """Hazard at kept fractions of shape (rows, 1); the law of `objectives/quality.py` in float64."""
    kept = np.minimum(settings[:, 0], 1 - 1e-12)
    overload = np.exp(curve.exponent * (np.log((1 - kept) / kept) - curve.log_half))
    hazard: Floats = np.log1p(overload) - np.log1p((1 - curve.ceiling) * overload)
    return hazard


def fit_bits(rows: Sequence[Row], shares: Sequence[float], parent: FittedBits, parent_name: str) -> FittedBits:
    """One curve over bits. The parent's numbers weigh as much as one row of one source."""
    evidence = _evidence(rows)
    if evidence.rows < FEWEST_ROWS:
        return replace(parent, evidence=replace(evidence, borrowed_from=parent_name))

    def curve(point: Floats) -> FittedBits:
        return FittedBits(float(np.exp(point[0])), float(point[1]), float(np.exp(point[2])), evidence)

    def predict(point: Floats, settings: Floats) -> Floats:
        return bits_hazard(settings, shares, curve(point))

    centre = np.array([np.log(parent.scale), parent.slope, np.log(parent.floor)])
    return curve(_solve(rows, predict, centre, np.array([1.0, 0.4, 1.0]), ((-12, 3), (0.3, 4.0), (-12, -2))))


def fit_eviction(rows: Sequence[Row], parent: FittedEviction, parent_name: str) -> FittedEviction:
    """One eviction curve; the ceiling is 1 wherever the parent's is (retrieval and perplexity)."""
    evidence = _evidence(rows)
    if evidence.rows < FEWEST_ROWS:
        return replace(parent, evidence=replace(evidence, borrowed_from=parent_name))
    free = parent.ceiling < 1

    def curve(point: Floats) -> FittedEviction:
        return FittedEviction(float(point[0]), float(point[1]), float(point[2]) if free else 1.0, evidence)

    def predict(point: Floats, settings: Floats) -> Floats:
        return eviction_hazard(settings, curve(point))

    centre = np.array([parent.exponent, parent.log_half, parent.ceiling if free else 0.98])
    return curve(_solve(rows, predict, centre, np.array([0.5, 1.0, 0.2]), ((1.0, 4.0), (-4.0, 9.0), (0.3, 0.99))))


def _solve(
    rows: Sequence[Row],
    predict: Callable[[Floats, Floats], Floats],
    centre: Floats,
    spread: Floats,
    bounds: Sequence[tuple[float, float]],
) -> Floats:
    log_ratio = rows[0].task == "perplexity"
    settings = np.array([row.settings for row in rows])
    per_source = Counter(row.source for row in rows)
    weight = np.array([per_source[row.source] ** -0.25 for row in rows])  # squared by the cost
    unit = 0.003 if log_ratio else 0.01  # near the reading error: above it residuals are relative, below absolute
    target = np.arcsinh(np.array([row.hazard for row in rows]) / unit)

    def residual(point: Floats) -> Floats:
        return np.concatenate(
            [weight * (np.arcsinh(predict(point, settings) / unit) - target), (point - centre) / spread]
        )

    low, high = np.array(bounds, dtype=float).T
    start = np.clip(centre, low + 1e-3, high - 1e-3)
    point: Floats = least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.5).x
    return point


def _evidence(rows: Sequence[Row]) -> Evidence:
    return Evidence(len(rows), len({row.source for row in rows}), None)
