"""Bounds of boxes of designs: the best and the worst that any of them may reach, and whether any is admissible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import STATUS_OK, Evaluation, evaluate
from kvwall.spaces.design import Design
from kvwall.sweep import intervals
from kvwall.sweep.boxes import Boxes, Ordered
from kvwall.sweep.compact import compact
from kvwall.sweep.intervals import Interval
from kvwall.sweep.kernel import Problem, unfused
from kvwall.sweep.narrow import narrow_metrics
from kvwall.sweep.objective import rounded

Array: TypeAlias = np.ndarray[Any, Any]

BOXES_PER_CALL = 4096
"""Boxes bounded at once: few enough that what a law leaves behind stays in a core's cache."""
POSSIBLE, INFEASIBLE, REJECTED, ADMISSIBLE = range(4)
"""What is known of a box: it may hold an admissible design; nothing in it is feasible; a constraint, or a figure that
has no source, rules all of it out; every design of it is admissible."""


@dataclass(frozen=True)
class Bounded:
    """Bounds of boxes: of each objective sign * value, rounded as fronts compare it, shape (boxes, objectives)."""

    best: Array
    worst: Array
    fate: Array
    """POSSIBLE, INFEASIBLE, REJECTED or ADMISSIBLE, shape (boxes,)."""


Bound: TypeAlias = Callable[[Boxes], Bounded]
"""Bounds at most BOXES_PER_CALL boxes; a box of one design gives that design's own numbers."""


