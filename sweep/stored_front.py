"""The front among stored points: rounded values say which designs may be on it, unrounded ones which are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvwall.objectives.register import STATUS_OK, metric_register
from kvwall.spaces.errors import InputError
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import Problem
from kvwall.sweep.objective import Constraint, Objective, signed
from kvwall.sweep.points import DesignEvaluator
from kvwall.sweep.results import FrontTable
from kvwall.sweep.run import front_table, problem_of
from kvwall.sweep.study import Study

SLACK: Final = 2.0**-11
"""Relative error of a stored value: 12 bits of it are kept, and float32 may be off in its last ones."""
_POINTS_AT_ONCE: Final = 2_000_000
_COMPARED_AT_ONCE: Final = 2**17
_DESIGNS_AT_ONCE: Final = 2**15
"""Designs evaluated together; the front they leave rules out most of the others."""
_LARGEST: Final = float(np.finfo(np.float32).max)

Floats = NDArray[np.float64]


def admissible(
    constraints: Sequence[Constraint], objectives: Sequence[Objective], found: Mapping[str, NDArray[Any]]
) -> NDArray[np.bool_]:
    """Of each design, whether it is feasible, inside the constraints, and has all objectives: the engine's rule."""
    kept: NDArray[np.bool_] = np.asarray(found["status"]) == STATUS_OK
    for constraint in constraints:
        kept &= constraint.allows(np.asarray(found[constraint.metric], np.float64))
    for objective in objectives:
        kept &= ~np.isnan(np.asarray(found[objective.metric], np.float64))
    return kept


def front_of_stored(study: Study, objectives: Sequence[Objective], stored: xr.Dataset) -> FrontTable:
    """The exact front among the points of a dataset, every metric unrounded."""
    search = _StoredSearch(study, objectives)
    names = sorted({"status", *(one.metric for one in objectives), *(one.metric for one in study.constraints)})
    points = xr.broadcast(stored[names])[0].transpose(*stored["status"].dims, ...)
    grid_index = _grid_indices(study, points)
    for start, block in _blocks(points):
        search.look(block, start, grid_index)
    return front_table(search.problem, search.front)


class _StoredSearch:
    """Blocks of stored points, one after another, and the front of all so far."""

    def __init__(self, study: Study, objectives: Sequence[Objective]) -> None:
        self.problem: Problem = replace(problem_of(study), objectives=tuple(objectives))
        self.front = Front(len(objectives), np.float64)
        self._evaluate = DesignEvaluator(self.problem)
        self._inexact = np.zeros(len(objectives), dtype=bool)

    def look(self, block: xr.Dataset, start: int, grid_index: _GridIndices) -> None:
        """Take in a block whose first point has this flat position; most promising points first."""
        columns = {str(name): np.asarray(block[name].values).ravel() for name in block.data_vars}
        possible = np.flatnonzero(self._possible(columns))
        best = self._best(columns, possible)
        order = np.argsort(best[:, 0], kind="stable")
        for first in range(0, len(order), _COMPARED_AT_ONCE):
            part = order[first : first + _COMPARED_AT_ONCE]
            while len(part):
                part = part[self.front.may_improve(best[part], self._inexact)]
                self._settle(grid_index(start + possible[part[:_DESIGNS_AT_ONCE]]))
                part = part[_DESIGNS_AT_ONCE:]

    def _possible(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Points that are admissible if their values are wrong by no more than rounding makes them."""
        kept: NDArray[np.bool_] = columns["status"] == STATUS_OK
        for constraint in self.problem.constraints:
            values = columns[constraint.metric].astype(np.float64)
            kept &= constraint.allows(values, self._slack(constraint.metric, values))
        for objective in self.problem.objectives:
            kept &= ~np.isnan(columns[objective.metric])
        return kept

    def _best(self, columns: Mapping[str, NDArray[Any]], chosen: NDArray[np.int64]) -> Floats:
        """Sign * value of these points where rounding has taken the most from each."""
        values = signed(self.problem.objectives, {name: column[chosen] for name, column in columns.items()})
        slack = [self._slack(one.metric, column) for one, column in zip(self.problem.objectives, values.T, strict=True)]
        return np.minimum(values - np.stack(slack, axis=1), _LARGEST)

    def _slack(self, metric: str, values: Floats) -> Floats:
        """What stored values may differ by from unrounded ones."""
        size = np.where(np.isfinite(values), np.abs(values), 0.0)
        found: Floats = SLACK * size + metric_register(self.problem.task, self.problem.mode)[metric].rounding
        return found

    def _settle(self, index: NDArray[np.int64]) -> None:
        """Decide admissibility, dominance and ties of designs on their unrounded values."""
        found = self._evaluate(index)
        kept = admissible(self.problem.constraints, self.problem.objectives, found)
        self.front.add(signed(self.problem.objectives, found)[kept], index[kept])


def _blocks(points: xr.Dataset) -> Iterator[tuple[int, xr.Dataset]]:
    """Consecutive parts in memory, each with the flat position of its first point."""
    dims = points["status"].dims
    shape = points["status"].shape
    outer = next(n for n in range(len(dims) + 1) if math.prod(shape[n:]) <= _POINTS_AT_ONCE)
    size = math.prod(shape[outer:])
    for number, corner in enumerate(np.ndindex(shape[:outer])):
        block = points.isel(dict(zip(dims[:outer], corner, strict=True)))
        yield number * size, block.load()


class _GridIndices:
    """From flat positions in a dataset to flat indices of the study's grid."""

    def __init__(self, shape: Sequence[int], places: Sequence[tuple[int | None, NDArray[np.int64]]], study: Study):
        self._shape, self._places, self._grid = tuple(shape), tuple(places), study.space.shape

    def __call__(self, flat: NDArray[np.int64]) -> NDArray[np.int64]:
        """Grid indices of these flat positions."""
        if not self._places:
            return np.zeros(len(flat), np.int64)
        where = np.unravel_index(flat, self._shape) if self._shape else ()
        found = [
            positions[where[dim]] if dim is not None else np.full(len(flat), positions[0])
            for dim, positions in self._places
        ]
        return np.ravel_multi_index(tuple(found), self._grid).astype(np.int64)


def _grid_indices(study: Study, points: xr.Dataset) -> _GridIndices:
    """Where the dataset's points lie on the grid. Raises InputError where its coordinates do not say."""
    dims = list(points["status"].dims)
    places: list[tuple[int | None, NDArray[np.int64]]] = []
    for dim in study.space.dims:
        if dim not in points.coords or points[dim].ndim > 1:
            raise InputError(f"the dataset has lost its coordinate {dim}: select from it without dropping coordinates")
        coordinate = np.atleast_1d(points[dim].values)
        known = {_key(value): place for place, value in enumerate(study.space.values(dim))}
        positions = np.array([known.get(_key(value), -1) for value in coordinate.tolist()], dtype=np.int64)
        if (positions < 0).any():
            raise InputError(f"the dataset holds values of {dim} that are not on the study's grid")
        places.append((dims.index(dim) if dim in dims else None, positions))
    return _GridIndices(points["status"].shape, places, study)


def _key(value: object) -> str:
    """A value as files write it, the same for an integer, a float and their text."""
    return value if isinstance(value, str) else f"{float(value):.12g}"  # type: ignore[arg-type]
