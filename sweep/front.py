"""The exact Pareto front of a stream of points, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import moocore
import numpy as np

SLACK = np.float32(1e-5)
"""Relative slack when rows are discarded: two kernels may differ in a value's last bits."""
FILTER_SIZE = 32
"""Front members that points are tested against before they leave the kernel."""

_Array = np.ndarray[Any, Any]


@dataclass
class Front:
    """Non-dominated objective vectors (smaller is better), each with its lowest grid index and how often it occurs."""

    objectives: int
    precision: type[np.floating[Any]] = np.float32
    values: _Array = field(init=False)
    index: _Array = field(init=False)
    multiplicity: _Array = field(init=False)

    def __post_init__(self) -> None:
        self.values = np.empty((0, self.objectives), self.precision)
        self.index = np.empty(0, np.int64)
        self.multiplicity = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.index)

    def arrays(self) -> dict[str, _Array]:
        """All there is, by name."""
        return {"values": self.values, "index": self.index, "multiplicity": self.multiplicity}

    def restore(self, arrays: Mapping[str, _Array]) -> None:
        """Go back to what `arrays` gave."""
        self.values, self.index, self.multiplicity = (arrays[name] for name in self.arrays())

    def add(self, values: _Array, index: _Array, multiplicity: _Array | None = None) -> None:
        """Take in points: objective vectors of shape (n, objectives), their grid indices, how often each occurs.

        The result does not depend on how points are split into calls, or on their order.
        """
        if not len(index):
            return
        often = np.ones(len(index), np.int64) if multiplicity is None else multiplicity
        self._settle(
            np.concatenate([self.values, np.asarray(values, self.precision) + 0.0]),  # + 0.0: no negative zeros
            np.concatenate([self.index, index]),
            np.concatenate([self.multiplicity, often]),
        )

    def _settle(self, values: _Array, index: _Array, multiplicity: _Array) -> None:
        order = np.lexsort((index, *values.T))
        values, index, multiplicity = values[order], index[order], multiplicity[order]
        first = np.concatenate([[True], np.any(values[1:] != values[:-1], axis=1)])
        starts = np.flatnonzero(first)
        counts = np.add.reduceat(multiplicity, starts)
        values, index = values[starts], index[starts]
        best = _nondominated(values) if self.objectives > 1 else values[:, 0] == values[:, 0].min()
        self.values, self.index, self.multiplicity = values[best], index[best], counts[best]

    def sample(self) -> _Array:
        """FILTER_SIZE members spread over the front, to test points against; filled with harmless vectors."""
        found = np.full((FILTER_SIZE, self.objectives), np.inf, np.float32)
        if len(self):
            chosen = np.unique(np.linspace(0, len(self) - 1, FILTER_SIZE).astype(np.int64))
            found[: len(chosen)] = self.values[np.argsort(self.values[:, 0], kind="stable")][chosen]
        return found

    def may_improve(self, ideal: _Array, exact: _Array, absolute: _Array | float = 0.0) -> _Array:
        """Which rows may hold a point of the front, given each row's best of every objective, shape (rows, objectives).

        A row is out when a member is at least as good as its ideal everywhere and better somewhere. Objectives not
        `exact` (computed again by another kernel) must be better by more than SLACK, and by more than `absolute`.
        """
        size = np.where(np.isfinite(ideal), np.abs(ideal), 0.0)
        ideal = np.where(exact, ideal, ideal - SLACK * size - absolute).astype(np.float32)
        found = np.ones(len(ideal), bool)
        few = self.sample()
        for members in (few[np.isfinite(few[:, 0])], *np.array_split(self.values, len(self) // 1024 + 1)):
            alive = np.flatnonzero(found)
            if len(alive) and len(members):
                found[alive] = ~_beaten(ideal[alive], members)
        return found


def nondominated(values: _Array) -> _Array:
    """The distinct vectors among these that no other dominates, shape (n, objectives)."""
    distinct = np.unique(values, axis=0)
    if values.shape[1] == 1:
        return distinct[:1]
    return distinct[_nondominated(distinct)] if len(distinct) else distinct


def _nondominated(values: _Array) -> _Array:
    """Which of these distinct vectors no other dominates."""
    if not np.all(np.isfinite(values)):  # moocore 0.3 misjudges infinities in four objectives and more
        ranks = [np.unique(column, return_inverse=True)[1] for column in values.T]
        values = np.stack(ranks, axis=1).astype(np.float64)
    found: _Array = moocore.is_nondominated(values)
    return found


def _beaten(ideal: _Array, members: _Array) -> _Array:
    """Whether some member is at most as large as each ideal everywhere and smaller somewhere."""
    at_most = np.ones((len(ideal), len(members)), bool)
    smaller = np.zeros_like(at_most)
    for own, other in zip(ideal.T, members.T, strict=True):
        at_most &= other <= own[:, None]
        smaller |= other < own[:, None]
    found: _Array = np.any(at_most & smaller, axis=1)
    return found
