"""The best admissible design of every model, chip and context, and of every value of an axis, exactly.

One more pass over the grid; nothing is stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
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
from kvwall.sweep.run import problem_of
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
_Program: TypeAlias = Callable[..., tuple[jax.Array, jax.Array]]


@dataclass(frozen=True)
class BestDesigns:
    """Best admissible design by the first objective, for each combination of model, chip and context."""

    values: Mapping[str, tuple[Value, ...]]
    """The grouped axes' values."""
    index: NDArray[np.int64]
    """Flat grid index, shape (models, chips, contexts); -1 where nothing is admissible."""
    value: NDArray[np.float64]
    """The first objective in single precision, shape as `index`; NaN where nothing is admissible."""
    margins: Mapping[str, NDArray[np.float64]]
    """Dimension -> best admissible first objective at each of its values, NaN where nothing is admissible."""
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
        return int(self.index[place][int(np.argmin(ranked))]) if (ranked < np.inf).any() else None


def best_designs(study: Study) -> BestDesigns | None:
    """Search the whole grid; None where it has more than MOST_POINTS points.

    Of designs that tie by the first objective the best by the next is taken, and so on; of the rest the first.
    """
    space = study.space
    if space.size > MOST_POINTS:
        return None
    problem = problem_of(study)
    layout = Layout(space, _columns(study))
    rows = np.arange(layout.row_count)
    shape = tuple(len(space[name]) for name in GROUPED)
    index, value = np.full(shape, _NONE, dtype=np.int64), np.full(shape, np.nan)
    limits = np.full((layout.row_count, len(study.objectives)), LARGE, dtype=np.float32)
    lowest, column_of_lowest = _programs(problem, layout)
    margins: dict[str, NDArray[np.float64]] = {}
    for place, objective in enumerate(study.objectives):
        found, by_column = _by_row(lowest, layout, rows, limits, place)
        group = _groups(space, layout, rows, shape)
        best = np.full(index.size, LARGE, dtype=np.float32)
        np.minimum.at(best, group, found)
        if place == 0:
            value.flat[:] = _known(best, objective.sign)
            margins = {name: _known(least, objective.sign) for name, least in _margins(layout, found, by_column)}
        limit = best + _TIE * np.where(np.isfinite(best), np.abs(best), np.float32(0))  # -inf: nothing can be better
        tied = (found <= limit[group]) & (found < LARGE)
        rows, limits = rows[tied], limits[tied]
        limits[:, place] = limit[group][tied]
    groups, first = np.unique(_groups(space, layout, rows, shape), return_index=True)
    rows, limits = rows[first], limits[first]
    columns, _ = _by_row(column_of_lowest, layout, rows, limits, len(study.objectives) - 1)
    index.flat[groups] = layout.grid_index(rows, columns)
    values = {name: space.values(name) for name in GROUPED}
    return BestDesigns(values, index, value, margins, study.objectives[0].sign)


def _known(least: NDArray[np.float32], sign: float) -> NDArray[np.float64]:
    """Values of the objective, NaN where there is none."""
    return np.where(least < LARGE, sign * least.astype(np.float64), np.nan)


def _margins(
    layout: Layout, by_row: NDArray[np.float32], by_column: NDArray[np.float32]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each dimension with the lowest value at each of its positions."""
    for name, where in layout.row_positions(np.arange(layout.row_count)).items():
        least = np.full(len(layout.space[name]), LARGE, dtype=np.float32)
        np.minimum.at(least, where, by_row)
        yield name, least
    grid = by_column.reshape(layout.lengths(layout.columns))
    for place, name in enumerate(layout.columns):
        yield name, grid.min(axis=tuple(other for other in range(grid.ndim) if other != place))


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
    """Two programs over rows: each row's lowest sign * objective, and its column; and the lowest of each column.

    Both look at admissible points within the limits; they take row numbers, limits of shape (rows, objectives) and
    the objective's place.
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

    def lowest(*given: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = values(*given)
        return jnp.min(found, axis=1), jnp.min(found, axis=0)

    def column(*given: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = values(*given)
        return jnp.argmin(found, axis=1), jnp.min(found, axis=0)

    options = compile_options()
    return jax.jit(lowest, compiler_options=options), jax.jit(column, compiler_options=options)


def _by_row(
    program: _Program, layout: Layout, rows: NDArray[np.int64], limits: NDArray[np.float32], place: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Run a program over rows, in calls of one shape: its first result row by row, the least of its second."""
    size = min(layout.row_count, max(1, _POINTS_PER_CALL // layout.column_count))

    def block(start: int) -> tuple[NDArray[Any], NDArray[Any]]:
        few = rows[start : start + size]
        where = np.minimum(np.arange(size), len(few) - 1)
        by_row, by_column = program(few[where].astype(np.int32), limits[start : start + size][where], np.int32(place))
        return np.asarray(by_row)[: len(few)], np.asarray(by_column)

    starts = range(0, len(rows), size)
    if not starts:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    first = block(0)  # compiles once, before threads ask for it together
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        by_row, by_column = zip(first, *pool.map(block, starts[1:]), strict=True)
    return np.concatenate(by_row), np.min(by_column, axis=0)
