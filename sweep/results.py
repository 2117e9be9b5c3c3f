"""What a sweep found, as records: the exact front and the summary of the whole grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class FrontTable:
    """The exact front: one row per distinct non-dominated design, in grid order, unrounded."""

    grid_index: NDArray[np.int64]
    """Flat index into the study's space, shape (n,); `Space.point` gives the design."""
    multiplicity: NDArray[np.int64]
    """Designs of the grid whose objectives tie exactly with this one, itself included, shape (n,)."""
    metrics: Mapping[str, NDArray[np.floating]]
    """Every metric of each row in its register unit, shape (n,); NaN where a figure it needs has no source."""
    labels: Mapping[str, NDArray[np.int8]]
    """Every label of each row as the index into its register meanings, shape (n,)."""

    def __len__(self) -> int:
        return len(self.grid_index)


@dataclass(frozen=True)
class Histogram:
    """How often a metric falls between neighbouring edges, over feasible points."""

    edges: NDArray[np.float64]
    """Rising, shape (bins + 1,), in the metric's unit."""
    counts: NDArray[np.int64]
    """Points in each bin, shape (bins,)."""


@dataclass(frozen=True)
class Summary:
    """Counts, extremes and shares over the whole grid, also where single points were not stored."""

    points: int
    feasible: int
    """Points whose status is ok."""
    admissible: int
    """Feasible points inside every constraint."""
    rejected: Mapping[str, int]
    """Constraint as text -> feasible points that this constraint alone would reject."""
    counts: Mapping[str, Mapping[str, NDArray[np.int64]]]
    """Dimension -> label -> points of each category, shape (values of the dimension, categories)."""
    low: Mapping[str, Mapping[str, NDArray[np.floating]]]
    """Dimension -> metric -> lowest feasible value at each value of the dimension; NaN where nothing is feasible.

    A metric appears under a dimension only if it depends on it.
    """
    high: Mapping[str, Mapping[str, NDArray[np.floating]]]
    """Like `low`, the highest."""
    totals: Mapping[str, NDArray[np.int64]]
    """Label -> points of each category over the grid, shape (categories,)."""
    histogram: Mapping[str, Histogram]
    """Metric -> its distribution over feasible points."""
