"""How a pass walks the grid: some dimensions are rows, the others columns of one long, vectorised inner loop."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, combinations
from typing import Any, TypeAlias

import jax
import numpy as np

from kvwall.spaces.space import Space

Numbers: TypeAlias = "np.ndarray[Any, Any] | jax.Array"

MOST_COLUMNS = 4_096
"""Inner loop length at which all column terms still fit in a core's second-level cache."""
ENOUGH_COLUMNS = 512
"""Inner loop length at which the cost per row has faded."""
_MOST_WEIGHED = 14
"""Dimensions whose subsets are all weighed: 16,384 of them."""
_MOST_COMPARED = 16
"""Choices of columns, as good as each other for one pass, between which the other pass decides."""


@dataclass(frozen=True)
class Layout:
    """A split of a Space's dimensions into rows and columns; both keep the grid's order."""

    space: Space
    columns: tuple[str, ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """The dimensions that are not columns."""
        return tuple(name for name in self.space.dims if name not in self.columns)

    def lengths(self, names: Sequence[str]) -> tuple[int, ...]:
        """Lengths of these dimensions."""
        return tuple(len(self.space[name]) for name in names)

    @property
    def row_count(self) -> int:
        """Rows of the grid."""
        return math.prod(self.lengths(self.rows))

    @property
    def column_count(self) -> int:
        """Columns of the grid."""
        return math.prod(self.lengths(self.columns))

    def run_length(self, most: int) -> int:
        """Rows, at most so many, over which the last dimensions of rows go through all of their values."""
        lengths = accumulate(reversed(self.lengths(self.rows)), operator.mul, initial=1)
        return max(length for length in lengths if length <= max(1, most))

    def positions(self, rows: Numbers, columns: Numbers) -> dict[str, Numbers]:
        """Dimension -> positions, of row numbers of shape (R, 1) and column numbers of shape (1, C).

        What is known while tracing stays known: terms of columns alone are then constants of the kernel.
        """
        return _unravelled(self.rows, self.lengths(self.rows), rows) | _unravelled(
            self.columns, self.lengths(self.columns), columns
        )

    def row_positions(self, rows: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Dimension -> positions of row numbers, on the host."""
        if not self.rows:
            return {}
        return dict(zip(self.rows, np.unravel_index(rows, self.lengths(self.rows)), strict=True))

    def grid_index(self, rows: np.ndarray[Any, Any], columns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Flat grid index (int64) of each row and column number."""
        found = self.row_positions(rows)
        if self.columns:
            found |= dict(zip(self.columns, np.unravel_index(columns, self.lengths(self.columns)), strict=True))
        if not found:
            return np.zeros(len(rows), dtype=np.int64)
        return np.ravel_multi_index(tuple(found[name] for name in self.space.dims), self.space.shape).astype(np.int64)


def _unravelled(names: Sequence[str], lengths: Sequence[int], flat: Numbers) -> dict[str, Numbers]:
    found = {}
    for name, length in zip(reversed(names), reversed(lengths), strict=True):
        flat, found[name] = flat // length, flat % length
    return {name: where.astype(np.int32) for name, where in found.items()}


def choose_layouts(space: Space, narrow: Mapping[str, frozenset[str]]) -> tuple[Layout, Layout]:
    """Two layouts with no column in common, so that every dimension is a row of one of them.

    `narrow`: objective -> the dimensions it depends on, for objectives that do not depend on all. The first layout
    keeps those dimensions out of its columns where it can: such an objective is then one number per row, and a
    row's best values are those of a real point, which lets whole rows be discarded when the front is found.

    Columns are of as few dimensions as suffice: what does not vary along them is computed once per row, and extremes of
    what varies along one of them follow from those of that one.
    """
    avoided = frozenset(chain.from_iterable(narrow.values()))
    firsts = _best_columns(space, space.dims, avoided)
    seconds = [
        _best_columns(space, [name for name in space.dims if name not in first], frozenset())[0] for first in firsts
    ]
    pairs = zip(firsts, seconds, strict=True)
    first, second = max(pairs, key=lambda pair: _merit(space, pair[1], frozenset()))
    return Layout(space, first), Layout(space, second)


def _merit(space: Space, names: tuple[str, ...], avoided: frozenset[str]) -> tuple[float, ...]:
    """How good columns are, but for how many there are."""
    count = math.prod(len(space[name]) for name in names)
    fits = count <= MOST_COLUMNS
    allowed = fits or len(names) == 1  # one long axis is better than no columns
    enough = min(count, ENOUGH_COLUMNS) if allowed else -count
    return allowed, enough, fits, -len(avoided & set(names)), -len(names)


def _best_columns(space: Space, candidates: Sequence[str], avoided: frozenset[str]) -> list[tuple[str, ...]]:
    """The best columns, with most first; of more dimensions than suffice fewer terms would be a row's own."""
    likely = sorted(candidates, key=lambda name: (name in avoided, -len(space[name])))[:_MOST_WEIGHED]
    likely.sort(key=space.dims.index)
    subsets = chain.from_iterable(combinations(likely, n) for n in range(len(likely) + 1))
    weighed = [(_merit(space, names, avoided), names) for names in subsets]
    best = max(merit for merit, _ in weighed)
    found = [names for merit, names in weighed if merit == best]
    found.sort(key=lambda names: -math.prod(len(space[name]) for name in names))
    return found[:_MOST_COMPARED]
