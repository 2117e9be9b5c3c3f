"""What an operation comes to without doing it: neutral terms, bounds that never bind, conditions that always hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import lax
from jax.extend.core import Primitive

from kvwall.spaces.design import NO_LIMIT
from kvwall.sweep.provenance import Provenance, Value, is_constant
from kvwall.sweep.ranges import is_finite, range_after

Apply: TypeAlias = Callable[[Primitive, Mapping[str, Any], Sequence[Value]], Value]
"""Does an elementwise operation, folding it where that is possible."""


def folded(
    primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], provenance: Provenance, apply: Apply
) -> Value | None:
    """The result of an elementwise operation if it is a constant, an operand, or simpler operations; or None."""
    values = [_settled(value, provenance) for value in values]
    name, first = primitive.name, values[0]
    if name == "convert_element_type":
        return first if not is_constant(first) and first.dtype == params["new_dtype"] else None
    if name == "select_n":
        return _chosen(values, apply)
    if len(values) != 2:
        return None
    if name in _COMPARISONS:
        return _decided(name, values, provenance) or _compared_inside(primitive, values, provenance, apply)
    if name in {"min", "max"}:
        return _bounded(name, values, provenance)
    return _neutral(name, values)


def _settled(value: Value, provenance: Provenance) -> Value:
    """A flag that is the same all over the grid as a constant."""
    if is_constant(value) or value.dtype != bool:
        return value
    low, high = provenance.range_of(value)
    return np.full((1,) * np.ndim(value), bool(low)) if low == high else value


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def _flag(truth: bool) -> Value:
    return np.asarray(truth)


def _decided(name: str, values: Sequence[Value], provenance: Provenance) -> Value | None:
    """A comparison whose operands' ranges decide it, or of a number with itself."""
    ranges = [provenance.range_of(value) for value in values]
    if values[0] is values[1] and is_finite(ranges[0]):
        return _flag(name in {"eq", "le", "ge"})
    low, high = range_after(name, ranges, "b")
    return _flag(bool(low)) if low == high else None


def _compared_inside(
    primitive: Primitive, values: Sequence[Value], provenance: Provenance, apply: Apply
) -> Value | None:
    """A code compared with a number, where a choice made the code: the same choice between comparisons."""
    code, number = values
    if primitive.name != "eq" or is_constant(code) or not is_constant(number) or code.dtype.kind != "i":
        return None
    origin = provenance.origin_of(code)
    if origin is None:
        return None
    if origin.name == "select_n":
        flags = [apply(primitive, {}, [one, number]) for one in origin.operands[1:]]
        return apply(origin.primitive, {}, [origin.operands[0], *flags])
    if origin.name == "add" and is_constant(origin.operands[1]):
        return apply(primitive, {}, [origin.operands[0], number - origin.operands[1]])
    return None


def _chosen(values: Sequence[Value], apply: Apply) -> Value | None:
    """A choice on a constant, between equals, or between a flag and a constant one."""
    which, *cases = values
    if is_constant(which) and which.size == 1:
        return cases[int(which.reshape(()))]
    if len(cases) != 2 or cases[0] is cases[1]:
        return cases[0] if len(cases) == 2 else None
    if cases[0].dtype != bool:
        return None
    off, on = cases
    if _is(off, 0):
        return apply(lax.and_p, {}, [which, on])
    if _is(on, 1):
        return apply(lax.or_p, {}, [which, off])
    if _is(on, 0):
        return apply(lax.and_p, {}, [apply(lax.not_p, {}, [which]), off])
    if _is(off, 1):
        return apply(lax.or_p, {}, [apply(lax.not_p, {}, [which]), on])
    return None


def _bounded(name: str, values: Sequence[Value], provenance: Provenance) -> Value | None:
    """A minimum or maximum that is always the same operand."""
    first, second = values
    least, greatest = (second, first) if name == "max" else (first, second)
    if _never_binds(name, first) or _never_binds(name, second):
        return second if _never_binds(name, first) else first
    (low, high), (other_low, other_high) = provenance.range_of(first), provenance.range_of(second)
    if low >= other_high:
        return greatest
    return least if other_low >= high else None


def _never_binds(name: str, value: Value) -> bool:
    """Whether a value is no limit at all: beyond whatever it is compared with."""
    if not is_constant(value) or value.dtype.kind != "f" or not value.size:
        return False
    return bool(np.all(value >= NO_LIMIT if name == "min" else value <= -NO_LIMIT))


def _neutral(name: str, values: Sequence[Value]) -> Value | None:
    """Sums, products, conjunctions and disjunctions with constants that leave or decide them."""
    first, second = values
    flags = first.dtype == bool
    if (name == "mul" and (_is(first, 0) or _is(second, 0))) or (name == "div" and _is(first, 0)):
        return np.zeros((), first.dtype)
    if flags and ((name == "or" and (_is(first, 1) or _is(second, 1))) or (name in {"and", "or"} and first is second)):
        return first if first is second else _flag(True)
    if flags and name == "and" and (_is(first, 0) or _is(second, 0)):
        return _flag(False)
    neutral = {"mul": 1, "div": 1, "add": 0, "add_any": 0, "sub": 0, "or": 0, "and": 1}.get(name)
    if neutral is None or (name == "and" and not flags):
        return None
    if _is(second, neutral):
        return first
    return second if _is(first, neutral) and name not in {"div", "sub"} else None


def _is(value: Value, number: float) -> bool:
    return is_constant(value) and value.size > 0 and bool(np.all(value == number))
