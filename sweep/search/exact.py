"""The exact optimum of the first objective over a whole grid, to measure a search against."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvwall.sweep.kernel import Problem, RowReducer
from kvwall.sweep.layout import choose_layouts
from kvwall.sweep.reduction import LARGE

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

MOST_POINTS = 5_000_000_000
"""Larger grids are not streamed just to state a regret; their sweep is worth keeping."""
_POINTS_PER_CALL = 2**24


def grid_optimum(study: Study, progress: Callable[[int, int], None] | None = None) -> float | None:
    """Best admissible value of the first objective, every point evaluated; None where no point is admissible.

    `progress` is told points done and points in all.
    """
    problem = Problem(study.columns(), study.task, study.objectives, study.constraints)
    layout = choose_layouts(study.space, {})[0]
    rows = min(layout.row_count, max(1, _POINTS_PER_CALL // layout.column_count))
    reducer = RowReducer(problem, layout, rows, ())
    best = float(LARGE)
    for first in range(0, layout.row_count, rows):
        best = min(best, float(reducer(first).best[:, 0].min()))
        if progress:
            progress(min(layout.row_count, first + rows) * layout.column_count, study.space.size)
    return study.objectives[0].sign * best if best < LARGE else None
