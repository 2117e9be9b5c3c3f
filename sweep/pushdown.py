"""Extremes along a row of what increases or decreases with something simpler follow from the extremes of that.

Rounding is monotone, so the greatest of r*x, x + r, r/x, floor(x) or log(x) over some points is that very operation on
the greatest or the least x, to the last bit. Tokens per second, their share of a device, cost at one price and time per
token are then one reduction of the step's time; what grows with the context alone is one of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np

from kvwall.sweep.comonotone import comonotone
from kvwall.sweep.provenance import Origin, Provenance, Value, is_constant

Kind: TypeAlias = Literal["min", "max"]
Later: TypeAlias = Callable[[], Value]
"""Gives an array of shape (rows, 1) once the rows have been reduced."""

_OPPOSITE: dict[Kind, Kind] = {"min": "max", "max": "min"}
_INCREASING = frozenset(
    {"floor", "ceil", "exp", "log", "log2", "log1p", "expm1", "sqrt", "reshape", "copy", "stop_gradient"}
)
_MOST_TOGETHER = 8
"""Columns that are looked at together."""
_MOST_OPERATIONS = 200
"""Between a value and its columns: laws of loops have thousands, which lead to too many columns anyway."""
_ALONG_GROUPS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})


class Pushdown:
    """Extremes of values of one program over some points of each row."""

    def __init__(self, provenance: Provenance, reduced: Callable[[Kind, Value], Later]) -> None:
        """`reduced` is what takes the extreme of a value from which nothing simpler gives it."""
        self._provenance = provenance
        self._reduced = reduced

    def extreme(self, kind: Kind, value: Value) -> Later:
        """The least or greatest `value`, whose last two dimensions are rows and columns."""
        if along_rows(value):
            return lambda: _of_rows(value)
        origin = self._provenance.origin_of(value)
        pushed = self._pushed(kind, origin) if origin else None
        return pushed or self._of_one_column(kind, value) or self._reduced(kind, value)

    def _pushed(self, kind: Kind, origin: Origin) -> Later | None:
        """Through one operation of which a single operand varies along columns."""
        name, operands = origin.name, origin.operands
        if any(size > 1 for value in operands for size in np.shape(value)[:-2]):
            return None
        if name in _INCREASING:
            return self._through(origin, [self.extreme(kind, operands[0])])
        if name == "neg":
            return self._through(origin, [self.extreme(_OPPOSITE[kind], operands[0])])
        if name == "select_n" and along_rows(operands[0]):
            return self._through(origin, [self.extreme(kind, value) for value in operands])
        if len(operands) != 2 or not any(map(along_rows, operands)):
            return None
        one, other = operands
        if name in {"add", "add_any", "max", "min"}:
            return self._through(origin, [self.extreme(kind, one), self.extreme(kind, other)])
        if name == "sub":
            return self._through(origin, [self.extreme(kind, one), self.extreme(_OPPOSITE[kind], other)])
        if name == "mul":
            return self._scaled(kind, origin, *((one, other) if along_rows(other) else (other, one)))
        if name == "div":
            return self._scaled(kind, origin, one, other) if along_rows(other) else self._divided(kind, origin)
        return None

    def _through(self, origin: Origin, operands: list[Later]) -> Later:
        return lambda: _bound(origin, [operand() for operand in operands])

    def _scaled(self, kind: Kind, origin: Origin, value: Value, factor: Value) -> Later:
        """Times or by a number per row; where its sign is not known beforehand, both extremes are at hand."""

        def of(which: Kind) -> Later:
            return self._through(origin, [self.extreme(which, one) for one in origin.operands])

        sign = self._sign(factor)
        if sign:
            return of(kind if sign > 0 else _OPPOSITE[kind])
        same, opposite = of(kind), of(_OPPOSITE[kind])
        return lambda: jnp.where(_of_rows(factor) >= 0, same(), opposite())

    def _divided(self, kind: Kind, origin: Origin) -> Later | None:
        """A number per row of one sign by something of one sign: it decreases with that, or increases if negative."""
        number, value = origin.operands
        sign, (low, high) = self._sign(number), self._provenance.range_of(value)
        by_zero = low == 0 and not self._may_be_zero(number)  # infinite, and nothing is beyond it
        if not sign or not (low > 0 or high < 0 or by_zero):
            return None
        inner = self.extreme(_OPPOSITE[kind] if sign > 0 else kind, value)
        return lambda: _bound(origin, [_of_rows(number), inner()])

    def _may_be_zero(self, value: Value) -> bool:
        low, high = self._provenance.range_of(value)
        return low <= 0 <= high

    def _sign(self, value: Value) -> int:
        """1 where it is nowhere negative, -1 nowhere positive, 0 not known."""
        low, high = self._provenance.range_of(value)
        return 1 if low >= 0 else -1 if high <= 0 else 0

    def _of_one_column(self, kind: Kind, value: Value) -> Later | None:
        """Of what increases, or decreases, with a single column, or with such as go together: its value there."""
        inputs: dict[int, Value] = {}
        if not self._inputs(value, inputs) or not inputs or id(value) in inputs:
            return None
        columns = list(inputs.values())
        together = comonotone(columns) if all(map(is_constant, columns)) else None
        if len(columns) > 1 and together is None:
            return None
        base, moves = (together.base, together.directions) if together else (columns[0], (1,))
        direction = self._direction(value, dict(zip(inputs, moves, strict=True)))
        if direction is None:
            return None
        inner = self._reduced(kind if direction >= 0 else _OPPOSITE[kind], base)

        def found() -> Value:
            there = together.at(inner()) if together else [inner()]
            return _of_rows(self._at(value, dict(zip(inputs, there, strict=True))))

        return found

    def _inputs(self, value: Value, found: dict[int, Value]) -> bool:
        """Collect the inputs that vary along columns; whether few operations, all known here, lead to few of them."""
        waiting, seen = [value], set[int]()
        while waiting and len(found) <= _MOST_TOGETHER and len(seen) <= _MOST_OPERATIONS:
            one = waiting.pop()
            if along_rows(one) or id(one) in seen:
                continue
            seen.add(id(one))
            origin = self._provenance.origin_of(one)
            if origin is not None:
                waiting.extend(reversed(origin.operands))
            elif np.ndim(one) == 2:
                found[id(one)] = one
            else:
                return False
        return not waiting and len(found) <= _MOST_TOGETHER

    def _direction(self, value: Value, known: dict[int, int | None]) -> int | None:
        """1 if it never decreases with the columns, -1 if it never increases, 0 if it does not vary; None: not known.

        `known` holds the columns' own directions.
        """
        if along_rows(value):
            return 0
        if id(value) not in known:
            origin = self._provenance.origin_of(value)
            known[id(value)] = None if origin is None else self._direction_of(origin, known)
        return known[id(value)]

    def _direction_of(self, origin: Origin, known: dict[int, int | None]) -> int | None:
        name, operands = origin.name, origin.operands
        moves = [self._direction(operand, known) for operand in operands]
        if any(move is None for move in moves):
            return None
        directions = [move or 0 for move in moves]
        if name in _INCREASING or name in _ALONG_GROUPS:
            return directions[0]
        if name == "neg":
            return -directions[0]
        if name == "select_n":
            return _agreed(directions[1:]) if directions[0] == 0 and along_rows(operands[0]) else None
        if name in {"add", "add_any", "max", "min"}:
            return _agreed(directions)
        if name == "sub":
            return _agreed([directions[0], -directions[1]])
        if name in {"mul", "div"}:
            return self._direction_of_product(name, operands, directions)
        return None

    def _direction_of_product(self, name: str, operands: Sequence[Value], directions: list[int]) -> int | None:
        if name == "div" and self._may_be_zero(operands[1]):
            return None
        one, other = map(self._sign, operands)
        moves, turned = directions[0], directions[1] if name == "mul" else -directions[1]
        if (moves and not other) or (turned and not one):
            return None
        return _agreed([moves * other, turned * one])

    def _at(self, value: Value, known: dict[int, Value]) -> Value:
        """The value with columns replaced by a number per row."""
        if along_rows(value):
            return value
        if id(value) not in known:
            origin = self._provenance.origin_of(value)
            if origin is None:
                raise ValueError("a value of columns without an origin was taken for one that has it")
            operands = [self._at(operand, known) for operand in origin.operands]
            if origin.name == "reshape":
                known[id(value)] = jnp.reshape(operands[0], (*np.shape(value)[:-2], -1, 1))
            else:
                known[id(value)] = _bound(origin, operands)
        return known[id(value)]


def along_rows(value: Value) -> bool:
    """Whether a value is one number per row, or one altogether."""
    return np.shape(value)[-1:] in {(1,), ()}


def _agreed(directions: list[int]) -> int | None:
    """The direction that all have that move at all."""
    moving = {direction for direction in directions if direction}
    return None if len(moving) > 1 else next(iter(moving), 0)


def _of_rows(value: Value) -> Value:
    """As (rows, 1), or (1, 1)."""
    return jnp.reshape(jnp.asarray(value), (-1, 1))


def _bound(origin: Origin, operands: list[Value]) -> Value:
    """The operation on other operands."""
    if origin.name == "reshape":
        return operands[0]
    return origin.primitive.bind(*jnp.broadcast_arrays(*operands), **origin.params)
