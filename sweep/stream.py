"""Streaming a whole grid: every point evaluated, nothing stored but the exact front and the summary."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from kvwall.objectives.register import STATUS_OK
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import BINS, Problem, RowReducer, RowStatistics
from kvwall.sweep.layout import Layout, choose_layouts
from kvwall.sweep.points import PointEvaluator
from kvwall.sweep.reduction import LARGE
from kvwall.sweep.results import Histogram, Summary
from kvwall.sweep.tally import Tally

POINTS_PER_CALL = 2**24
"""Points one kernel call reduces: enough to hide its overhead, few enough to report progress often."""
POINTS_PER_LOOK = 2**18
"""Points whose objectives leave the kernel together when rows are searched for the front."""

Progress = Callable[[int, int], None]
"""Called with points done and points in all; a point counts once both passes have seen it."""


class Keeper(Protocol):
    """Keeps the state of a stream where an interruption cannot reach it."""

    def last(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The last state of this very stream, if there is one."""

    def offer(self, arrays: Callable[[], dict[str, np.ndarray[Any, Any]]]) -> None:
        """Take the state, or not if it is too soon; calling `arrays` gives it."""


@dataclass
class _State:
    """How far a stream is and what it has found."""

    front: Front
    by_row: Tally
    by_column: Tally
    main_rows: int = 0
    other_rows: int = 0

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything, as named arrays."""
        found = {"rows": np.array([self.main_rows, self.other_rows], np.int64)}
        for name, part in (("front", self.front), ("by_row", self.by_row), ("by_column", self.by_column)):
            found |= {f"{name}.{key}": array for key, array in part.arrays().items()}
        return found

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]] | None) -> None:
        """Go back to what `arrays` gave."""
        if arrays is None:
            return
        self.main_rows, self.other_rows = (int(rows) for rows in arrays["rows"])
        for name, part in (("front", self.front), ("by_row", self.by_row), ("by_column", self.by_column)):
            part.restore({key.partition(".")[2]: a for key, a in arrays.items() if key.startswith(f"{name}.")})


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

    def __init__(self, problem: Problem, points_per_call: int = POINTS_PER_CALL) -> None:
        self.problem = problem
        self.points_per_call = points_per_call
        self.space = problem.columns.space
        self.depends = problem.metric_shapes()
        self.first, self.second = choose_layouts(self.space, self._narrow)
        self.rows_searched = 0
        self.compile_seconds = 0.0
        self._kernels: tuple[RowReducer, RowReducer, PointEvaluator] | None = None

    @cached_property
    def _narrow(self) -> dict[str, frozenset[str]]:
        """Objectives that depend on few dimensions."""
        metrics = [objective.metric for objective in self.problem.objectives]
        return {name: self.depends[name] for name in metrics if len(self.depends[name]) <= len(self.space.dims) // 2}

    def reducers(self) -> tuple[RowReducer, RowReducer]:
        """The kernels of the two passes, not compiled yet."""
        bare = replace(self.problem, objectives=(), constraints=())
        return (
            self._reducer(self.problem, self.first, self.first.rows, None),
            self._reducer(bare, self.second, self.first.columns, self._shown),
        )

    def compile(self) -> tuple[RowReducer, RowReducer, PointEvaluator]:
        """Compile the kernels, once: the two passes, and the one that looks into rows."""
        if self._kernels is None:
            began = time.perf_counter()
            main, others = self.reducers()
            points = PointEvaluator(self.problem, self.first, max(1, POINTS_PER_LOOK // self.first.column_count))
            for kernel in (main, others, points):
                kernel.compile()
            self._kernels = main, others, points
            self.compile_seconds = time.perf_counter() - began
        return self._kernels

    def run(self, progress: Progress = lambda done, points: None, keep: Keeper | None = None) -> Streamed:
        """Both passes, the front and the summary. The result does not depend on threads, nor on interruptions.

        `keep` is given the state from time to time, and hands back the last one it was given when a run starts over.
        """
        main, others, points = self.compile()
        began = time.perf_counter()
        state = _State(
            Front(len(self.problem.objectives)),
            Tally(self.first, self.first.rows, main.metrics),
            Tally(self.second, self.first.columns, others.metrics),
        )
        state.restore(keep.last() if keep else None)
        for first_row, found in _in_order(main, state.main_rows):
            state.by_row.add(first_row, found)
            self._search(state.front, points, first_row, found)
            state.main_rows = first_row + len(found.low)
            self._report(state, progress, keep)
        others.edges = self._edges(state.by_row)
        for first_row, found in _in_order(others, state.other_rows):
            state.by_column.add(first_row, found)
            state.other_rows = first_row + len(found.low)
            self._report(state, progress, keep)
        seconds = time.perf_counter() - began
        summary = self._summary(state.by_row, state.by_column)
        return Streamed(state.front, summary, seconds, self.compile_seconds, self.first.row_count, self.rows_searched)

    def seconds_expected(self) -> float:
        """Seconds a run would take on this machine, from a few calls of each pass; the search of rows is not in it."""
        total = 0.0
        for reducer in self.compile()[:2]:
            calls = -(-reducer.layout.row_count // reducer.rows_per_call)
            tried = min(calls, 2 * (os.cpu_count() or 1))
            began = time.perf_counter()
            for place, _ in enumerate(_in_order(reducer, 0), start=1):
                if place == tried:
                    break
            total += (time.perf_counter() - began) / tried * calls
        return total

    def _report(self, state: _State, progress: Progress, keep: Keeper | None) -> None:
        done = state.main_rows / self.first.row_count + state.other_rows / self.second.row_count
        progress(int(self.space.size * done / 2), self.space.size)
        if keep:
            keep.offer(state.arrays)

    def _reducer(self, problem: Problem, layout: Layout, wanted: tuple[str, ...], histogram: str | None) -> RowReducer:
        rows = min(layout.row_count, max(1, self.points_per_call // layout.column_count))
        metrics = [name for name, dims in self.depends.items() if dims & set(wanted) or name == self._shown]
        return RowReducer(problem, layout, rows, metrics, histogram)

    @property
    def _shown(self) -> str | None:
        """The metric whose distribution is counted: the first objective."""
        return self.problem.objectives[0].metric if self.problem.objectives else None

    def _edges(self, by_row: Tally) -> np.ndarray[Any, Any]:
        """Lower edges of the histogram's bins, between the extremes that the first pass found."""
        low, high = by_row.range_of(self._shown) if self._shown else (LARGE, -LARGE)
        if not low < high:
            return np.full(BINS, LARGE, np.float32)
        spaced = np.geomspace if low > 0 else np.linspace
        edges = spaced(low, min(high, LARGE), BINS, endpoint=False).astype(np.float32)
        edges[0] = low
        return edges

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
            admissible=int(by_row.admissible[0]),
            rejected={
                str(constraint): int(count)
                for constraint, count in zip(self.problem.constraints, by_row.rejected, strict=True)
            },
            counts=by_row.shares() | by_column.shares(),
            low=low | more_low,
            high=high | more_high,
            totals=totals,
            histogram=self._histogram(by_row, by_column),
        )

    def _histogram(self, by_row: Tally, by_column: Tally) -> dict[str, Histogram]:
        edges = self._edges(by_row).astype(np.float64)
        if self._shown is None or edges[0] >= LARGE:
            return {}
        counts = -np.diff(np.append(by_column.above, 0))
        return {self._shown: Histogram(np.append(edges, by_row.range_of(self._shown)[1]), counts)}


def _in_order(reducer: RowReducer, first_row: int) -> Iterator[tuple[int, RowStatistics]]:
    """Every call of a reducer from `first_row` on, in row order, with as many in flight as there are cores."""
    starts = range(first_row, reducer.layout.row_count, reducer.rows_per_call)
    threads = os.cpu_count() or 1
    pool = ThreadPoolExecutor(threads)
    try:
        flying = deque(pool.submit(reducer, start) for start in starts[: threads + 1])
        for place, start in enumerate(starts):
            found = flying.popleft().result()
            if place + threads + 1 < len(starts):
                flying.append(pool.submit(reducer, starts[place + threads + 1]))
            yield start, found
    finally:
        pool.shutdown(cancel_futures=True)
