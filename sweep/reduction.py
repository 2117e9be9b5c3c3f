"""Many reductions along the columns of a block as one fused pass over its points."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from kvwall.sweep.conditions import Alternative, Conditions, Literal, all_of
from kvwall.sweep.implied import Implied, comparison, same
from kvwall.sweep.provenance import Provenance, Value, identity
from kvwall.sweep.pushdown import Kind, Later, Pushdown, along_rows

NONE = {"min": np.float32(np.inf), "max": np.float32(-np.inf)}
"""What an extreme over no point is; over some points the minimum is never above the maximum."""


def true_extremes(low: Any, high: Any) -> tuple[Any, Any]:
    """(low, high), NaN where no point counts."""
    none = low > high
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


class Reduction:
    """Collects reductions along columns and runs those that need every point as one fused pass.

    Counts are taken apart into those of few conjunctions, and extremes are led back to those of few values. What does
    not vary along columns needs no pass. Results are arrays of shape (rows, 1).

    Extremes are taken of integers that are ordered as the numbers are: their own bits. Those have no NaN to propagate,
    which would cost three instructions instead of one.
    """

    def __init__(self, shape: tuple[int, int], provenance: Provenance) -> None:
        self._shape = shape
        self._provenance = provenance
        self._conditions = Conditions(provenance)
        self._bits = shape[1].bit_length()
        self._per_word = max(1, _WORD // self._bits)
        self._flags: list[Value] = []
        self._kinds: list[str] = []
        self._operands: list[Value] = []
        self._places: dict[Hashable, tuple[int, Value]] = {}
        self._found: list[Value] = []
        self._known: dict[Alternative, Implied] = {}

    def count(self, flag: Value) -> Later:
        """Count points where `flag` holds."""
        parts = [self._count_of(alternative) for alternative in self._conditions.alternatives(flag)]
        return lambda: sum((part() for part in parts), np.zeros((1, 1), np.int32))

    def extreme(self, kind: Kind, value: Value, mask: Value) -> Later:
        """Least or greatest value over points in `mask`; NONE where there are none."""
        rows, where = self._mask(mask)
        counted = self._count_of(where)
        implied = self._implied(where)
        pushdown = Pushdown(implied, lambda which, one: self._extreme_of(which, one, where, implied))
        found = pushdown.extreme(kind, value)
        return lambda: jnp.where(jnp.logical_and(rows, counted() > 0), found(), NONE[kind])

    @property
    def size(self) -> int:
        """How many reductions there are: flags to count, and extremes."""
        return len(self._flags) + len(self._operands)

    def run(self) -> None:
        """Do the pass."""
        operands = [*self._words(), *self._operands]
        kinds = ["sum"] * (len(operands) - len(self._operands)) + self._kinds

        def combine(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(_COMBINE[kind](a, b) for kind, a, b in zip(kinds, left, right, strict=True))

        wide = tuple(jnp.broadcast_to(operand, self._shape) for operand in operands)
        initial = tuple(_START[kind] for kind in kinds)
        found = lax.reduce(wide, initial, combine, (1,)) if kinds else ()
        self._found = [each[:, None] for each in found]

    def _words(self) -> list[Value]:
        """Flags as integers whose sums hold several counts each: an accumulator less, and an addition.

        They count down, for a vector of flags is a vector of -1 and 0 in one instruction.
        """
        words: list[Value] = []
        for place, flag in enumerate(self._flags):
            if place % self._per_word == 0:
                words.append(jnp.where(flag, np.int32(-1), np.int32(0)))
            else:
                unit = np.int32(1 << self._bits * (place % self._per_word))
                words[-1] = jnp.where(flag, words[-1] - unit, words[-1])
        return words

    def stacked(self, results: Sequence[Later]) -> jax.Array:
        """Results one after the other, as they are in memory: an array of shape (len(results), rows)."""
        if not results:
            return jnp.zeros((0, self._shape[0]), jnp.float32)
        return jnp.stack([jnp.broadcast_to(result(), (self._shape[0], 1))[:, 0] for result in results])

    def _mask(self, mask: Value) -> tuple[Value, Alternative]:
        """A mask as a flag of rows, and the rest; as a whole where alternatives differ in more than rows."""
        found = [self._split(alternative) for alternative in self._conditions.alternatives(mask)]
        if not found:
            return np.zeros((1, 1), bool), frozenset()
        if len({rest for _, rest in found}) > 1:
            return np.ones((1, 1), bool), frozenset({self._conditions.whole(mask)})
        return reduce(jnp.logical_or, [all_of(rows) for rows, _ in found]), found[0][1]

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
        if rest not in self._places:
            self._places[rest] = len(self._flags), None
            self._flags.append(flag)
        place = self._places[rest][0]
        return lambda: self._unpacked(place)

    def _unpacked(self, place: int) -> Value:
        """A count out of the sum of its word."""
        word, shift = self._found[place // self._per_word], self._bits * (place % self._per_word)
        return lax.shift_right_logical(-word, np.int32(shift)) & np.int32((1 << self._bits) - 1)

    def _implied(self, where: Alternative) -> Implied:
        """What is known of values at the points of a mask."""
        if where not in self._known:
            self._known[where] = Implied(self._provenance, map(self._conditions.flag_of, sorted(where)))
        return self._known[where]

    def _extreme_of(self, kind: Kind, value: Value, where: Alternative, implied: Implied) -> Later:
        """Over every point of a mask, of the bits of the numbers."""
        low, _ = implied.range_of(value)
        wider = frozenset(one for one in where if not self._bounds(kind, value, one))
        if low < 0 or self._implied(wider).range_of(value)[0] >= 0:  # beyond what bounds it there may be a sign
            where, low = wider, self._implied(wider).range_of(value)[0]
        positive = low >= 0
        if (kind, identity(value), where) not in self._places:
            self._places[kind, identity(value), where] = len(self._kinds), value  # kept, so that its id is not reused
            mask, bits = self._conditions.all_of(where), _bits(value)
            self._kinds.append(f"{kind} of magnitudes" if positive else kind)
            self._operands.append(_magnitudes(kind, bits, mask, low > 0) if positive else _ordered(kind, bits, mask))
        place = self._places[kind, identity(value), where][0]
        in_order: Callable[[Value], Value] = _magnitude if positive else _in_order

        def found() -> Value:
            bits = lax.bitcast_convert_type(self._found[place - len(self._operands)], jnp.int32)
            return lax.bitcast_convert_type(in_order(bits), jnp.float32)

        return found

    def _bounds(self, kind: Kind, value: Value, literal: Literal) -> bool:
        """Whether a literal only keeps a value on that side of a row's number where its extreme is: it changes none."""
        one, other = comparison(self._provenance, *self._conditions.flag_of(literal)) or (None, None)
        bounded, bound = (other, one) if kind == "min" else (one, other)
        return bounded is not None and along_rows(bound) and same(self._provenance, bounded, value)


