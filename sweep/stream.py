"""Streaming a whole grid: every point evaluated, nothing stored but the exact front and the summary."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kvwall.objectives.register import STATUS_OK
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import LARGE, PointEvaluator, Problem, RowReducer, RowStatistics
from kvwall.sweep.layout import Layout, choose_layouts
from kvwall.sweep.results import Summary
from kvwall.sweep.tally import Tally

POINTS_PER_CALL = 2**24
"""Points one kernel call reduces: enough to hide its overhead, few enough to report progress often."""
POINTS_PER_LOOK = 2**18
"""Points whose objectives leave the kernel together when rows are searched for the front."""

Progress = Callable[[int, int], None]
"""Called with points done and points in all; a point counts once both passes have seen it."""


@dataclass(frozen=True)
class Streamed:
    """What a streamed grid comes to."""

    front: Front
    summary: Summary
    seconds: float
    """Without compiling."""
    compile_seconds: float
    rows: int
    rows_searched: int
    """Rows that the front did not rule out as a whole."""


class Stream:
    """Evaluates every point of a problem's grid."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.space = problem.columns.space
        self.depends = problem.metric_shapes()
        self.first, self.second = choose_layouts(self.space, self._narrow)
        self.rows_searched = 0

    @cached_property
    def _narrow(self) -> dict[str, frozenset[str]]:
        """Objectives that depend on few dimensions."""
        metrics = [objective.metric for objective in self.problem.objectives]
        return {name: self.depends[name] for name in metrics if len(self.depends[name]) <= len(self.space.dims) // 2}

    def run(self, progress: Progress = lambda done, points: None) -> Streamed:
        """Both passes, the front and the summary. The result does not depend on the number of threads."""
        began = time.perf_counter()
        main = self._reducer(self.problem, self.first, self.first.rows)
        others = self._reducer(replace(self.problem, objectives=(), constraints=()), self.second, self.first.columns)
        for reducer in (main, others):
            reducer.compile()
        points = PointEvaluator(self.problem, self.first, max(1, POINTS_PER_LOOK // self.first.column_count))
        points.compile(len(self.problem.objectives))
        compiled = time.perf_counter()
        front = Front(len(self.problem.objectives))
        by_row = Tally(self.first, self.first.rows, main.metrics)
        by_column = Tally(self.second, self.first.columns, others.metrics)
        size, half = self.space.size, 0.5
        for first_row, found in _in_order(main):
            by_row.add(first_row, found)
            self._search(front, points, first_row, found)
            progress(int(half * size * (first_row + len(found.low)) / self.first.row_count), size)
        for first_row, found in _in_order(others):
            by_column.add(first_row, found)
            progress(int(size * (half + half * (first_row + len(found.low)) / self.second.row_count)), size)
        seconds = time.perf_counter() - compiled
        summary = self._summary(by_row, by_column)
        return Streamed(front, summary, seconds, compiled - began, self.first.row_count, self.rows_searched)

    def _reducer(self, problem: Problem, layout: Layout, wanted: tuple[str, ...]) -> RowReducer:
        rows = min(layout.row_count, max(1, POINTS_PER_CALL // layout.column_count))
        metrics = [name for name, dims in self.depends.items() if dims & set(wanted)]
        return RowReducer(problem, layout, rows, metrics)

    def _search(self, front: Front, points: PointEvaluator, first_row: int, found: RowStatistics) -> None:
        """Look into rows that may hold points of the front, most promising first."""
        if not self.problem.objectives:
            return
        exact = np.array(
            [not self.depends[objective.metric] & set(self.first.columns) for objective in self.problem.objectives]
        )
        rows = np.flatnonzero(found.best[:, 0] < LARGE)
        rows = rows[np.argsort(found.best[rows, 0], kind="stable")]
        while len(rows):
            rows = rows[front.may_improve(found.best[rows], exact)]
            look, rows = rows[: points.rows_per_call], rows[points.rows_per_call :]
            if len(look):
                self.rows_searched += len(look)
                index, values = points(first_row + look, found.best[look], front.sample())
                front.add(values, index)

    def _summary(self, by_row: Tally, by_column: Tally) -> Summary:
        low, high = by_row.extremes(self.depends)
        more_low, more_high = by_column.extremes(self.depends)
        totals = by_row.label_totals()
        return Summary(
            points=self.space.size,
            feasible=int(totals["status"][STATUS_OK]),
            admissible=by_row.admissible,
            rejected={
                str(constraint): int(count)
                for constraint, count in zip(self.problem.constraints, by_row.rejected, strict=True)
            },
            counts=by_row.shares() | by_column.shares(),
            low=low | more_low,
            high=high | more_high,
            totals=totals,
            histogram={},
        )


def _in_order(reducer: RowReducer) -> Iterator[tuple[int, RowStatistics]]:
    """Every call of a reducer, in row order, with as many in flight as there are cores."""
    starts = range(0, reducer.layout.row_count, reducer.rows_per_call)
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        flying = {start: pool.submit(reducer, start) for start in starts[: threads + 1]}
        for place, start in enumerate(starts):
            found = flying.pop(start).result()
            if place + threads + 1 < len(starts):
                flying[starts[place + threads + 1]] = pool.submit(reducer, starts[place + threads + 1])
            yield start, found