class Bounds:
    """Bounds boxes of a problem's grid; a box of one design gives that design's own numbers.

    In float64, without reordering: what holds for a box then holds for the very numbers of its designs.
    """

    def __init__(self, problem: Problem, ordered: Ordered) -> None:
        self._problem = problem
        self._ordered = ordered
        self._dims = ordered.space.dims
        asked = [one.metric for one in problem.objectives] + [one.metric for one in problem.constraints]
        self._named = list(dict.fromkeys(asked))
        self._narrow = narrow_metrics(problem, ordered, self._named)
        self._wide = [name for name in self._named if name not in self._narrow]
        with jax.enable_x64(True):
            self._leaves = self._examined()
            shape = jax.ShapeDtypeStruct((BOXES_PER_CALL, len(self._dims)), jnp.int32)
            # Fused, shared terms are repeated for every use, which makes this program forty times slower.
            self._run = jax.jit(self._bounds, compiler_options=unfused()).lower(shape, shape).compile()

    def __call__(self, boxes: Boxes) -> Bounded:
        """Bounds of at most BOXES_PER_CALL boxes."""
        there = len(boxes)
        with jax.enable_x64(True), jax.debug_nans(False):  # here NaN means that nothing is known
            found = self._run(*(_padded(ends) for ends in (boxes.first, boxes.last)))
            lows, highs, flags = (np.asarray(array)[:there] for array in found)
        least = {metric: lows[:, place] for place, metric in enumerate(self._wide)}
        greatest = {metric: highs[:, place] for place, metric in enumerate(self._wide)}
        for metric, table in self._narrow.items():
            least[metric], greatest[metric] = table.extremes(boxes)
        objectives = self._problem.objectives
        best = [-greatest[one.metric] if one.sign < 0 else least[one.metric] for one in objectives]
        worst = [-least[one.metric] if one.sign < 0 else greatest[one.metric] for one in objectives]
        return Bounded(
            np.stack([np.where(np.isnan(end), -np.inf, rounded(end)) for end in best], axis=1),
            np.stack([np.where(np.isnan(end), np.inf, rounded(end)) for end in worst], axis=1),
            self._fate(least, greatest, flags, boxes.sizes == 1),
        )

    def _fate(self, least: dict[str, Array], greatest: dict[str, Array], flags: Array, single: Array) -> Array:
        sure, possible, sourced, may_be_sourced = flags.T
        numbers = reduce(np.logical_and, (~(np.isnan(least[m]) | np.isnan(greatest[m])) for m in self._named))
        allowed, may_be_allowed = sourced & numbers, may_be_sourced & (numbers | ~single)
        for constraint in self._problem.constraints:
            low, high = least[constraint.metric], greatest[constraint.metric]
            may_be_allowed = may_be_allowed & ~(low > constraint.highest) & ~(high < constraint.lowest)
            allowed = allowed & (high <= constraint.highest) & (low >= constraint.lowest)
        known = np.where(sure & allowed, ADMISSIBLE, np.where(may_be_allowed, POSSIBLE, REJECTED))
        return np.where(possible, known, INFEASIBLE).astype(np.int8)

    def _examined(self) -> list[tuple[bool, bool]]:
        """Per number of a design: whether it varies inside of a box, and whether it is never negative."""
        rank = len(self._dims)
        where = {
            name: order.reshape([-1 if place == axis else 1 for axis in range(rank)])
            for place, (name, order) in enumerate(zip(self._dims, self._ordered.positions, strict=True))
        }
        leaves = jax.tree.leaves_with_path(self._problem.columns.design(where))
        return [
            (self._varies(np.asarray(leaf), jax.tree_util.keystr(path)), bool(np.all(np.asarray(leaf) >= 0)))
            for path, leaf in leaves
        ]

    def _varies(self, leaf: Array, name: str) -> bool:
        """Whether a number depends on a dimension of numbers.

        Raises TypeError where it does not rise or fall along it: the ends of a range would not bound it.
        """
        offset = leaf.ndim - len(self._dims)
        along = [d for d in range(len(self._dims)) if leaf.shape[offset + d] > 1 and not self._ordered.named[d]]
        if not along:
            return False
        steps = np.diff(leaf.astype(np.float64), axis=offset + along[0])
        if len(along) > 1 or not (np.all(steps >= 0) or np.all(steps <= 0)):
            raise TypeError(f"{name} does not rise or fall along one dimension of numbers: its boxes have no bounds")
        return True

    def _bounds(self, first: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Least and greatest metrics without a table; flags (surely and possibly feasible, then sourced)."""
        lows, tree = jax.tree.flatten(self._design(first))
        highs = jax.tree.leaves(self._design(last))
        (feasible, sourced), values = compact(partial(self._of_leaves, tree))(lows, highs)
        return (
            _table([value[0] for value in values], np.float64),
            _table([value[1] for value in values], np.float64),
            _table([*feasible, *sourced], np.bool_),
        )

    def _design(self, places: jax.Array) -> Design:
        return self._problem.columns.design(
            {
                name: jnp.asarray(order.astype(np.int32))[places[:, dim]]
                for dim, (name, order) in enumerate(zip(self._dims, self._ordered.positions, strict=True))
            }
        )

    def _of_leaves(self, tree: Any, lows: list[Any], highs: list[Any]) -> tuple[Any, Any]:
        """Intervals (as pairs) of all that is asked, from the numbers of designs at both ends of each box."""
        traced = [place for place, leaf in enumerate(lows) if not isinstance(leaf, np.ndarray | np.generic)]

        def laws(*numbers: Any) -> list[Any]:
            leaves = list(lows)
            for place, number in zip(traced, numbers, strict=True):
                leaves[place] = number
            return self._asked(evaluate(jax.tree.unflatten(tree, leaves), self._problem.task))

        given = []
        for place in traced:
            varies, positive = self._leaves[place]
            low, high = lows[place], highs[place]
            least, most = (jnp.minimum(low, high), jnp.maximum(low, high)) if varies else (low, low)
            given.append(Interval(least, most, positive))
        program = jax.make_jaxpr(laws)(*(lows[place] for place in traced))
        feasible, sourced, *values = [(one.low, one.high) for one in intervals.bounds(program, given)]
        return (feasible, sourced), values

    def _asked(self, found: Evaluation) -> list[Any]:
        """Whether designs are feasible, whether all that is named is sourced, and the metrics without a table."""
        sourced = reduce(jnp.logical_and, (found.sourced[name] for name in self._named), jnp.asarray(True))
        feasible = jnp.asarray(found.labels["status"] == STATUS_OK)
        return [feasible, jnp.asarray(sourced), *(jnp.asarray(found.metrics[name]) for name in self._wide)]


def _table(columns: list[Any], dtype: type[np.generic]) -> jax.Array:
    if not columns:
        return jnp.zeros((BOXES_PER_CALL, 0), dtype)
    return jnp.stack([jnp.broadcast_to(column, (BOXES_PER_CALL,)) for column in columns], axis=-1)


def _padded(ends: Array) -> Array:
    return np.resize(ends, (BOXES_PER_CALL, ends.shape[1])).astype(np.int32)
