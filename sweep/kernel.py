"""The jitted kernel that streams a grid: every metric, label and status of a block, reduced row by row.

Per row it keeps extremes over feasible points, counts per category, and the best of each objective over admissible
points. Everything is one reduction, so a compiler fuses the laws into it and no point touches memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial, reduce
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import LABELS, STATUS_OK, Evaluation, evaluate
from kvwall.objectives.status import computed
from kvwall.spaces.columns import Columns, Positions
from kvwall.sweep.compact import Interpreter
from kvwall.sweep.compiling import SPLITTING, UNSPLIT
from kvwall.sweep.layout import Layout
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.provenance import Provenance
from kvwall.sweep.pushdown import Kind
from kvwall.sweep.ranges import Range, range_of_array
from kvwall.sweep.reduction import Reduction
from kvwall.sweep.traced import Traced

_T = TypeVar("_T")

COUNTED_LABELS = ("phase", "regime", "status")
"""Labels whose shares are counted; `bound_by` follows from the regime."""


@dataclass(frozen=True)
class Problem:
    """What the kernels of a study compute."""

    columns: Columns
    task: str
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    _traced: Traced = field(default_factory=lambda: Traced(evaluate), compare=False, repr=False)
    """Of the laws, for all kernels of problems that differ in what is asked only."""

    @property
    def mode(self) -> str:
        """What designs are evaluated as."""
        return self.columns.mode

    def evaluation(self, positions: Positions) -> Evaluation:
        """Every metric, label and mask at these positions, at their smallest shapes."""
        return self.compacted(lambda found: found, positions)[0]

    def compacted(self, asked: Callable[[Evaluation], _T], positions: Positions) -> tuple[_T, Provenance]:
        """What is asked of the evaluation at these positions, at its smallest shapes, and where values come from."""
        design, provenance = self.columns.design(positions), Provenance()
        for leaf, within in zip(jax.tree.leaves(design), self._ranges, strict=True):
            provenance.record(leaf, None, within)
        interpreter, rank = Interpreter(provenance), max(map(np.ndim, positions.values()), default=0)
        return interpreter.call(asked, interpreter.call_traced(self._traced, design, rank, self.task)), provenance

    @cached_property
    def _ranges(self) -> list[Range]:
        """Of every leaf of a design, over the grid."""
        space, rank = self.columns.space, len(self.columns.space.dims)
        everywhere = {
            name: np.arange(size).reshape([size if axis == place else 1 for axis in range(rank)])
            for place, (name, size) in enumerate(zip(space.dims, space.shape, strict=True))
        }
        tables = jax.tree.leaves(self.columns.design(everywhere))
        return [range_of_array(np.asarray(table, np.float32)) for table in tables]

    def evaluation_plain(self, positions: Mapping[str, np.ndarray[Any, Any]]) -> Evaluation:
        """The same, uncompiled, in the precision in force."""
        return evaluate(self.columns.design(positions), self.task)

    def metric_shapes(self) -> dict[str, frozenset[str]]:
        """Metric -> the dimensions it depends on, by tracing with one array dimension per grid dimension.

        Two places along each tell whether a metric varies; whole axes of a large grid would not fit in memory.
        """
        dims = self.columns.space.dims
        rank = len(dims)
        positions = {
            name: jax.ShapeDtypeStruct([2 if i == place else 1 for i in range(rank)], jnp.int32)
            for place, name in enumerate(dims)
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
    """Compiler options for this machine: on CPUs the widest vectors, and arithmetic as it is written.

    Of large programs a compiler that may reorder sums and products makes hundreds of times as many; of others it makes
    none the quicker, as `compact` has put them in order. Small reductions stay with the compiler: the library it would
    give them to takes one number after the other along columns of one.
    """
    if jax.default_backend() != "cpu":
        return None
    return {
        "xla_cpu_prefer_vector_width": 512,
        "xla_cpu_enable_fast_math": False,
        "xla_cpu_experimental_ynn_fusion_type": "",
        **UNSPLIT,
    }


def unfused() -> dict[str, Any] | None:
    """Compiler options under which every operation rounds by itself, as it is written."""
    return {"xla_disable_hlo_passes": f"fusion,{SPLITTING}"} if jax.default_backend() == "cpu" else None


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
    """Per row; arrays of shape (rows, k), in memory one quantity after the other.

    Counts: of each counted label in turn, its categories but the first.
    """

    low: np.ndarray[Any, Any]
    high: np.ndarray[Any, Any]
    counts: np.ndarray[Any, Any]
    admissible: np.ndarray[Any, Any]
    rejected: np.ndarray[Any, Any]
    best: np.ndarray[Any, Any]
    """Per objective, sign * value, smaller is better; means nothing where no point of the row is admissible."""
    above: np.ndarray[Any, Any]
    """Feasible points whose histogram metric is at least each edge; all for the lowest."""


BINS = 16
"""Bins of a histogram."""


class RowReducer:
    """Reduces rows of a layout; keeps the extremes of `metrics`, and how `histogram` is distributed if it is given.

    `edges` are the lower edges of its bins; set them before calling. The lowest bin holds what is below it too.
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
        return RowStatistics(*(np.asarray(array)[:, :there].T for array in self._run(np.int32(first_row), self.edges)))

    def compile(self) -> None:
        """Compile without running."""
        self._run = self._run.lower(
            jax.ShapeDtypeStruct((), jnp.int32), jax.ShapeDtypeStruct((BINS,), jnp.float32)
        ).compile()  # type: ignore[assignment]

    def reduce(self, first_row: jax.Array, edges: jax.Array) -> tuple[jax.Array, ...]:
        """The kernel itself, to be traced: arrays of RowStatistics, transposed, for `rows_per_call` rows.

        The last row is repeated.
        """
        shape = (self.rows_per_call, self.layout.column_count)
        last = self.layout.row_count - 1
        rows = jnp.minimum(first_row + jnp.arange(shape[0], dtype=jnp.int32), last)[:, None]
        positions = self.layout.positions(rows, np.arange(shape[1], dtype=np.int32)[None, :])
        asked, provenance = self._problem.compacted(partial(self._asked, edges=edges.reshape(-1, 1, 1)), positions)
        batch = Reduction(shape, provenance)
        extremes: dict[str, Kind] = {"low": "min", "high": "max", "best": "min"}
        results = {
            name: [batch.extreme(extremes[name], *of) if name in extremes else batch.count(of) for of in wanted]
            for name, wanted in asked.items()
        }
        batch.run()
        return tuple(batch.stacked(results[field.name]) for field in fields(RowStatistics))

    def _asked(self, found: Evaluation, edges: jax.Array) -> dict[str, list[Any]]:
        """Per field of RowStatistics, the flags to count, or (values, flags of the points whose extreme is wanted)."""
        feasible, admissible, rejected = masks(self._problem, found)
        bounded = [(found.metrics[name], jnp.logical_and(feasible, found.sourced[name])) for name in self.metrics]
        counts = [
            jnp.logical_and(found.labels[name] == code, counted(name, found))
            for name in COUNTED_LABELS
            for code in range(1, len(LABELS[name].meanings))
        ]
        best = [(found.metrics[one.metric] * np.float32(one.sign), admissible) for one in self._problem.objectives]
        return {
            "low": bounded,
            "high": bounded,
            "counts": counts,
            "admissible": [admissible],
            "rejected": rejected,
            "best": best,
            "above": self._above(found, feasible, edges),
        }

    def _above(self, found: Evaluation, feasible: Any, edges: jax.Array) -> list[Any]:
        if self.histogram is None:
            return []
        value, counts = found.metrics[self.histogram], jnp.logical_and(feasible, found.sourced[self.histogram])
        return [counts, *(jnp.logical_and(counts, value >= edges[place]) for place in range(1, BINS))]
