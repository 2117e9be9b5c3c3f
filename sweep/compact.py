"""Run laws at the smallest shape each term needs: constants folded, neutral terms gone, small terms computed once.

Laws are written as plain broadcasting formulas over all axes. Traced naively, a compiler would recompute a term of
one axis at every point of the grid, and would multiply by neutral ones and add neutral zeros there too. `compact`
re-interprets the traced program: a value keeps dimensions of size 1 wherever it does not vary, concrete inputs are
folded (0*x, 0+x, 1*x, select on a constant, ...), and a small value is materialised before it meets a larger one.
All inputs must be finite: 0*x is taken to be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive

from kvwall.spaces.design import NO_LIMIT

Value: TypeAlias = Any
"""A NumPy array when known while tracing, else a tracer."""
_T = TypeVar("_T")

_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
_ELEMENTWISE = frozenset(
    {
        "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "neg", "abs", "sign", "floor", "ceil", "round",
        "sqrt",
        "rsqrt", "exp", "log", "log1p", "expm1", "pow", "integer_pow", "square", "eq", "ne", "lt", "le", "gt", "ge",
        "and", "or",
        "not", "xor", "select_n", "convert_element_type", "clamp", "is_finite", "stop_gradient", "copy", "copy_p",
        "bitcast_convert_type",
    }
)  # fmt: skip


def compact(laws: Callable[..., _T]) -> Callable[..., _T]:
    """The same function with every array leaf at its smallest broadcastable shape; use under `jax.jit`.

    Concrete NumPy leaves of the arguments are constants to fold; all others are traced. Results that turn out to be
    constant come back as NumPy arrays.
    """

    def compacted(*arguments: Any) -> _T:
        leaves, tree = jax.tree.flatten(arguments)
        traced = [leaf for leaf in leaves if not isinstance(leaf, np.ndarray | np.generic)]

        def of_traced(*given: Any) -> _T:
            rest = iter(given)
            merged = [leaf if isinstance(leaf, np.ndarray | np.generic) else next(rest) for leaf in leaves]
            return laws(*jax.tree.unflatten(tree, merged))

        program, shape = jax.make_jaxpr(of_traced, return_shape=True)(*traced)
        results = _Interpreter().run(program, traced)
        found: _T = jax.tree.unflatten(jax.tree.structure(shape), results)
        return found

    return compacted


class _Interpreter:
    """Evaluates a traced program on compact values. Values that meet larger ones are materialised once."""

    def __init__(self) -> None:
        self._materialised: dict[int, tuple[Value, Value]] = {}
        self._reciprocals: dict[int, tuple[Value, Value]] = {}
        self._computed: dict[Any, tuple[Sequence[Value], Value]] = {}

    def run(self, program: ClosedJaxpr, arguments: Sequence[Value]) -> list[Value]:
        return self._evaluate(program.jaxpr, [_known(const) for const in program.consts], arguments)

    def _evaluate(self, program: Jaxpr, consts: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
        found: dict[Any, Value] = dict(zip(program.constvars, consts, strict=True))
        found.update(zip(program.invars, arguments, strict=True))

        def read(variable: Any) -> Value:
            return (
                np.asarray(variable.val, _shaped(variable).dtype) if isinstance(variable, Literal) else found[variable]
            )

        for equation in program.eqns:
            results = self._equation(equation, [read(variable) for variable in equation.invars])
            found.update(zip(equation.outvars, results, strict=True))
        return [read(variable) for variable in program.outvars]

    def _equation(self, equation: JaxprEqn, values: list[Value]) -> Sequence[Value]:
        name = equation.primitive.name
        if name in _CALLS:
            inner = equation.params[_CALLS[name]]
            return self._evaluate(inner.jaxpr, [_known(const) for const in inner.consts], values)
        if name == "scan":
            return self._repeated(equation, values)
        if name == "broadcast_in_dim":
            return [_spread(equation, values[0])]
        if name == "slice":
            return [_slice(equation, values[0])]
        if name in _ELEMENTWISE:
            simpler = _simplified(equation, values)
            return [self._shared(equation, values) if simpler is None else simpler]
        return self._general(equation, values)

    def _repeated(self, equation: JaxprEqn, values: list[Value]) -> Sequence[Value]:
        """A loop over a state, unrolled: each round on compact values, so that what is constant is folded."""
        body, fixed = equation.params["jaxpr"], equation.params["num_consts"]
        state: Sequence[Value] = values[fixed:]
        for _ in range(equation.params["length"]):
            state = self._evaluate(body.jaxpr, [_known(const) for const in body.consts], [*values[:fixed], *state])
        return state

    def _shared(self, equation: JaxprEqn, values: list[Value]) -> Value:
        """The result of an elementwise operation, computed once however often the program asks for it."""
        key = (equation.primitive.name, str(equation.params), *map(_identity, values))
        if key not in self._computed:
            # the operands are kept too, so that their ids are not reused
            self._computed[key] = (values, self._elementwise(equation, values))
        return self._computed[key][1]

    def _elementwise(self, equation: JaxprEqn, values: list[Value]) -> Value:
        shape = np.broadcast_shapes(*(np.shape(value) for value in values))
        if equation.primitive.name == "div" and not _constant(values[1]) and np.shape(values[1]) != shape:
            # one division per small value instead of one per point
            inverse = self._once(self._reciprocals, values[1], lambda value: 1 / value)
            return self._elementwise_of(lax.mul_p, {}, [values[0], inverse], shape)
        return self._elementwise_of(equation.primitive, equation.params, values, shape)

    def _elementwise_of(
        self, primitive: Primitive, params: Mapping[str, Any], values: list[Value], shape: tuple[int, ...]
    ) -> Value:
        if all(_constant(value) for value in values):
            with jax.ensure_compile_time_eval():
                return np.asarray(primitive.bind(*(np.broadcast_to(value, shape) for value in values), **params))
        return primitive.bind(*(self._grown(value, shape) for value in values), **params)

    def _grown(self, value: Value, shape: tuple[int, ...]) -> Value:
        if np.shape(value) == shape:
            return value
        if not _constant(value):
            value = self._once(self._materialised, value, lax.optimization_barrier)
        aligned = (1,) * (len(shape) - np.ndim(value)) + np.shape(value)
        return lax.broadcast_in_dim(lax.reshape(value, aligned), shape, tuple(range(len(shape))))

    def _once(self, cache: dict[int, tuple[Value, Value]], value: Value, make: Callable[[Value], Value]) -> Value:
        """`make(value)`, made once per value; the value is kept beside it so that its id is not reused."""
        if id(value) not in cache:
            cache[id(value)] = (value, make(value))
        return cache[id(value)][1]

    def _general(self, equation: JaxprEqn, values: list[Value]) -> Sequence[Value]:
        """Any other operation: only the dimensions it works on are grown to their traced size."""
        axes = equation.params.get("axes", equation.params.get("dimensions"))
        constant = all(_constant(value) for value in values)
        grown = []
        for variable, value in zip(equation.invars, values, strict=True):
            full = _shaped(variable).shape
            kept = range(len(full)) if axes is None else axes
            shape = tuple(n if i in kept else np.shape(value)[i] for i, n in enumerate(full))
            grown.append(np.broadcast_to(value, shape) if constant else self._grown(value, shape))
        if constant:
            with jax.ensure_compile_time_eval():
                results = equation.primitive.bind(*grown, **equation.params)
                results = results if equation.primitive.multiple_results else [results]
                return [np.asarray(result) for result in results]
        results = equation.primitive.bind(*grown, **equation.params)
        return results if equation.primitive.multiple_results else [results]


def _identity(value: Value) -> Any:
    return (value.dtype.str, value.shape, value.tobytes()) if _constant(value) else id(value)


def _shaped(variable: Any) -> Any:
    """The shape and dtype a traced variable has in the program."""
    return variable.aval


def _constant(value: Value) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _known(const: Any) -> Value:
    return np.asarray(const) if not isinstance(const, jax.core.Tracer) else const


def _spread(equation: JaxprEqn, value: Value) -> Value:
    """A broadcast, put off: new dimensions get size 1, grown ones stay 1."""
    shape = [1] * len(equation.params["shape"])
    for place, size in zip(equation.params["broadcast_dimensions"], np.shape(value), strict=True):
        shape[place] = size
    return value.reshape(shape) if np.ndim(value) else _reshaped(value, shape)


def _reshaped(value: Value, shape: Sequence[int]) -> Value:
    return np.reshape(value, shape) if _constant(value) else lax.reshape(value, shape)


def _slice(equation: JaxprEqn, value: Value) -> Value:
    """A slice; along dimensions where the value does not vary any slice is the value itself."""
    cuts = []
    strides = equation.params["strides"] or (1,) * np.ndim(value)
    for size, start, stop, stride in zip(
        np.shape(value), equation.params["start_indices"], equation.params["limit_indices"], strides, strict=True
    ):
        cuts.append(slice(0, 1) if size == 1 else slice(start, stop, stride))
    return value[tuple(cuts)]


def _never_binds(value: Value) -> bool:
    """Whether a value is above whatever it is compared with in a minimum; its negative, below in a maximum."""
    return _constant(value) and value.size > 0 and bool(np.all(value >= NO_LIMIT))


def _negative(value: Value) -> Value:
    return -value if _constant(value) and value.dtype.kind == "f" else value


def _is(value: Value, number: float) -> bool:
    return _constant(value) and value.size > 0 and bool(np.all(value == number))


def _simplified(equation: JaxprEqn, values: list[Value]) -> Value | None:
    """What the operation comes to without doing it, at the rank the program expects; or None."""
    found = _simpler(equation, values)
    rank = len(_shaped(equation.outvars[0]).shape)
    if found is None or np.ndim(found) == rank:
        return found
    return _reshaped(found, (1,) * (rank - np.ndim(found)) + np.shape(found))


def _simpler(equation: JaxprEqn, values: list[Value]) -> Value | None:
    name, result = equation.primitive.name, _shaped(equation.outvars[0])
    first = values[0]
    if name == "select_n" and _constant(first) and first.size == 1:
        return values[1 + int(first.reshape(()))]
    if name == "convert_element_type" and not _constant(first) and first.dtype == equation.params["new_dtype"]:
        return first
    if len(values) != 2:
        return None
    second = values[1]
    zero = np.zeros((1,) * len(result.shape), result.dtype)
    if (name == "mul" and (_is(first, 0) or _is(second, 0))) or (name == "div" and _is(first, 0)):
        return zero
    if (name == "or" and (_is(first, 1) or _is(second, 1))) and zero.dtype == bool:
        return np.ones_like(zero)
    if (name == "and" and (_is(first, 0) or _is(second, 0))) and zero.dtype == bool:
        return zero
    if name == "min" and (_never_binds(first) or _never_binds(second)):
        return second if _never_binds(first) else first
    if name == "max" and (_never_binds(_negative(first)) or _never_binds(_negative(second))):
        return second if _never_binds(_negative(first)) else first
    neutral = {"mul": 1, "div": 1, "add": 0, "add_any": 0, "sub": 0, "or": 0, "and": 1}.get(name)
    if neutral is None or (name == "and" and zero.dtype != bool):
        return None
    if _is(second, neutral):
        return first
    return second if _is(first, neutral) and name not in {"div", "sub"} else None
