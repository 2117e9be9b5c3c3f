"""The two passes over a grid, cut into ranges of rows that may be looked at anywhere and in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kvwall.sweep.front import Front
from kvwall.sweep.kernel import RowReducer, RowStatistics
from kvwall.sweep.stream import State, Stream
from kvwall.sweep.tally import Tally

if TYPE_CHECKING:
    from kvwall.sweep.executor import Executor

POINTS_PER_PART = 2**28
"""Points of one range: one or two seconds of a core, so that what a task costs besides does not show."""
PARTS_PER_WORKER = 8
"""Ranges each worker gets at least, so that none waits long for the last."""
MOST_KNOWN = 1024
"""Members of the front that go with a range, so that rows they rule out are not looked into."""

_Array = np.ndarray[Any, Any]
_Arrays = Mapping[str, _Array]


@dataclass(frozen=True)
class RowRange:
    """Rows `start` to `stop` (excluded) of a pass, and what must be known to look at them."""

    start: int
    stop: int
    known: _Arrays | None = None
    """Members of the front, as `Front.arrays` gives them; a first pass leaves out designs that they dominate."""
    edges: _Array | None = None
    """Lower edges of the histogram's bins; only for a second pass."""


@dataclass(frozen=True)
class Part:
    """What a range of rows comes to; merging the parts of all ranges in any order gives the whole."""

    tally: _Arrays
    front: _Arrays | None = None
    searched: int = 0


def look_at_rows(stream: Stream, rows: RowRange) -> Part:
    """Reduce a range of rows of the first pass, and find what it adds to the front."""
    main, _, points = stream.compile()
    tally = Tally(stream.first, stream.first.rows, main.metrics)
    front, searched = Front(len(stream.problem.objectives)), 0
    if rows.known is not None:
        # Counted elsewhere: a design that ties with one of these adds to it, and one that only rules out adds nothing.
        front.restore({**rows.known, "multiplicity": np.zeros_like(rows.known["multiplicity"])})
    for first_row, found in _calls(main, rows):
        tally.add(first_row, found)
        searched += stream.search(front, points, first_row, found)
    own = front.multiplicity > 0
    return Part(tally.arrays(), {name: array[own] for name, array in front.arrays().items()}, searched)


def look_at_columns(stream: Stream, rows: RowRange) -> Part:
    """Reduce a range of rows of the second pass."""
    _, others, _ = stream.compile()
    tally = Tally(stream.second, stream.first.columns, others.metrics)
    if rows.edges is not None:
        others.edges = rows.edges
    for first_row, found in _calls(others, rows):
        tally.add(first_row, found)
    return Part(tally.arrays())


def _calls(reducer: RowReducer, rows: RowRange) -> Iterator[tuple[int, RowStatistics]]:
    """The statistics of a range of rows, call by call."""
    for first_row in range(rows.start, rows.stop, reducer.rows_per_call):
        there = rows.stop - first_row
        yield first_row, RowStatistics(*(array[:there] for array in vars(reducer(first_row)).values()))


class PassesInParts:
    """Both passes over a grid, done range by range by an executor."""

    def __init__(self, stream: Stream, executor: Executor) -> None:
        self._stream = stream
        self._executor = executor
        self._compiled_before = executor.compile_seconds

    @property
    def compile_seconds(self) -> float:
        """Spent on compiling for these passes."""
        return self._executor.compile_seconds - self._compiled_before

    def first_pass(self, state: State) -> Iterator[None]:
        """Go on with the first pass; yields whenever `state` has moved on."""
        layout, (main, _) = self._stream.first, self._stream.reducers()

        def take(rows: RowRange, part: Part) -> None:
            state.by_row.merge(part.tally)
            if part.front is not None:
                state.front.add(*(part.front[name] for name in ("values", "index", "multiplicity")))
            state.searched += part.searched
            state.main_rows = rows.stop

        ranges = self._ranges(state.main_rows, layout.row_count, layout.column_count, main.rows_per_call)
        items = (RowRange(rows.start, rows.stop, known=_spread(state.front)) for rows in ranges)
        yield from self._merged("rows", items, state.main_rows, take)

    def second_pass(self, state: State, edges: _Array) -> Iterator[None]:
        """Go on with the second pass; yields whenever `state` has moved on."""
        layout, (_, others) = self._stream.second, self._stream.reducers()

        def take(rows: RowRange, part: Part) -> None:
            state.by_column.merge(part.tally)
            state.other_rows = rows.stop

        ranges = self._ranges(state.other_rows, layout.row_count, layout.column_count, others.rows_per_call)
        items = (RowRange(rows.start, rows.stop, edges=edges) for rows in ranges)
        yield from self._merged("columns", items, state.other_rows, take)

    def _ranges(self, start: int, stop: int, columns: int, rows_per_call: int) -> Iterator[range]:
        """Ranges of whole calls, in order."""
        share = (stop - start) * columns / (PARTS_PER_WORKER * max(1, self._executor.parallel))
        calls = max(1, math.floor(min(POINTS_PER_PART, share) / (rows_per_call * columns)))
        for first in range(start, stop, calls * rows_per_call):
            yield range(first, min(stop, first + calls * rows_per_call))

    def _merged(
        self, kind: str, items: Iterator[RowRange], at: int, take: Callable[[RowRange, Part], None]
    ) -> Iterator[None]:
        """Take in parts in the order of their rows: what has been taken in is then always all rows up to one."""
        early: dict[int, tuple[RowRange, Part]] = {}
        for rows, part in self._executor.run(kind, items):
            early[rows.start] = rows, part
            while at in early:
                done, its_part = early.pop(at)
                take(done, its_part)
                at = done.stop
                yield


def _spread(front: Front) -> dict[str, _Array]:
    """At most MOST_KNOWN members, spread over the front."""
    chosen = np.unique(np.linspace(0, len(front) - 1, MOST_KNOWN).astype(np.int64)) if len(front) else np.arange(0)
    return {name: array[chosen] for name, array in front.arrays().items()}
