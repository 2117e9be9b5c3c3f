"""Marginals of a sweep, gathered row by row: extremes and shares along each dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvwall.objectives.register import LABELS
from kvwall.objectives.status import STATUSES
from kvwall.sweep.kernel import COUNTED_LABELS, RowStatistics
from kvwall.sweep.layout import Layout
from kvwall.sweep.reduction import NONE, true_extremes

_Array = np.ndarray[Any, Any]

MOST_IN_RUN = 512
"""Rows of a run: rows are first joined run by run and place by place, so that few numbers are told apart."""


class Tally:
    """Adds up row statistics of one layout along some of its row dimensions. Order does not matter.

    A run of rows goes through all values of the last dimensions: along those, rows differ only inside runs, and along
    the others only between them.
    """

    _SINGLE = ("least", "greatest", "totals", "admissible", "rejected", "above")

    def __init__(self, layout: Layout, dims: Sequence[str], metrics: Sequence[str]) -> None:
        self._layout = layout
        self._metrics = tuple(metrics)
        self._run = layout.run_length(MOST_IN_RUN)
        lengths = dict(zip(dims, layout.lengths(dims), strict=True))
        categories = sum(len(LABELS[name].meanings) - 1 for name in COUNTED_LABELS)
        self.low = {dim: np.full((n, len(metrics)), NONE["min"]) for dim, n in lengths.items()}
        self.high = {dim: np.full((n, len(metrics)), NONE["max"]) for dim, n in lengths.items()}
        self.counts = {dim: np.zeros((n, categories), np.int64) for dim, n in lengths.items()}
        self.least = np.full(len(metrics), NONE["min"])
        self.greatest = np.full(len(metrics), NONE["max"])
        self.totals = np.zeros(categories, np.int64)
        self.admissible = np.zeros(1, np.int64)
        self.rejected: _Array = np.zeros(0, np.int64)
        self.above: _Array = np.zeros(0, np.int64)

    @property
    def _by_dim(self) -> Mapping[str, dict[str, _Array]]:
        """What is kept along dimensions."""
        return {"low": self.low, "high": self.high, "counts": self.counts}

    def arrays(self) -> dict[str, _Array]:
        """All there is, by name."""
        found = {f"{kind}.{dim}": array for kind, table in self._by_dim.items() for dim, array in table.items()}
        return found | {name: getattr(self, name) for name in self._SINGLE}

    def restore(self, arrays: Mapping[str, _Array]) -> None:
        """Go back to what `arrays` gave."""
        for kind, table in self._by_dim.items():
            for dim in table:
                table[dim] = arrays[f"{kind}.{dim}"]
        for name in self._SINGLE:
            setattr(self, name, arrays[name])

    def add(self, first_row: int, found: RowStatistics) -> None:
        """Take in consecutive rows: whole runs of them, but for the grid's last call."""
        low, high, counts = found.low.T, found.high.T, found.counts.T
        self.least = np.minimum(self.least, low.min(axis=1))
        self.greatest = np.maximum(self.greatest, high.max(axis=1))
        self.totals += counts.sum(axis=1, dtype=np.int64)
        self.admissible += found.admissible.sum(dtype=np.int64)
        self.rejected = _grown(self.rejected, found.rejected)
        self.above = _grown(self.above, found.above)
        run = self._run if not (first_row % self._run or len(found.low) % self._run) else 1
        runs = np.arange(first_row, first_row + len(found.low), run)
        lows, highs, tallies = (np.ascontiguousarray(of).reshape(len(of), -1, run) for of in (low, high, counts))
        for along, rows in ((2, runs), (1, np.arange(run))):  # of each run; of the same place in all runs
            self._add(
                self._layout.row_positions(rows),
                self._of_runs(run, along == 1),
                np.min(lows, axis=along),
                np.max(highs, axis=along),
                tallies.sum(axis=along, dtype=np.int64),
            )

    def _of_runs(self, run: int, inside: bool) -> list[str]:
        """The dimensions along which rows differ inside a run, or else between runs."""
        length, within = 1, set()
        for name in reversed(self._layout.rows):
            if length < run:
                within.add(name)
            length *= len(self._layout.space[name])
        return [dim for dim in self.low if (dim in within) == inside]

    def _add(
        self, positions: Mapping[str, _Array], dims: Sequence[str], low: _Array, high: _Array, counts: _Array
    ) -> None:
        """Take in extremes and counts, of shape (k, n), of what lies at these positions."""
        for dim in dims:
            order = np.argsort(positions[dim], kind="stable")
            there, starts = np.unique(positions[dim][order], return_index=True)
            least = np.minimum.reduceat(low[:, order], starts, axis=1).T
            most = np.maximum.reduceat(high[:, order], starts, axis=1).T
            self.low[dim][there] = np.minimum(self.low[dim][there], least)
            self.high[dim][there] = np.maximum(self.high[dim][there], most)
            self.counts[dim][there] += np.add.reduceat(counts[:, order], starts, axis=1).T

    def merge(self, arrays: Mapping[str, _Array]) -> None:
        """Take in what another tally of the same layout has added up, as its `arrays` gave it."""
        for dim in self.low:
            self.low[dim] = np.minimum(self.low[dim], arrays[f"low.{dim}"])
            self.high[dim] = np.maximum(self.high[dim], arrays[f"high.{dim}"])
            self.counts[dim] += arrays[f"counts.{dim}"]
        self.least = np.minimum(self.least, arrays["least"])
        self.greatest = np.maximum(self.greatest, arrays["greatest"])
        self.totals += arrays["totals"]
        self.admissible += arrays["admissible"]
        self.rejected = _grown(self.rejected, arrays["rejected"][None])
        self.above = _grown(self.above, arrays["above"][None])

    def range_of(self, metric: str) -> tuple[float, float]:
        """(lowest, highest) over the grid; NaN where no feasible point has it."""
        place = self._metrics.index(metric)
        low, high = true_extremes(self.least[place], self.greatest[place])
        return float(low), float(high)

    def extremes(self, depends: Mapping[str, frozenset[str]]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(lowest, highest): dimension -> metric -> values along it, NaN where no feasible point has any."""
        low: dict[str, Any] = {}
        high: dict[str, Any] = {}
        for dim in self.low:
            lowest, highest = true_extremes(self.low[dim], self.high[dim])
            kept = [(place, name) for place, name in enumerate(self._metrics) if dim in depends[name]]
            low[dim] = {name: lowest[:, place] for place, name in kept}
            high[dim] = {name: highest[:, place] for place, name in kept}
        return low, high

    def shares(self) -> dict[str, dict[str, _Array]]:
        """Dimension -> label -> points of each category at each of its values."""
        return {
            dim: _by_label(self.counts[dim], self._layout.space.size // len(self.counts[dim])) for dim in self.counts
        }

    def label_totals(self) -> dict[str, _Array]:
        """Label -> points of each category."""
        return {name: found[0] for name, found in _by_label(self.totals[None], self._layout.space.size).items()}


def _grown(so_far: _Array, rows: _Array) -> _Array:
    more = rows.sum(axis=0, dtype=np.int64)
    total: _Array = so_far + more if len(so_far) else more
    return total


def _by_label(counts: _Array, points: int) -> dict[str, _Array]:
    """Split counts (n, categories but each first) by label; the first category is what is left.

    Of `points` for the status; for the others, of the points whose step can be computed.
    """
    found, start = {}, 0
    for name in COUNTED_LABELS:
        end = start + len(LABELS[name].meanings) - 1
        found[name] = counts[:, start:end]
        start = end
    statuses = np.concatenate([points - found["status"].sum(axis=1, keepdims=True), found["status"]], axis=1)
    meant = statuses[:, [STATUSES.index(name) for name in ("ok", "memory", "veto")]].sum(axis=1, keepdims=True)
    others = {
        name: np.concatenate([meant - rest.sum(axis=1, keepdims=True), rest], axis=1)
        for name, rest in found.items()
        if name != "status"
    }
    return {**others, "status": statuses}
