"""The exact optimum of the first objective over a whole grid, to measure a search against."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream, rows_in_order

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

MOST_POINTS = 5_000_000_000
"""Larger grids are not streamed just to state a regret; their sweep is worth keeping."""


def grid_optimum(study: Study, progress: Callable[[int, int], None] | None = None) -> float | None:
    """Best admissible value of the first objective, every point evaluated; None where no point is admissible.

    `progress` is told points done and points in all.
    """
    reducer, _ = Stream(problem_of(study)).reducers()
    reducer.compile()
    best: float | None = None
    for first_row, found in rows_in_order(reducer):
        values = found.best[found.admissible[:, 0] > 0, 0]
        if len(values):
            best = float(values.min()) if best is None else min(best, float(values.min()))
        if progress:
            points = (first_row + len(found.best)) * reducer.layout.column_count
            progress(min(points, study.space.size), study.space.size)
    return None if best is None else study.objectives[0].sign * best