_WORD = 32
"""Bits of a sum of counts."""
_COMBINE = {
    "sum": jnp.add, "min": jnp.minimum, "max": jnp.maximum, "min of magnitudes": jnp.minimum,
    "max of magnitudes": jnp.maximum,
}  # fmt: skip
_SIGN, _ALL_BUT_SIGN = np.int32(-(2**31)), np.int32(2**31 - 1)
_START = {
    "sum": np.int32(0), "min": _ALL_BUT_SIGN, "max": _SIGN, "min of magnitudes": np.uint32(2**32 - 1),
    "max of magnitudes": _SIGN,
}  # fmt: skip


def _bits(value: Value) -> Value:
    """Of float32 numbers, as (rows, columns)."""
    return lax.bitcast_convert_type(jnp.reshape(value, np.shape(value)[-2:]), jnp.int32)


def _in_order(bits: Value) -> Value:
    """The bits of float32 numbers, ordered as the numbers are: of negative ones all but the sign inverted. And back."""
    return bits ^ ((bits >> 31) & _ALL_BUT_SIGN)


def _magnitude(bits: Value) -> Value:
    """Without the sign, which a zero may have."""
    return bits & _ALL_BUT_SIGN


def _magnitudes(kind: Kind, bits: Value, mask: Value, unsigned: bool) -> Value:
    """Of numbers none of which is negative; `unsigned`: nor a zero, which may have a sign.

    What does not count gets the sign bit: it is then beyond all others both as an integer without sign, of which the
    least is sought, and as one with it, of which the greatest is. One choice serves both.
    """
    masked = jnp.where(mask, bits if unsigned else _magnitude(bits), _SIGN)
    return lax.bitcast_convert_type(masked, jnp.uint32) if kind == "min" else masked


def _ordered(kind: Kind, bits: Value, mask: Value) -> Value:
    """Of any numbers. The greatest is sought in what the least is sought in.

    Were the value itself in both operands, a compiler would rather write a quotient to memory than divide twice.
    """
    least = jnp.where(mask, _in_order(bits), _START["min"])
    return least if kind == "min" else jnp.where(mask, least, _START["max"])
