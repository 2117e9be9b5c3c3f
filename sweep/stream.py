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

from kvwall.objectives.register import STATUS_OK, metric_register
from kvwall.spaces.errors import InputError
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import BINS, Problem, RowReducer, RowStatistics
from kvwall.sweep.layout import Layout, choose_layouts
from kvwall.sweep.points import PointEvaluator
from kvwall.sweep.results import Histogram, Summary
from kvwall.sweep.tally import MOST_IN_RUN, Tally

POINTS_PER_CALL = 2**24
"""Points one kernel call reduces: enough to hide its overhead, few enough to report progress often."""
MOST_ROWS_PER_CALL = 2**15
"""Rows of one call: each brings back some hundred numbers."""
MOST_ROWS = 2**31 - 2 * MOST_ROWS_PER_CALL
"""Rows that 32-bit positions can number."""
POINTS_PER_LOOK = 2**18
"""Points whose objectives leave the kernel together when rows are searched for the front."""

Progress = Callable[[int, int], None]
"""Called with points done and points in all; first with what an earlier run has done. Each pass is half of a point."""


class Keeper(Protocol):
    """Keeps the state of a stream where an interruption cannot reach it."""

    def last(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The last state of this very stream, if there is one."""

    def offer(self, arrays: Callable[[], dict[str, np.ndarray[Any, Any]]], complete: bool = False) -> None:
        """Take the state, or not if it is too soon and not complete; calling `arrays` gives it."""


class Passes(Protocol):
    """Whoever does the two passes over a grid."""

    @property
    def compile_seconds(self) -> float:
        """Spent on compiling so far."""

    def first_pass(self, state: State) -> Iterator[None]:
        """Go on with the pass that reduces rows and finds the front; yields whenever `state` has moved on."""

    def second_pass(self, state: State, edges: np.ndarray[Any, Any]) -> Iterator[None]:
        """Go on with the pass along the first one's columns; `edges` are the lower edges of the histogram's bins."""


@dataclass
class State:
    """How far a stream is and what it has found."""

    front: Front
    by_row: Tally
    by_column: Tally
    shape: tuple[str, ...]
    """What tells this way of walking the grid from another."""
    main_rows: int = 0
    other_rows: int = 0
    searched: int = 0

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Everything, as named arrays."""
        counters = np.array([self.main_rows, self.other_rows, self.searched], np.int64)
        found = {"counters": counters, "shape": np.array(self.shape)}
        for name, part in (("front", self.front), ("by_row", self.by_row), ("by_column", self.by_column)):
            found |= {f"{name}.{key}": array for key, array in part.arrays().items()}
        return found

    def restore(self, arrays: Mapping[str, np.ndarray[Any, Any]] | None) -> None:
        """Go back to what `arrays` gave, if it was for this way of walking the grid."""
        if arrays is None or tuple(arrays["shape"].tolist()) != self.shape:
            return
        self.main_rows, self.other_rows, self.searched = (int(number) for number in arrays["counters"])
        for name, part in (("front", self.front), ("by_row", self.by_row), ("by_column", self.by_column)):
            part.restore({key.partition(".")[2]: a for key, a in arrays.items() if key.startswith(f"{name}.")})


@dataclass(frozen=True)
class Streamed:
    """What a streamed grid comes to."""

    front: Front
    summary: Summary
    points: int
    """Evaluated by this run: fewer than the grid has where an interrupted one went before."""
    seconds: float
    """Of this run, without compiling."""
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
        for layout in (self.first, self.second):
            if layout.row_count > MOST_ROWS:
                raise InputError(
                    f"the grid's {self.space.size:,} points make {layout.row_count:,} rows, and {MOST_ROWS:,} can be "
                    "numbered: split the study, or put fewer values on its longest axes"
                )
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

    def run(
        self,
        progress: Progress = lambda done, points: None,
        keep: Keeper | None = None,
        passes: Passes | None = None,
    ) -> Streamed:
        """Both passes, the front and the summary.

        The result does not depend on threads, on `passes` (this process's own where not given), nor on interruptions.
        `keep` is given the state from time to time, and hands back the last one it was given when a run starts over.
        """
        if passes is None:
            self.compile()
            passes = self
        began = time.perf_counter() - passes.compile_seconds
        state = self.state()
        state.restore(keep.last() if keep else None)
        before = self._done(state)
        progress(before, self.space.size)
        for _ in passes.first_pass(state):
            self._report(state, progress, keep)
        for _ in passes.second_pass(state, self._edges(state.by_row)):
            self._report(state, progress, keep)
        if keep:
            keep.offer(state.arrays, complete=True)
        return Streamed(
            front=state.front,
            summary=self._summary(state.by_row, state.by_column),
            points=self.space.size - before,
            seconds=time.perf_counter() - began - passes.compile_seconds,
            compile_seconds=passes.compile_seconds,
            rows=self.first.row_count,
            rows_searched=state.searched,
        )

    def state(self) -> State:
        """The state of a stream that has not begun."""
        main, others = self.reducers()
        return State(
            Front(len(self.problem.objectives)),
            Tally(self.first, self.first.rows, main.metrics),
            Tally(self.second, self.first.columns, others.metrics),
            (*self.first.columns, "/", *self.second.columns, *main.metrics, *others.metrics),
        )

    def first_pass(self, state: State) -> Iterator[None]:
        """Go on with the first pass in this process; yields whenever `state` has moved on."""
        main, _, points = self.compile()
        for first_row, found in rows_in_order(main, state.main_rows):
            state.by_row.add(first_row, found)
            state.searched += self.search(state.front, points, first_row, found)
            state.main_rows = first_row + len(found.low)
            yield

    def second_pass(self, state: State, edges: np.ndarray[Any, Any]) -> Iterator[None]:
        """Go on with the second pass, whose histogram has bins with these lower edges."""
        _, others, _ = self.compile()
        others.edges = edges
        for first_row, found in rows_in_order(others, state.other_rows):
            state.by_column.add(first_row, found)
            state.other_rows = first_row + len(found.low)
            yield

    def seconds_expected(self) -> float:
        """Seconds a run would take on this machine, from a few calls of each pass; the search of rows is not in it."""
        total = 0.0
        for reducer in self.compile()[:2]:
            calls = -(-reducer.layout.row_count // reducer.rows_per_call)
            tried = min(calls, 4 * (os.cpu_count() or 1))
            began = time.perf_counter()
            deque(rows_in_order(reducer, calls=tried), maxlen=0)
            total += (time.perf_counter() - began) / tried * calls
        return total

    def _report(self, state: State, progress: Progress, keep: Keeper | None) -> None:
        progress(self._done(state), self.space.size)
        if keep:
            keep.offer(state.arrays)

    def _done(self, state: State) -> int:
        """Points done: each pass is half of the work."""
        shares = state.main_rows / self.first.row_count + state.other_rows / self.second.row_count
        return int(self.space.size * shares / 2)

    def _reducer(self, problem: Problem, layout: Layout, wanted: tuple[str, ...], histogram: str | None) -> RowReducer:
        rows = min(layout.row_count, max(1, self.points_per_call // layout.column_count), MOST_ROWS_PER_CALL)
        rows -= rows % layout.run_length(min(rows, MOST_IN_RUN))
        metrics = [name for name, dims in self.depends.items() if self._summarised(name, dims & set(wanted))]
        return RowReducer(problem, layout, rows, metrics, histogram)

    def _summarised(self, name: str, varies: frozenset[str]) -> bool:
        """Whether a pass keeps a metric's extremes: it varies along its rows, and is not a detail nobody asked for."""
        asked = {o.metric for o in self.problem.objectives} | {c.metric for c in self.problem.constraints}
        register = metric_register(self.problem.task, self.problem.mode)
        return name == self._shown or bool(varies and (register[name].summarised or name in asked))

    @property
    def _shown(self) -> str | None:
        """The metric whose distribution is counted: the first objective."""
        return self.problem.objectives[0].metric if self.problem.objectives else None

    def _edges(self, by_row: Tally) -> np.ndarray[Any, Any]:
        """Lower edges of the histogram's bins, between the extremes that the first pass found."""
        low, high = by_row.range_of(self._shown) if self._shown else (0.0, 0.0)
        if not (low < high and np.isfinite(low) and np.isfinite(high)):
            return np.full(BINS, np.inf, np.float32)
        spaced = np.geomspace if low > 0 else np.linspace
        edges: np.ndarray[Any, Any] = spaced(low, high, BINS, endpoint=False).astype(np.float32)
        return edges

    def search(self, front: Front, points: PointEvaluator, first_row: int, found: RowStatistics) -> int:
        """Look into rows that may hold points of the front, most promising first; how many were looked into."""
        if not self.problem.objectives:
            return 0
        exact, absolute = self._comparison
        searched = 0
        rows = np.flatnonzero(found.admissible[:, 0] > 0)
        rows = rows[np.argsort(found.best[rows, 0], kind="stable")]
        while len(rows):
            rows = rows[front.may_improve(found.best[rows], exact, absolute)]
            look, rows = rows[: points.rows_per_call], rows[points.rows_per_call :]
            if len(look):
                searched += len(look)
                index, values = points(first_row + look, found.best[look], front.sample())
                front.add(values, index)
        return searched

    @cached_property
    def _comparison(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Per objective: whether it is one number per row, and what float32 may be off by beyond a relative error."""
        register = metric_register(self.problem.task, self.problem.mode)
        metrics = [objective.metric for objective in self.problem.objectives]
        exact = [not self.depends[name] & set(self.first.columns) for name in metrics]
        return np.array(exact), np.array([register[name].rounding for name in metrics], np.float32)

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
        if self._shown is None or np.isposinf(edges[0]):
            return {}
        low, high = by_row.range_of(self._shown)
        counts = -np.diff(np.append(by_column.above, 0))
        return {self._shown: Histogram(np.array([low, *edges[1:], high]), counts)}


def rows_in_order(
    reducer: RowReducer, first_row: int = 0, calls: int | None = None
) -> Iterator[tuple[int, RowStatistics]]:
    """The calls of a reducer from `first_row` on (the first so many), in row order, one in flight per core."""
    starts = range(first_row, reducer.layout.row_count, reducer.rows_per_call)[:calls]
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
