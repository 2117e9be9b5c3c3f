"""The best admissible design of every model, chip and context, exactly: one more pass over the grid, nothing stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.spaces.space import Space
from kvwall.sweep.kernel import Problem, compile_options, masks
from kvwall.sweep.layout import MOST_COLUMNS, Layout
from kvwall.sweep.study import Study

LARGE = np.float32(np.inf)
"""Stands for no admissible design."""

GROUPED = ("model", "hardware", "context")
MOST_POINTS = 4_000_000_000
"""Above this the pass would take longer than a reader waits: the page then says what it can from the front."""
_POINTS_PER_CALL = 2**22
_NONE = -1
_TIE = np.float32(1e-6)
"""Relative difference below which single precision does not tell values apart."""
_Program: TypeAlias = Callable[..., jax.Array]


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
    """Search the whole grid; None where it has more than MOST_POINTS points.

    Of designs that tie by the first objective the best by the next is taken, and so on; of the rest the first.
    """
    space = study.space
    if space.size > MOST_POINTS:
        return None
    problem = Problem(study.columns(), study.task, study.objectives, study.constraints)
    layout = Layout(space, _columns(study))
    rows = np.arange(layout.row_count)
    shape = tuple(len(space[name]) for name in GROUPED)
    index, value = np.full(shape, _NONE, dtype=np.int64), np.full(shape, np.nan)
    limits = np.full((layout.row_count, len(study.objectives)), LARGE, dtype=np.float32)
    lowest, column_of_lowest = _programs(problem, layout)
    for place, objective in enumerate(study.objectives):
        found = _by_row(lowest, layout, rows, limits, place)
        group = _groups(space, layout, rows, shape)
        best = np.full(index.size, LARGE, dtype=np.float32)
        np.minimum.at(best, group, found)
        if place == 0:
            value.flat[:] = np.where(best < LARGE, objective.sign * best.astype(np.float64), np.nan)
        limit = best + _TIE * np.abs(best)
        tied = (found <= limit[group]) & (found < LARGE)
        rows, limits = rows[tied], limits[tied]
        limits[:, place] = limit[group][tied]
    groups, first = np.unique(_groups(space, layout, rows, shape), return_index=True)
    rows, limits = rows[first], limits[first]
    columns = _by_row(column_of_lowest, layout, rows, limits, len(study.objectives) - 1)
    index.flat[groups] = layout.grid_index(rows, columns)
    return BestDesigns({name: space.values(name) for name in GROUPED}, index, value, study.objectives[0].sign)


def _groups(space: Space, layout: Layout, rows: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Flat position of each row among models, chips and contexts."""
    positions = layout.row_positions(rows)
    place = tuple(_position(space, name, positions, len(rows)) for name in GROUPED)
    return np.ravel_multi_index(place, shape).astype(np.int64)


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


def _programs(problem: Problem, layout: Layout) -> tuple[_Program, _Program]:
    """Of rows: the lowest sign * objective, and the column of it, among admissible points within the limits.

    Both take row numbers, limits of shape (rows, objectives) and the objective's place.
    """

    def values(rows: jax.Array, limits: jax.Array, place: jax.Array) -> jax.Array:
        columns = jnp.arange(layout.column_count, dtype=jnp.int32)[None, :]
        found = problem.evaluation(layout.positions(rows[:, None], columns))
        _, kept, _ = masks(problem, found)
        chosen = jnp.asarray(LARGE)
        for number, objective in enumerate(problem.objectives):
            value = found.metrics[objective.metric] * np.float32(objective.sign)
            kept = jnp.logical_and(kept, value <= limits[:, number, None])
            chosen = jnp.where(place == number, value, chosen)
        return jnp.broadcast_to(jnp.where(kept, chosen, LARGE), (len(rows), layout.column_count))

    def lowest(*given: jax.Array) -> jax.Array:
        return jnp.min(values(*given), axis=1)

    def column(*given: jax.Array) -> jax.Array:
        return jnp.argmin(values(*given), axis=1)

    options = compile_options()
    return jax.jit(lowest, compiler_options=options), jax.jit(column, compiler_options=options)


def _by_row(
    program: _Program, layout: Layout, rows: NDArray[np.int64], limits: NDArray[np.float32], place: int
) -> NDArray[Any]:
    """Run a program over rows, in calls of one shape."""
    size = min(layout.row_count, max(1, _POINTS_PER_CALL // layout.column_count))

    def block(start: int) -> NDArray[Any]:
        few = rows[start : start + size]
        where = np.minimum(np.arange(size), len(few) - 1)
        found = program(few[where].astype(np.int32), limits[start : start + size][where], np.int32(place))
        return np.asarray(found)[: len(few)]

    starts = range(0, len(rows), size)
    if not starts:
        return np.zeros(0, dtype=np.int64)
    first = block(0)  # compiles once, before threads ask for it together
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return np.concatenate([first, *pool.map(block, starts[1:])])
