"""Evaluating chosen points of a grid: objectives of whole rows, single designs of a front."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.sweep.compiling import COMPILED_SOON
from kvwall.sweep.front import FILTER_SIZE
from kvwall.sweep.kernel import Problem, compile_options, masks
from kvwall.sweep.layout import Layout

_FEWEST = 64
"""Designs are evaluated in powers of two, and no fewer than these, so that few shapes are compiled."""


class PointEvaluator:
    """Objectives of every point in some rows of a layout, with the points that matter marked."""

    def __init__(self, problem: Problem, layout: Layout, rows_per_call: int) -> None:
        self.layout = layout
        self.rows_per_call = rows_per_call
        self._problem = problem
        self._run = jax.jit(self._evaluate, compiler_options=compile_options())

    def __call__(
        self, rows: np.ndarray[Any, Any], best: np.ndarray[Any, Any], front: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Grid index and objectives (sign * value, float32) of the admissible points that `front` does not dominate.

        Args:
            rows: row numbers, at most `rows_per_call`.
            best: the rows' best objectives as RowReducer found them, shape (rows, objectives).
            front: some known objective vectors, shape (any fixed number, objectives).
        """
        padded = np.resize(rows, self.rows_per_call).astype(np.int32)
        values, wanted = self._run(padded, np.resize(best, (self.rows_per_call, best.shape[1])), front)
        row, column = np.nonzero(np.asarray(wanted)[: len(rows)])
        return self.layout.grid_index(rows[row], column), np.asarray(values)[:, row, column].T

    def compile(self) -> None:
        """Compile without running."""
        objectives = len(self._problem.objectives)
        rows = jax.ShapeDtypeStruct((self.rows_per_call,), jnp.int32)
        best = jax.ShapeDtypeStruct((self.rows_per_call, objectives), jnp.float32)
        front = jax.ShapeDtypeStruct((FILTER_SIZE, objectives), jnp.float32)
        self._run = self._run.lower(rows, best, front).compile()  # type: ignore[assignment]

    def _evaluate(self, rows: jax.Array, best: jax.Array, front: jax.Array) -> tuple[jax.Array, jax.Array]:
        shape = (self.rows_per_call, self.layout.column_count)
        found = self._problem.evaluation(
            self.layout.positions(rows[:, None], np.arange(shape[1], dtype=np.int32)[None, :])
        )
        _, admissible, _ = masks(self._problem, found)
        values = []
        for place, objective in enumerate(self._problem.objectives):
            value = found.metrics[objective.metric] * np.float32(objective.sign)
            # one number per row: take it as it was when rows were compared, to the last bit
            value = best[:, place, None] if np.shape(value)[-1:] in {(1,), ()} else value
            values.append(jnp.broadcast_to(value, shape))
        numbers = jnp.logical_not(reduce(jnp.logical_or, map(jnp.isnan, values)))  # NaN: a law overflowed
        wanted = jnp.logical_and(
            jnp.logical_and(jnp.broadcast_to(admissible, shape), numbers), ~_dominated(values, front)
        )
        return jnp.stack(values), wanted


def _dominated(values: Sequence[jax.Array], front: jax.Array) -> jax.Array:
    """Whether some vector of `front` (n, k) dominates each point of `values`, k arrays of one shape.

    Written out member by member so that a compiler makes one elementwise pass of it.
    """
    found = jnp.zeros(values[0].shape, bool)
    for member in range(front.shape[0]):
        at_most = reduce(jnp.logical_and, (front[member, k] <= value for k, value in enumerate(values)))
        smaller = reduce(jnp.logical_or, (front[member, k] < value for k, value in enumerate(values)))
        found = jnp.logical_or(found, jnp.logical_and(at_most, smaller))
    return found


class DesignEvaluator:
    """Every metric and label of designs chosen one by one, in full precision.

    The laws are compiled as a whole: one by one, some four hundred operators would be compiled for every new shape.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._run = jax.jit(problem.evaluation_plain, compiler_options=dict(COMPILED_SOON))

    def __call__(self, index: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Metrics (float64, NaN where unsourced) and labels (int8) of the designs at these flat grid indices."""
        space = self._problem.columns.space
        shape = (1 << (max(len(index), _FEWEST) - 1).bit_length(),) if len(index) else (0,)
        position = np.unravel_index(np.resize(index, shape), space.shape) if space.dims else ()
        with jax.enable_x64(True):
            found = self._run({name: np.asarray(place) for name, place in zip(space.dims, position, strict=True)})
        metrics = {name: np.where(found.sourced[name], value, np.nan) for name, value in found.metrics.items()}
        labels = {name: np.asarray(value).astype(np.int8) for name, value in found.labels.items()}
        every = {name: np.broadcast_to(np.squeeze(array), shape) for name, array in (metrics | labels).items()}
        return {name: array[: len(index)] for name, array in every.items()}


def evaluate_designs(problem: Problem, index: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Every metric (float64, NaN where unsourced) and label (int8) of the designs at these flat grid indices."""
    return DesignEvaluator(problem)(index)
