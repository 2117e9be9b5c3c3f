"""The jitted kernel that streams a grid: every metric, label and status of a block, reduced row by row.

Per row it keeps extremes over feasible points, counts per category, and the best of each objective over admissible
points. Everything is one reduction, so a compiler fuses the laws into it and no point touches memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import LABELS, STATUS_OK, Evaluation, evaluate
from kvwall.objectives.status import computed
from kvwall.spaces.columns import Columns
from kvwall.sweep.compact import compact
from kvwall.sweep.layout import Layout
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.reduction import Reduction

COUNTED_LABELS = ("phase", "regime", "status")
"""Labels whose shares are counted; `bound_by` follows from the regime."""


@dataclass(frozen=True)
class Problem:
    """What the kernels of a study compute."""

    columns: Columns
    task: str
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]

    @property
    def mode(self) -> str:
        """What designs are evaluated as."""
        return self.columns.mode

    def evaluation(self, positions: dict[str, jax.Array]) -> Evaluation:
        """Every metric, label and mask at these positions, at their smallest shapes."""
        return compact(partial(evaluate, task=self.task))(self.columns.design(positions))

    def evaluation_plain(self, positions: Mapping[str, np.ndarray[Any, Any]]) -> Evaluation:
        """The same, uncompiled, in the precision in force."""
        return evaluate(self.columns.design(positions), self.task)

    def metric_shapes(self) -> dict[str, frozenset[str]]:
        """Metric -> the dimensions it depends on, by tracing with one array dimension per grid dimension.

        Two places along each tell whether a metric varies; whole axes of a large grid would not fit in memory.
        """
        dims, shape = self.columns.space.dims, [2] * len(self.columns.space.dims)
        rank = len(dims)
        positions = {
            name: jax.ShapeDtypeStruct([size if i == place else 1 for i in range(rank)], jnp.int32)
            for place, (name, size) in enumerate(zip(dims, shape, strict=True))
        }
        found = jax.eval_shape(lambda where: jax.tree.map(jnp.asarray, self.evaluation(where)), positions)
        return {
            name: frozenset(dim for dim, size in zip(dims, _ranked(array.shape, rank), strict=True) if size > 1)
            for name, array in found.metrics.items()
        }


def _ranked(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A shape of this rank: a constant of lower rank varies along no dimension."""
    return (1,) * (rank - len(shape)) + tuple(shape)


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
    kept = [
        jnp.logical_and(found.sourced[constraint.metric], constraint.allows(found.metrics[constraint.metric]))
        for constraint in problem.constraints
    ]
    usable = [found.sourced[objective.metric] for objective in problem.objectives]
    admissible = reduce(jnp.logical_and, [*kept, *usable], feasible)
    return feasible, admissible, [jnp.logical_and(feasible, jnp.logical_not(one)) for one in kept]


def counted(label: str, found: Evaluation) -> Any:
    """The points at which a label means something: the status everywhere, others where the step can be computed."""
    return np.asarray(True) if label == "status" else computed(found.labels["status"])


@dataclass(frozen=True)
class RowStatistics:
    """Per row; arrays of shape (rows, k). Counts: of each counted label in turn, its categories but the first."""

    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]
    admissible: np.ndarray[Any, Any]
    rejected: np.ndarray[Any, Any]
    best: np.ndarray[Any, Any]
    """Per objective, sign * value, smaller is better; means nothing where no point of the row is admissible."""
    above: np.ndarray[Any, Any]
    """Feasible points whose histogram metric is at least each edge."""


BINS = 16
"""Bins of a histogram."""


class RowReducer:
    """Reduces rows of a layout; keeps the extremes of `metrics`, and how `histogram` is distributed if it is given.

    `edges` are the lower edges of its bins; set them before calling.
    """

    def __init__(
        self,
        problem: Problem,
        layout: Layout,
        rows_per_call: int,
        metrics: Sequence[str],
        histogram: str | None = None,
    ) -> None:
        self.histogram = histogram
        self.edges = np.zeros(BINS, np.float32)
        self.layout = layout
        self.rows_per_call = rows_per_call
        self.metrics = tuple(metrics)
        self._problem = problem
        self._run = jax.jit(self.reduce, compiler_options=compile_options())

    def __call__(self, first_row: int) -> RowStatistics:
        """Statistics of up to `rows_per_call` rows from `first_row` on."""
        there = min(self.rows_per_call, self.layout.row_count - first_row)
        return RowStatistics(*(np.asarray(array)[:there] for array in self._run(np.int32(first_row), self.edges)))

    def compile(self) -> None:
        """Compile without running."""
        self._run = self._run.lower(
            jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((BINS,), jnp.float32)
        ).compile()  # type: ignore[assignment]

    def reduce(self, first_row: jax.Array, edges: jax.Array) -> tuple[jax.Array, ...]:
        """The kernel itself, to be traced: arrays of RowStatistics for `rows_per_call` rows, the last one repeated."""
        shape = (self.rows_per_call, self.layout.column_count)
        last = self.layout.row_count - 1
        rows = jnp.minimum(first_row + jnp.arange(shape[0], dtype=jnp.int32), last)[:, None]
        found = self._problem.evaluation(self.layout.positions(rows, jnp.arange(shape[1], dtype=jnp.int32)[None, :]))
        feasible, admissible, rejected = masks(self._problem, found)
        batch = Reduction(shape)
        any_feasible = batch.count(feasible)
        any_admissible = batch.count(admissible)
        refused = [batch.count(one) for one in rejected]
        counts = [
            batch.count(jnp.logical_and(found.labels[name] == code, counted(name, found)))
            for name in COUNTED_LABELS
            for code in range(1, len(LABELS[name].meanings))
        ]
        low = [batch.extreme("min", self._masked(found, name), feasible, any_feasible) for name in self.metrics]
        high = [batch.extreme("max", self._masked(found, name), feasible, any_feasible) for name in self.metrics]
        best = [
            batch.extreme("min", (found.metrics[o.metric] * np.float32(o.sign), True), admissible, any_admissible)
            for o in self._problem.objectives
        ]
        above = self._above(batch, found, feasible, edges)
        batch.run()
        return tuple(batch.stacked(keys) for keys in (low, high, counts, [any_admissible], refused, best, above))

    def _above(self, batch: Reduction, found: Evaluation, feasible: Any, edges: jax.Array) -> list[int]:
        if self.histogram is None:
            return []
        value, counts = found.metrics[self.histogram], jnp.logical_and(feasible, found.sourced[self.histogram])
        return [batch.count(jnp.logical_and(counts, value >= edges[place])) for place in range(BINS)]

    def _masked(self, found: Evaluation, name: str) -> tuple[Any, Any]:
        return found.metrics[name], found.sourced[name]
