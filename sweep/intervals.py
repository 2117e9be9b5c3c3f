"""Bounds of laws over boxes of designs: a traced program evaluated on intervals instead of numbers.

Every operation gives the least and the greatest value it can take when its operands range over their intervals. A
floating-point operation is monotone where the real one is, so the bounds hold for the numbers that this very program
computes: an interval of one design gives its value, an interval of many contains the value of each of them. Only
functions that are approximated (exp, log, pow) need widening. What is not known is NaN or infinite, never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from kvwall.sweep.operations import CALLS

Array: TypeAlias = Any


@dataclass(frozen=True)
class Interval:
    """Least and greatest value; of a flag, whether it surely and whether it possibly holds."""

    low: Array
    high: Array
    positive: bool = False
    """Known while tracing: never below zero."""

    @property
    def known(self) -> bool:
        """Whether it is one number for each design."""
        return self.low is self.high


Rule: TypeAlias = Callable[[JaxprEqn, Sequence[Interval]], Interval]

_ROUNDING = 4e-16
"""Relative error of an approximated function, with room to spare."""
_RISING_LAWS: Mapping[str, float] = {"cube_root": 1e-14}
"""Functions with a derivative of their own that rise though their operations do not; the relative error of each."""


def bounds(program: ClosedJaxpr, arguments: Sequence[Interval]) -> list[Interval]:
    """The intervals of a program's results; to be traced.

    Raises NotImplementedError for an operation without a rule.
    """
    return _evaluate(program.jaxpr, [_constant(const) for const in program.consts], arguments)


def _constant(value: Array) -> Interval:
    positive = bool(np.all(np.asarray(value) >= 0)) if isinstance(value, np.ndarray | np.generic) else False
    return Interval(value, value, positive)


def _evaluate(program: Jaxpr, consts: Sequence[Interval], arguments: Sequence[Interval]) -> list[Interval]:
    found: dict[Any, Interval] = dict(zip(program.constvars, consts, strict=True))
    found.update(zip(program.invars, arguments, strict=True))

    def read(variable: Any) -> Interval:
        if isinstance(variable, Literal):
            return _constant(np.asarray(variable.val, variable.aval.dtype))  # type: ignore[attr-defined]
        return found[variable]

    for equation in _needed(program):
        found.update(zip(equation.outvars, _equation(equation, [read(v) for v in equation.invars]), strict=True))
    return [read(variable) for variable in program.outvars]


def _needed(program: Jaxpr) -> list[JaxprEqn]:
    """The equations that results follow from, in order."""
    wanted = {variable for variable in program.outvars if not isinstance(variable, Literal)}
    chosen = []
    for equation in reversed(program.eqns):
        if wanted.intersection(equation.outvars):
            chosen.append(equation)
            wanted.update(variable for variable in equation.invars if not isinstance(variable, Literal))
    return chosen[::-1]


def _equation(equation: JaxprEqn, values: Sequence[Interval]) -> Sequence[Interval]:
    name = equation.primitive.name
    if name in CALLS:
        inner = equation.params[CALLS[name]]
        law = inner.jaxpr.debug_info.func_name
        if law in _RISING_LAWS and not values[0].known:
            return [_rising_law(inner, values[0], _RISING_LAWS[law])]
        return _evaluate(inner.jaxpr, [_constant(const) for const in inner.consts], values)
    if name == "scan":
        return _repeated(equation, values)
    if all(value.known for value in values):
        return [_of_known(equation, values)]
    if name not in _RULES:
        raise NotImplementedError(f"no bounds are known for the operation {name}: give it a rule in sweep/intervals.py")
    return [_RULES[name](equation, values)]


def _repeated(equation: JaxprEqn, values: Sequence[Interval]) -> Sequence[Interval]:
    """A loop over a state, unrolled."""
    body = equation.params["jaxpr"]
    fixed = len(values) - len(body.jaxpr.outvars)  # what comes back is the state, and nothing else
    state = list(values[fixed:])
    for _ in range(equation.params["length"]):
        consts = [_constant(const) for const in body.consts]
        state = _evaluate(body.jaxpr, consts, [*values[:fixed], *state])
    return state


def _bind(equation: JaxprEqn, *operands: Array) -> Array:
    found = equation.primitive.bind(*operands, **equation.params)
    if equation.primitive.multiple_results:
        (found,) = found
    return found


def _of_known(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    found = _bind(equation, *(value.low for value in values))
    return Interval(found, found, _is_positive(equation, values))


_KEEP_SIGN = frozenset(
    {
        "add", "add_any", "mul", "div", "max", "floor", "ceil", "round", "sqrt", "broadcast_in_dim", "reshape", "slice",
        "squeeze", "concatenate", "reduce_sum", "reduce_max", "reduce_min", "min", "rem", "cumsum", "pow", "select_n",
        "convert_element_type", "transpose", "log1p", "expm1", "copy", "integer_pow", "stack", "sign", "abs",
        "optimization_barrier", "stop_gradient", "expand_dims",
    }
)  # fmt: skip
"""Operations whose result is not negative where no operand is."""


def _is_positive(equation: JaxprEqn, values: Sequence[Interval]) -> bool:
    name = equation.primitive.name
    dtype = equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    if np.dtype(dtype).kind == "b" or name in {"exp", "abs", "square"}:
        return True
    if name == "max":
        return any(value.positive for value in values)
    if name == "select_n":
        return all(value.positive for value in values[1:])
    return name in _KEEP_SIGN and all(value.positive for value in values)


def _rising(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """An operation that never falls when an operand grows: the ends give the ends."""
    low = _bind(equation, *(value.low for value in values))
    high = _bind(equation, *(value.high for value in values))
    return Interval(low, high, _is_positive(equation, values))


def _widened(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """A rising function that is approximated."""
    found = _rising(equation, values)
    return _apart(values, found.low, found.high, found.positive)


def _rising_law(program: ClosedJaxpr, operand: Interval, rounding: float) -> Interval:
    """A rising function of one operand, evaluated at both ends."""
    low, high = (bounds(program, [Interval(end, end, operand.positive)])[0].low for end in (operand.low, operand.high))
    return _apart([operand], low, high, operand.positive, rounding)


def _apart(
    values: Sequence[Interval], low: Array, high: Array, positive: bool, rounding: float = _ROUNDING
) -> Interval:
    """Ends moved apart by the error of an approximation, but for single designs, whose value they are."""
    single = reduce(jnp.logical_and, (value.low == value.high for value in values if not value.known))
    below, above = low - rounding * jnp.abs(low), high + rounding * jnp.abs(high)
    return Interval(jnp.where(single, low, below), jnp.where(single, high, above), positive)


def _falling(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    low, high = _bind(equation, values[0].high), _bind(equation, values[0].low)
    return Interval(low, high)


def _difference(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    left, right = values
    return Interval(left.low - right.high, left.high - right.low)


def _corners(operation: Callable[[Array, Array], Array], left: Interval, right: Interval) -> tuple[Array, Array]:
    """Extremes of an operation that is monotone in each operand."""
    lefts = (left.low,) if left.known else (left.low, left.high)
    rights = (right.low,) if right.known else (right.low, right.high)
    corners = [operation(a, b) for a, b in product(lefts, rights)]
    return reduce(jnp.minimum, corners), reduce(jnp.maximum, corners)


def _product(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    left, right = values
    if left.positive and right.positive:
        return Interval(left.low * right.low, left.high * right.high, True)
    if left.positive or right.positive:
        factor, other = (left, right) if left.positive else (right, left)
        low = jnp.where(other.low < 0, factor.high, factor.low) * other.low
        return Interval(low, jnp.where(other.high < 0, factor.low, factor.high) * other.high)
    return Interval(*_corners(jnp.multiply, left, right))


def _quotient(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """A divisor that may be zero makes the quotient unknown on the side where it may be infinite."""
    left, right = values
    if left.positive and right.positive:
        low, high = left.low / right.high, left.high / right.low  # x / 0 is infinite, 0 / 0 unknown
        return Interval(low, high, True)
    low, high = _corners(jnp.divide, left, right)
    crosses = jnp.logical_and(right.low <= 0, right.high >= 0)
    crosses = jnp.logical_and(crosses, jnp.logical_or(left.low < left.high, right.low < right.high))
    return Interval(jnp.where(crosses, -jnp.inf, low), jnp.where(crosses, jnp.inf, high))


def _remainder(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """Of numbers that are not negative; anything below the divisor where they are not single numbers."""
    left, right = values
    if not (left.positive and right.positive):
        raise NotImplementedError("no bounds are known for the remainder of negative numbers")
    own = _bind(equation, left.low, right.low)
    single = jnp.logical_and(left.low == left.high, right.low == right.high)
    zero = jnp.zeros_like(own)
    return Interval(jnp.where(single, own, zero), jnp.where(single, own, right.high), True)


def _power(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """Of a base that is not negative; unknown where it may be."""
    base, exponent = values
    low, high = _corners(jnp.power, base, exponent)
    if base.positive:
        return _apart(values, low, high, positive=True)
    unknown = jnp.logical_and(base.low < 0, base.low < base.high)
    return _apart(values, jnp.where(unknown, jnp.nan, low), jnp.where(unknown, jnp.nan, high), positive=False)


def _integer_power(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    (base,), exponent = values, equation.params["y"]
    low, high = _bind(equation, base.low), _bind(equation, base.high)
    if base.positive:
        return Interval(low, high, True) if exponent > 0 else Interval(high, low, True)
    if exponent > 0:
        return Interval(low, high) if exponent % 2 else _even(base, low, high)
    unknown = jnp.logical_and(jnp.logical_and(base.low <= 0, base.high >= 0), base.low < base.high)
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)
    return Interval(jnp.where(unknown, -jnp.inf, least), jnp.where(unknown, jnp.inf, most))


def _even_rule(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    (base,) = values
    return _even(base, _bind(equation, base.low), _bind(equation, base.high))


def _even(base: Interval, low: Array, high: Array) -> Interval:
    """A function that falls to its least value at zero and rises from there, out of its values at the ends."""
    crosses = jnp.logical_and(base.low < 0, base.high > 0)
    return Interval(jnp.where(crosses, jnp.zeros_like(low), jnp.minimum(low, high)), jnp.maximum(low, high), True)


def _flag(sure: Array, possible: Array) -> Interval:
    return Interval(sure, possible, True)


def _less(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    left, right = values
    return _flag(left.high < right.low, jnp.logical_not(left.low >= right.high))


def _at_most(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    left, right = values
    return _flag(left.high <= right.low, jnp.logical_not(left.low > right.high))


def _swapped(rule: Rule) -> Rule:
    return lambda equation, values: rule(equation, values[::-1])


def _equal(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    left, right = values
    if left.low.dtype == bool:
        alike = jnp.logical_and(left.low == left.high, right.low == right.high)
        same = left.low == right.low
        return _flag(jnp.logical_and(alike, same), jnp.logical_or(jnp.logical_not(alike), same))
    sure = jnp.logical_and(left.low == right.high, left.high == right.low)
    apart = jnp.logical_or(left.low > right.high, left.high < right.low)
    return _flag(sure, jnp.logical_not(apart))


def _unequal(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    return _opposite(_equal(equation, values))


def _opposite(flag: Interval) -> Interval:
    return _flag(jnp.logical_not(flag.high), jnp.logical_not(flag.low))


def _negation(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    return _opposite(values[0])


def _choice(equation: JaxprEqn, values: Sequence[Interval]) -> Interval:
    """One of the cases; all that are possible where the choice is not known."""
    which, cases = values[0], values[1:]
    positive = all(case.positive for case in cases)
    if which.known:
        low = _bind(equation, which.low, *(case.low for case in cases))
        return Interval(low, _bind(equation, which.low, *(case.high for case in cases)), positive)
    if len(cases) != 2:
        raise NotImplementedError("no bounds are known for a choice among many that depends on a number")
    no, yes = cases
    sure, never = which.low, jnp.logical_not(which.high)
    if no.low.dtype == bool:
        least, most = jnp.logical_and(no.low, yes.low), jnp.logical_or(no.high, yes.high)
    else:
        least, most = jnp.minimum(no.low, yes.low), jnp.maximum(no.high, yes.high)
    return Interval(
        jnp.where(sure, yes.low, jnp.where(never, no.low, least)),
        jnp.where(sure, yes.high, jnp.where(never, no.high, most)),
        positive,
    )


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "add", "add_any", "max", "min", "floor", "ceil", "round", "sqrt", "sign", "and", "or", "clamp", "cumsum",
            "broadcast_in_dim", "reshape", "slice", "squeeze", "concatenate", "transpose", "stack", "expand_dims",
            "reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "convert_element_type", "copy",
            "stop_gradient", "optimization_barrier", "copy_p",
        ),
        _rising,
    ),
    **dict.fromkeys(("exp", "log", "log2", "log1p", "expm1"), _widened),
    "neg": _falling,
    "not": _negation,
    "sub": _difference,
    "mul": _product,
    "div": _quotient,
    "rem": _remainder,
    "pow": _power,
    "integer_pow": _integer_power,
    **dict.fromkeys(("square", "abs"), _even_rule),
    "lt": _less,
    "le": _at_most,
    "gt": _swapped(_less),
    "ge": _swapped(_at_most),
    "eq": _equal,
    "ne": _unequal,
    "select_n": _choice,
}  # fmt: skip
"""Operation -> its rule, where an operand is not one number."""
