"""Many reductions along the columns of a block as one fused pass over its points."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kvwall.sweep.conditions import Alternative, Conditions, all_of
from kvwall.sweep.provenance import Provenance, Value
from kvwall.sweep.pushdown import Kind, Later, Pushdown, along_rows

NONE = {"min": np.float32(3e38), "max": np.float32(-3e38)}
"""What an extreme over no point is; over some points the minimum is never above the maximum.

Finite, because a compiler does not vectorise a reduction that starts at infinity: a tenth of the speed.
"""


def true_extremes(low: Any, high: Any) -> tuple[Any, Any]:
    """(low, high) as they are where a metric is infinite at every point, and NaN where no point counts."""
    none = low > high
    low = np.where(np.isposinf(high) & (low >= NONE["min"]), high, low)
    high = np.where(np.isneginf(low) & (high <= NONE["max"]), low, high)
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


class Reduction:
    """Collects reductions along columns and runs those that need every point as one fused pass.

    Counts are taken apart into those of few conjunctions, and extremes are led back to those of few values. What does
    not vary along columns needs no pass. Results are arrays of shape (rows, 1).
    """

    _COMBINE = {"sum": jnp.add, "min": jnp.minimum, "max": jnp.maximum}

    def __init__(self, shape: tuple[int, int], provenance: Provenance) -> None:
        self._shape = shape
        self._provenance = provenance
        self._conditions = Conditions(provenance)
        self._kinds: list[str] = []
        self._operands: list[Value] = []
        self._places: dict[Hashable, tuple[int, Value]] = {}
        self._reduced: Sequence[Value] = ()

    def count(self, flag: Value) -> Later:
        """Count points where `flag` holds."""
        parts = [self._count_of(alternative) for alternative in self._conditions.alternatives(flag)]
        return lambda: sum((part() for part in parts), np.zeros((1, 1), np.int32))

    def extreme(self, kind: Kind, value: Value, mask: Value) -> Later:
        """Least or greatest value over points in `mask`; NONE where there are none."""
        rows, where = self._mask(mask)
        counted = self._count_of(where)
        found = Pushdown(self._provenance, lambda which, one: self._extreme_of(which, one, where)).extreme(kind, value)
        return lambda: jnp.where(jnp.logical_and(all_of(rows), counted() > 0), found(), NONE[kind])

    def run(self) -> None:
        """Do the pass."""
        start = {"sum": np.int32(0), "min": NONE["min"], "max": NONE["max"]}

        def combine(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(self._COMBINE[kind](a, b) for kind, a, b in zip(self._kinds, left, right, strict=True))

        initial = tuple(start[kind] for kind in self._kinds)
        self._reduced = lax.reduce(tuple(self._operands), initial, combine, (1,)) if self._kinds else ()

    def stacked(self, results: Sequence[Later]) -> jax.Array:
        """Results as columns of one array (rows, len(results))."""
        if not results:
            return jnp.zeros((self._shape[0], 0), jnp.float32)
        return jnp.concatenate([jnp.broadcast_to(result(), (self._shape[0], 1)) for result in results], axis=1)

    def _mask(self, mask: Value) -> tuple[list[Value], Alternative]:
        """A mask as flags of rows, and the rest."""
        found = self._conditions.alternatives(mask)
        if len(found) > 1:
            return [], frozenset({self._conditions.whole(mask)})
        if not found:
            return [np.zeros((1, 1), bool)], frozenset()
        return self._split(found[0])

    def _split(self, alternative: Alternative) -> tuple[list[Value], Alternative]:
        """An alternative as flags of rows, and the rest."""
        rest = frozenset(one for one in alternative if not along_rows(self._conditions.value_of(one)))
        return [self._conditions.value_of(one) for one in alternative - rest], rest

    def _count_of(self, alternative: Alternative) -> Later:
        """Of points where all literals hold."""
        rows, rest = self._split(alternative)
        if not rest:
            return lambda: jnp.where(all_of(rows), np.int32(self._shape[1]), np.int32(0))
        found = self._count_along(rest)
        return lambda: jnp.where(all_of(rows), found(), np.int32(0))

    def _count_along(self, rest: Alternative) -> Later:
        """Of points where all literals hold, none of which is a row's; where one does not: of all but where it does."""
        flag = self._conditions.all_of(rest)
        if np.shape(flag)[0] == 1:  # the same for every row
            return lambda: jnp.sum(flag, axis=1, keepdims=True, dtype=np.int32)
        mixed = [one for one in rest if np.shape(self._conditions.value_of(one))[0] > 1]
        if len(mixed) == 1 and not mixed[0][1]:
            key, _ = mixed[0]
            others = rest - {mixed[0]}
            total, without = self._count_of(others), self._count_of(others | {(key, True)})
            return lambda: total() - without()
        return self._full("sum", rest, lambda: jnp.asarray(flag, jnp.int32))

    def _extreme_of(self, kind: Kind, value: Value, where: Alternative) -> Later:
        """Over every point; where all may be infinite the opposite extreme tells."""
        found = self._masked(kind, value, where)
        beyond = self._provenance.range_of(value)[kind == "min"]
        if abs(beyond) < NONE["min"]:
            return found
        other = self._masked("max" if kind == "min" else "min", value, where)
        return lambda: jnp.where((found() == NONE[kind]) & (other() == np.sign(beyond) * np.inf), other(), found())

    def _masked(self, kind: Kind, value: Value, where: Alternative) -> Later:
        """Over every point of a mask. The greatest is sought in what the least is sought in.

        Were the value itself in both operands, a compiler would rather write a quotient to memory than divide twice.
        """

        def operand() -> Value:
            mask = self._conditions.all_of(where)
            least = jnp.where(mask, jnp.reshape(value, np.shape(value)[-2:]), NONE["min"])
            return least if kind == "min" else jnp.where(mask, least, NONE["max"])

        return self._full(kind, (id(value), where), operand, kept=value)

    def _full(self, kind: str, what: Hashable, operand: Callable[[], Value], kept: Value = None) -> Later:
        """A reduction over every point, done once."""
        if (kind, what) not in self._places:
            self._places[kind, what] = len(self._kinds), kept  # kept, so that its id is not reused
            self._kinds.append(kind)
            self._operands.append(jnp.broadcast_to(operand(), self._shape))
        place = self._places[kind, what][0]
        return lambda: self._reduced[place][:, None]
