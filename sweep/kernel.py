"""The jitted kernels of a study: reduce rows of the grid, or evaluate points of it.

One pass of `RowReducer` evaluates every metric, label and status of rows x columns points and keeps only what is
asked per row: extremes over feasible points, counts per category, the best of each objective over admissible points.
Everything is one variadic reduction, so a compiler fuses the laws into it and no point touches memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kvwall.objectives.register import LABELS, STATUS_OK, Evaluation, evaluate, metric_register
from kvwall.spaces.columns import Columns
from kvwall.sweep.compact import compact
from kvwall.sweep.front import FILTER_SIZE
from kvwall.sweep.layout import Layout
from kvwall.sweep.objective import Constraint, Objective

LARGE = np.float32(3.0e38)
"""Stands for 'no such point yet' in a minimum of float32."""
COUNTED_LABELS = ("phase", "regime", "status")
"""Labels whose shares are counted; `bound_by` follows from the regime."""


@dataclass(frozen=True)
class Problem:
    """What the kernels of a study compute."""

    columns: Columns
    task: str
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]

    def evaluation(self, positions: dict[str, jax.Array]) -> Evaluation:
        """Every metric, label and mask at these positions, at their smallest shapes."""
        return compact(partial(evaluate, task=self.task))(self.columns.design(positions))

    def metric_shapes(self) -> dict[str, frozenset[str]]:
        """Metric -> the dimensions it depends on, by tracing with one array dimension per grid dimension."""
        dims, shape = self.columns.space.dims, self.columns.space.shape
        rank = len(dims)
        positions = {
            name: jax.ShapeDtypeStruct([size if i == place else 1 for i in range(rank)], jnp.int32)
            for place, (name, size) in enumerate(zip(dims, shape, strict=True))
        }
        found = jax.eval_shape(lambda where: jax.tree.map(jnp.asarray, self.evaluation(where)), positions)
        return {
            name: frozenset(dim for dim, size in zip(dims, array.shape, strict=False) if size > 1)
            for name, array in found.metrics.items()
        }


def compile_options() -> dict[str, Any] | None:
    """Compiler options for this machine: on CPUs the widest vectors, and sums and products in any order.

    NaN, infinities and divisions stay as IEEE has them; a test bounds the difference to float64.
    """
    if jax.default_backend() != "cpu":
        return None
    return {
        "xla_cpu_prefer_vector_width": 512,
        "xla_cpu_enable_fast_math": True,
        "xla_cpu_fast_math_honor_nans": True,
        "xla_cpu_fast_math_honor_infs": True,
        "xla_cpu_fast_math_honor_division": True,
    }


def masks(problem: Problem, found: Evaluation) -> tuple[Any, Any, list[Any]]:
    """(feasible, admissible, per constraint: feasible but rejected by it)."""
    feasible = found.labels["status"] == STATUS_OK
    kept = [_within(constraint, found) for constraint in problem.constraints]
    usable = [found.sourced[objective.metric] for objective in problem.objectives]
    admissible = reduce(jnp.logical_and, [*kept, *usable], feasible)
    return feasible, admissible, [jnp.logical_and(feasible, jnp.logical_not(one)) for one in kept]


def _within(constraint: Constraint, found: Evaluation) -> Any:
    value, within = found.metrics[constraint.metric], found.sourced[constraint.metric]
    if constraint.low is not None:
        within = jnp.logical_and(within, value >= constraint.low)
    if constraint.high is not None:
        within = jnp.logical_and(within, value <= constraint.high)
    return within


@dataclass(frozen=True)
class RowStatistics:
    """Per row; arrays of shape (rows, k). Counts: of each counted label in turn, its categories but the first."""

    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]
    admissible: np.ndarray[Any, Any]
    rejected: np.ndarray[Any, Any]
    best: np.ndarray[Any, Any]
    """Per objective, sign * value, smaller is better; LARGE where no point of the row is admissible."""


class RowReducer:
    """Reduces rows of a layout; keeps the extremes of `metrics`."""

    def __init__(self, problem: Problem, layout: Layout, rows_per_call: int, metrics: Sequence[str]) -> None:
        self.layout = layout
        self.rows_per_call = rows_per_call
        self.metrics = tuple(metrics)
        self._problem = problem
        self._run = jax.jit(self._reduce, compiler_options=compile_options())

    def __call__(self, first_row: int) -> RowStatistics:
        """Statistics of up to `rows_per_call` rows from `first_row` on."""
        there = min(self.rows_per_call, self.layout.row_count - first_row)
        low, high, counts, admissible, rejected, best = self._run(np.int32(first_row))
        host = [np.asarray(array)[:there] for array in (low, high, counts, admissible, rejected, best)]
        return RowStatistics(*host)

    def compile(self) -> None:
        """Compile without running."""
        self._run = self._run.lower(jax.ShapeDtypeStruct((), jnp.int32)).compile()  # type: ignore[assignment]

    def _reduce(self, first_row: jax.Array) -> tuple[jax.Array, ...]:
        shape = (self.rows_per_call, self.layout.column_count)
        last = self.layout.row_count - 1
        rows = jnp.minimum(first_row + jnp.arange(shape[0], dtype=jnp.int32), last)[:, None]
        found = self._problem.evaluation(
            self.layout.positions(rows, jnp.arange(shape[1], dtype=jnp.int32)[None, :])
        )
        feasible, admissible, rejected = masks(self._problem, found)
        batch = _Reduction(shape)
        any_feasible = batch.add("sum", feasible)
        any_admissible = batch.add("sum", admissible)
        refused = [batch.add("sum", one) for one in rejected]
        counts = [
            batch.add("sum", found.labels[name] == code)
            for name in COUNTED_LABELS
            for code in range(1, len(LABELS[name].meanings))
        ]
        low = [batch.extreme("min", self._masked(found, name), feasible, any_feasible) for name in self.metrics]
        high = [batch.extreme("max", self._masked(found, name), feasible, any_feasible) for name in self.metrics]
        best = [
            batch.extreme("min", (found.metrics[o.metric] * np.float32(o.sign), True), admissible, any_admissible)
            for o in self._problem.objectives
        ]
        batch.run()
        return tuple(batch.stacked(keys) for keys in (low, high, counts, [any_admissible], refused, best))

    def _masked(self, found: Evaluation, name: str) -> tuple[Any, Any]:
        return found.metrics[name], found.sourced[name]


class _Reduction:
    """Collects reductions along columns and runs those that need every point as one fused pass.

    A value that does not vary along columns needs no pass: its extreme is itself wherever any point counts.
    """

    _COMBINE = {"sum": jnp.add, "min": jnp.minimum, "max": jnp.maximum}

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._kinds: list[str] = []
        self._operands: list[Any] = []
        self._places: dict[tuple[str, int, int], int] = {}
        self._pending: list[Any] = []
        self._results: list[Any] = []

    def add(self, kind: str, flag: Any) -> int:
        """Count points where `flag` holds."""
        if np.shape(flag)[-1:] in {(1,), ()}:
            return self._later(lambda: jnp.broadcast_to(jnp.asarray(flag), (self._shape[0], 1))[:, 0] * self._shape[1])
        return self._full(kind, flag, flag)

    def extreme(self, kind: str, value: tuple[Any, Any], mask: Any, counted: int) -> int:
        """Least or greatest value over points in `mask` (of which `counted` is the count) that are sourced."""
        number, sourced = value
        none = LARGE if kind == "min" else -LARGE
        if np.shape(number)[-1:] in {(1,), ()} and np.shape(sourced)[-1:] in {(1,), ()}:
            own = jnp.where(sourced, number, none)
            return self._later(
                lambda: jnp.where(self._results[counted] > 0, jnp.broadcast_to(own, (self._shape[0], 1))[:, 0], none)
            )
        counts = mask if isinstance(sourced, np.ndarray) and sourced.all() else jnp.logical_and(mask, sourced)
        return self._full(kind, number, mask, lambda: jnp.where(counts, number, none))

    def _later(self, result: Any) -> int:
        self._pending.append(result)
        return len(self._pending) - 1

    def _full(self, kind: str, value: Any, mask: Any, operand: Any = None) -> int:
        """Two metrics that are one array (a reserve that equals what is stored) share their reduction."""
        key = (kind, id(value), id(mask))
        if key not in self._places:
            self._places[key] = len(self._kinds)
            self._kinds.append(kind)
            filled = operand() if operand else jnp.asarray(value, jnp.int32)
            self._operands.append(jnp.broadcast_to(filled, self._shape))
        place = self._places[key]
        return self._later(lambda: self._reduced[place])

    def run(self) -> None:
        """Do the pass."""
        start = {"sum": jnp.int32(0), "min": jnp.float32(LARGE), "max": jnp.float32(-LARGE)}

        def combine(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(self._COMBINE[kind](a, b) for kind, a, b in zip(self._kinds, left, right, strict=True))

        initial = tuple(start[kind] for kind in self._kinds)
        self._reduced = lax.reduce(tuple(self._operands), initial, combine, (1,)) if self._kinds else ()
        for result in self._pending:
            self._results.append(result())

    def stacked(self, keys: Sequence[int]) -> jax.Array:
        """Results as columns of one array (rows, len(keys))."""
        if not keys:
            return jnp.zeros((self._shape[0], 0), jnp.float32)
        return jnp.stack([jnp.asarray(self._results[key]) for key in keys], axis=-1)


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

    def compile(self, objectives: int) -> None:
        """Compile without running."""
        rows = jax.ShapeDtypeStruct((self.rows_per_call,), jnp.int32)
        best = jax.ShapeDtypeStruct((self.rows_per_call, objectives), jnp.float32)
        front = jax.ShapeDtypeStruct((FILTER_SIZE, objectives), jnp.float32)
        self._run = self._run.lower(rows, best, front).compile()  # type: ignore[assignment]

    def _evaluate(self, rows: jax.Array, best: jax.Array, front: jax.Array) -> tuple[jax.Array, jax.Array]:
        shape = (self.rows_per_call, self.layout.column_count)
        found = self._problem.evaluation(
            self.layout.positions(rows[:, None], jnp.arange(shape[1], dtype=jnp.int32)[None, :])
        )
        _, admissible, _ = masks(self._problem, found)
        values = []
        for place, objective in enumerate(self._problem.objectives):
            value = found.metrics[objective.metric] * np.float32(objective.sign)
            # one number per row: take it as it was when rows were compared, to the last bit
            value = best[:, place, None] if np.shape(value)[-1:] in {(1,), ()} else value
            values.append(jnp.broadcast_to(value, shape))
        wanted = jnp.logical_and(jnp.broadcast_to(admissible, shape), jnp.logical_not(_dominated(values, front)))
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
