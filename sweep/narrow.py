"""A metric that depends on few dimensions, tabulated: its exact extremes over every box of those dimensions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import evaluate
from kvwall.sweep.boxes import Boxes, Ordered
from kvwall.sweep.kernel import Problem, unfused

Array: TypeAlias = np.ndarray[Any, Any]

MOST_ENTRIES = 2**22
"""Of a table: 32 MB."""


class NarrowMetric:
    """Least and greatest value of a metric over boxes; infinite where it has no value, so that nothing is ruled out."""

    def __init__(self, values: Array, dims: Sequence[int]) -> None:
        """`values`: NaN where there is none, one axis for each of `dims`, in the order of places."""
        self._dims = tuple(dims)
        self._lengths = values.shape
        self._least = self._over_ranges(np.where(np.isnan(values), -np.inf, values), np.minimum)
        self._greatest = self._over_ranges(np.where(np.isnan(values), np.inf, values), np.maximum)

    @staticmethod
    def fits(lengths: Sequence[int]) -> bool:
        """Whether the table of dimensions of these lengths is small enough."""
        return math.prod(length * (length + 1) // 2 for length in lengths) <= MOST_ENTRIES

    def extremes(self, boxes: Boxes) -> tuple[Array, Array]:
        """(least, greatest) of each box, float64."""
        place = np.zeros(len(boxes), np.int64)
        for dim, length in zip(self._dims, self._lengths, strict=True):
            place = place * (length * (length + 1) // 2) + _range_number(
                boxes.first[:, dim], boxes.last[:, dim], length
            )
        return self._least[place], self._greatest[place]

    def _over_ranges(self, values: Array, extreme: np.ufunc) -> Array:
        """The extreme over every range along every axis, flat."""
        for axis, length in enumerate(self._lengths):
            rows = np.moveaxis(values, axis, 0)
            ranges = [extreme.accumulate(rows[first:], axis=0) for first in range(length)]
            values = np.moveaxis(np.concatenate(ranges), 0, axis)
        flat: Array = values.ravel()
        return flat


def _range_number(first: Array, last: Array, length: int) -> Array:
    """The number of a range of places: all that begin at 0 come first, the shortest first."""
    begin = first.astype(np.int64)
    found: Array = begin * length - begin * (begin - 1) // 2 + (last - first)
    return found


def narrow_metrics(problem: Problem, ordered: Ordered, names: Sequence[str]) -> dict[str, NarrowMetric]:
    """Those of the named metrics that depend on at most half of the dimensions and whose tables are small."""
    depends, of_dims = problem.metric_shapes(), defaultdict(list)
    for name in names:
        dims = tuple(place for place, dim in enumerate(ordered.space.dims) if dim in depends[name])
        if len(dims) <= len(ordered.space.dims) // 2 and NarrowMetric.fits([ordered.space.shape[d] for d in dims]):
            of_dims[dims].append(name)
    return {
        name: NarrowMetric(table, dims)
        for dims, grouped in of_dims.items()
        for name, table in zip(grouped, _tables(problem, ordered, grouped, dims), strict=True)
    }


def _tables(problem: Problem, ordered: Ordered, names: Sequence[str], dims: Sequence[int]) -> list[Array]:
    """Values of metrics over some dimensions, in the order of places; the other dimensions do not matter."""
    lengths = [ordered.space.shape[dim] for dim in dims]
    where = {name: np.zeros(math.prod(lengths), np.int32) for name in ordered.space.dims}
    for dim, places in zip(dims, np.unravel_index(np.arange(math.prod(lengths)), lengths) if dims else (), strict=True):
        where[ordered.space.dims[dim]] = ordered.positions[dim][places].astype(np.int32)

    def laws(positions: dict[str, jax.Array]) -> list[Any]:
        found = evaluate(problem.columns.design(positions), problem.task)
        return [jnp.where(found.sourced[name], found.metrics[name], jnp.nan) for name in names]

    with jax.enable_x64(True), jax.debug_nans(False):
        values = jax.jit(laws, compiler_options=unfused())(where)
        return [np.broadcast_to(np.asarray(value).ravel(), math.prod(lengths)).reshape(lengths) for value in values]
