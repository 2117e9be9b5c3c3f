"""The best admissible design of every model, chip and context, exactly: one more pass over the grid, nothing stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.spaces.space import Space
from kvwall.sweep.kernel import Problem, compile_options, masks
from kvwall.sweep.layout import MOST_COLUMNS, Layout
from kvwall.sweep.reduction import LARGE
from kvwall.sweep.study import Study

GROUPED = ("model", "hardware", "context")
MOST_POINTS = 4_000_000_000
"""Above this the pass would take longer than a reader waits: the page then says what it can from the front."""
_POINTS_PER_CALL = 2**22
_NONE = -1


@dataclass(frozen=True)
class BestDesigns:
    """Best admissible design by the first objective, for each combination of model, chip and context."""

    values: Mapping[str, tuple[Value, ...]]
    """The grouped axes' values."""
    index: NDArray[np.int64]
    """Flat grid index, shape (models, chips, contexts); -1 where nothing is admissible."""
    value: NDArray[np.float64]
    """The first objective in single precision, shape as `index`; NaN where nothing is admissible."""
    sign: float

    def of(self, model: Value, chip: Value) -> NDArray[np.int64]:
        """Grid index by context for one model and chip."""
        found: NDArray[np.int64] = self.index[self.values["model"].index(model), self.values["hardware"].index(chip)]
        return found

    def at(self, model: Value, chip: Value, context: Value) -> float:
        """The first objective at one context, NaN where nothing is admissible."""
        place = (self.values["model"].index(model), self.values["hardware"].index(chip))
        return float(self.value[(*place, self.values["context"].index(context))])

    def best_of(self, model: Value, chip: Value) -> int | None:
        """Grid index of the best over all contexts, or None."""
        place = self.values["model"].index(model), self.values["hardware"].index(chip)
        ranked = np.where(self.index[place] == _NONE, np.inf, self.sign * self.value[place])
        return int(self.index[place][int(np.argmin(ranked))]) if np.isfinite(ranked).any() else None


def best_designs(study: Study) -> BestDesigns | None:
    """Search the whole grid; None where it has more than MOST_POINTS points."""
    space = study.space
    if space.size > MOST_POINTS:
        return None
    problem = Problem(study.columns(), study.task, study.objectives[:1], study.constraints)
    layout = Layout(space, _columns(study))
    row_best = _row_best(problem, layout)
    positions = layout.row_positions(np.arange(layout.row_count))
    place = tuple(_position(space, name, positions, layout.row_count) for name in GROUPED)
    shape = tuple(len(space[name]) for name in GROUPED)
    group = np.ravel_multi_index(place, shape)
    order = np.lexsort((np.arange(layout.row_count), row_best, group))
    groups, starts = np.unique(group[order], return_index=True)
    rows = order[starts]
    found = row_best[rows] < LARGE
    sign = study.objectives[0].sign
    index, value = np.full(shape, _NONE, dtype=np.int64), np.full(shape, np.nan)
    grid_index = layout.grid_index(rows, _best_column(problem, layout, rows))
    index.flat[groups] = np.where(found, grid_index, _NONE)
    value.flat[groups] = np.where(found, sign * row_best[rows].astype(np.float64), np.nan)
    return BestDesigns({name: space.values(name) for name in GROUPED}, index, value, sign)


def _position(space: Space, axis: str, rows: Mapping[str, NDArray[Any]], count: int) -> NDArray[np.int64]:
    """Position of each row along an axis, which may be fixed or tied to another."""
    dimension = space.dimension_of(axis)
    return rows[dimension].astype(np.int64) if dimension else np.zeros(count, dtype=np.int64)


def _columns(study: Study) -> tuple[str, ...]:
    """Dimensions for the inner loop: the last ones that fit and are not grouped."""
    chosen: list[str] = []
    count = 1
    grouped = {study.space.dimension_of(name) for name in GROUPED}
    for name in reversed([name for name in study.space.dims if name not in grouped]):
        if count * len(study.space[name]) <= MOST_COLUMNS:
            chosen.append(name)
            count *= len(study.space[name])
    return tuple(name for name in study.space.dims if name in chosen)


def _admissible_values(problem: Problem, layout: Layout, rows: jax.Array) -> jax.Array:
    """Sign * first objective of every point of these rows, LARGE where it is not admissible."""
    columns = jnp.arange(layout.column_count, dtype=jnp.int32)[None, :]
    found = problem.evaluation(layout.positions(rows[:, None], columns))
    _, admissible, _ = masks(problem, found)
    objective = problem.objectives[0]
    value = jnp.where(admissible, found.metrics[objective.metric] * np.float32(objective.sign), LARGE)
    return jnp.broadcast_to(value, (len(rows), layout.column_count)).astype(jnp.float32)


def _compiled(function: Callable[[jax.Array], jax.Array], rows: int) -> Callable[[NDArray[np.int32]], jax.Array]:
    shape = jax.ShapeDtypeStruct((rows,), jnp.int32)
    program: Callable[[NDArray[np.int32]], jax.Array] = (
        jax.jit(function, compiler_options=compile_options()).lower(shape).compile()
    )
    return program


def _row_best(problem: Problem, layout: Layout) -> NDArray[np.float32]:
    """Each row's best."""
    size = min(layout.row_count, max(1, _POINTS_PER_CALL // layout.column_count))
    run = _compiled(lambda rows: jnp.min(_admissible_values(problem, layout, rows), axis=1), size)

    def block(start: int) -> NDArray[np.float32]:
        rows = np.minimum(np.arange(start, start + size), layout.row_count - 1).astype(np.int32)
        return np.asarray(run(rows))[: layout.row_count - start]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return np.concatenate(list(pool.map(block, range(0, layout.row_count, size))))


def _best_column(problem: Problem, layout: Layout, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The column of each row's best, the first of several."""
    size = min(len(rows), max(1, _POINTS_PER_CALL // layout.column_count))
    run = _compiled(lambda chosen: jnp.argmin(_admissible_values(problem, layout, chosen), axis=1), size)
    parts = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        parts.append(np.asarray(run(np.resize(part, size).astype(np.int32)))[: len(part)])
    return np.concatenate(parts).astype(np.int64)
