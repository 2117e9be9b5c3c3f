"""The range of values an operation can give, from the ranges of its operands: interval arithmetic over traced laws.

The columns of a grid are tables, so the least and the greatest value of every input are known while tracing. From
them follow signs, bounds that never bind and conditions that always hold. Ranges are a little wider than exact, so that
rounding in float32 cannot leave them. What may be NaN has no finite range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Range = tuple[float, float]
"""(least, greatest), inclusive."""

ANY: Range = (-math.inf, math.inf)
_WIDENING = 1e-5
"""Relative, per operation: some eighty times the spacing of float32 numbers, for sums and products in any order."""


def range_of_array(array: Any) -> Range:
    """The range of a known array; ANY if it is empty or holds NaN.

    >>> range_of_array(np.array([3.0, 1.0]))
    (1.0, 3.0)
    """
    if not np.size(array) or np.any(np.isnan(np.asarray(array, np.float64))):
        return ANY
    return float(np.min(array)), float(np.max(array))


def is_finite(within: Range) -> bool:
    """Whether nothing in the range is infinite; then nothing is NaN either."""
    return all(map(math.isfinite, within))


def range_after(name: str, operands: Sequence[Range], kind: str = "f", *, terms: int = 1, exponent: int = 1) -> Range:
    """The range of an operation's result; ANY for operations it does not know.

    Args:
        name: of the primitive.
        operands: ranges of its operands.
        kind: NumPy's letter for the result's type: f, i or b.
        terms: how many values a sum along axes adds up.
        exponent: of an integer power.

    >>> range_after("sub", [(1.0, 2.0), (0.0, 5.0)])[0] <= -4.0
    True
    >>> range_after("mul", [(0.0, 2.0), (3.0, 5.0)])[0]
    0.0
    >>> range_after("lt", [(0.0, 2.0), (3.0, 5.0)], "b")
    (1.0, 1.0)
    """
    if name not in _KINDS.get(kind, frozenset()) and kind != "f":
        return (0.0, 1.0) if kind == "b" else ANY
    if name == "reduce_sum":
        low, high = operands[0]
        return _widened(min(low, terms * low), max(high, terms * high))
    if name in _SAME:
        return operands[0]
    if name in {"select_n", "concatenate"}:
        cases = operands[name == "select_n" :]
        return min(low for low, _ in cases), max(high for _, high in cases)
    if name == "integer_pow":
        return _power(operands[0], exponent)
    if name in _WHOLE:
        low, high = (_of_bound(_WHOLE[name], bound) for bound in operands[0])
        return low, high
    if name in _INCREASING:
        return _widened(*(_of_bound(_INCREASING[name], bound) for bound in operands[0]))
    rule = _RULES.get(name)
    return ANY if rule is None else rule(*operands)


def _widened(low: float, high: float) -> Range:
    """A sign, once certain, stays certain: zero is not widened. Float32 may overflow to infinity and underflow to 0."""
    if math.isnan(low) or math.isnan(high):
        return ANY
    low, high = min(low, _MOST), max(high, -_MOST)
    low, high = low - _WIDENING * abs(low), high + _WIDENING * abs(high)
    low = 0.0 if 0 < low < _LEAST else -math.inf if low < -_MOST else low
    high = 0.0 if -_LEAST < high < 0 else math.inf if high > _MOST else high
    return low, high


_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def _of_bound(function: Callable[[float], float], bound: float) -> float:
    try:
        return function(bound)
    except OverflowError:
        return bound if math.isinf(bound) else math.inf
    except ValueError:  # the logarithm or root of a number that has none
        return -math.inf if bound <= 0 else bound


def _mul(one: Range, other: Range) -> Range:
    """Zero times infinity is NaN: no range of finite numbers may hold it."""
    if (one == (0.0, 0.0) and not is_finite(other)) or (other == (0.0, 0.0) and not is_finite(one)):
        return ANY
    corners = [0.0 if a == 0 or b == 0 else a * b for a in one for b in other]
    return _widened(min(corners), max(corners))


def _div(one: Range, other: Range) -> Range:
    """By zero it is infinite; a zero among numbers that are not negative has no sign."""
    low, high = other
    if low < 0 <= high or low == high == 0:
        return ANY
    return _mul(one, (0.0 if math.isinf(high) else 1 / high, math.inf if low == 0 else 1 / low))


def _power(one: Range, exponent: int) -> Range:
    if exponent < 0:
        return _div((1.0, 1.0), _power(one, -exponent))
    corners = [_of_bound(lambda bound: bound**exponent, bound) for bound in one]
    inside = [0.0] if exponent % 2 == 0 and one[0] < 0 < one[1] else []
    return _widened(min(corners + inside), max(corners + inside))


def _magnitude(one: Range) -> Range:
    low, high = one
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _decided(always: bool, never: bool) -> Range:
    return (1.0, 1.0) if always else (0.0, 0.0) if never else (0.0, 1.0)


def _ge(one: Range, other: Range) -> Range:
    return _decided(one[0] >= other[1], one[1] < other[0])


def _gt(one: Range, other: Range) -> Range:
    return _decided(one[0] > other[1], one[1] <= other[0])


def _eq(one: Range, other: Range) -> Range:
    return _decided(one[0] == one[1] == other[0] == other[1], one[1] < other[0] or other[1] < one[0])


def _not(one: Range) -> Range:
    return 1 - one[1], 1 - one[0]


_SAME = frozenset(
    {
        "reduce_max", "reduce_min", "reduce_and", "reduce_or", "broadcast_in_dim", "reshape", "squeeze", "slice",
        "stop_gradient", "copy", "copy_p", "gather", "convert_element_type", "transpose",
    }
)  # fmt: skip

_INCREASING: Mapping[str, Callable[[float], float]] = {
    "exp": math.exp, "log": math.log, "log2": math.log2, "log1p": math.log1p, "expm1": math.expm1, "sqrt": math.sqrt,
}  # fmt: skip
_WHOLE: Mapping[str, Callable[[float], float]] = {"floor": math.floor, "ceil": math.ceil}
"""What gives whole numbers, which are exact."""


def _least(*operands: Range) -> Range:
    return min(low for low, _ in operands), min(high for _, high in operands)


def _greatest(*operands: Range) -> Range:
    return max(low for low, _ in operands), max(high for _, high in operands)


_RULES: Mapping[str, Callable[..., Range]] = {
    "add": lambda one, other: _widened(one[0] + other[0], one[1] + other[1]),
    "add_any": lambda one, other: _widened(one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: _widened(one[0] - other[1], one[1] - other[0]),
    "mul": _mul,
    "div": _div,
    "max": _greatest,
    "min": _least,
    "neg": lambda one: (-one[1], -one[0]),
    "abs": _magnitude,
    "square": lambda one: _power(one, 2),
    "ge": _ge,
    "gt": _gt,
    "le": lambda one, other: _ge(other, one),
    "lt": lambda one, other: _gt(other, one),
    "eq": _eq,
    "ne": lambda one, other: _not(_eq(one, other)),
    "not": _not,
    "and": _least,
    "or": _greatest,
}

_CHOICES = _SAME - {"convert_element_type"} | {"select_n", "concatenate"}
_KINDS: Mapping[str, frozenset[str]] = {
    "b": _CHOICES | {"ge", "gt", "le", "lt", "eq", "ne", "not", "and", "or"},
    "i": _CHOICES | {"max", "min"},
}
"""What is known of flags and integers: no bits of numbers, no truncation, no overflow."""
