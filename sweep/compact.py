"""Run laws at the smallest shape each term needs: constants folded, neutral terms gone, small terms computed once.

Laws are written as plain broadcasting formulas over all axes. Traced naively, a compiler would recompute a term of
one axis at every point of the grid, and would multiply by neutral ones and add neutral zeros there too. `compact`
re-interprets the traced program: a value keeps dimensions of size 1 wherever it does not vary, concrete inputs are
folded (0*x, 0+x, 1*x, select on a constant, ...), and a small value is materialised before it meets a larger one.
All inputs must be finite: 0*x is taken to be 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial, reduce
from itertools import accumulate
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive

from kvwall.sweep import constants
from kvwall.sweep.folding import folded
from kvwall.sweep.operations import ALONG_LAYERS, CALLS, CHOICES, ELEMENTWISE
from kvwall.sweep.provenance import Origin, Provenance, Value, identity, is_constant
from kvwall.sweep.ranges import is_finite, range_after
from kvwall.sweep.separable import Separable
from kvwall.sweep.traced import LENGTHS, Traced, traced

_T = TypeVar("_T")
_LEAST_RANK = 2
"""Rows and columns."""
_MOST_LAYERS = 8
"""Of a leading dimension of laws (groups of layers) that are written out."""


def compact(laws: Callable[..., _T], provenance: Provenance | None = None) -> Callable[..., _T]:
    """The same function with every array leaf at its smallest broadcastable shape; use under `jax.jit`.

    Concrete NumPy leaves of the arguments are constants to fold; all others are traced. Results that turn out to be
    constant come back as NumPy arrays. `provenance` may hold the ranges of leaves; it is given what is found of values.
    """

    def compacted(*arguments: Any) -> _T:
        return Interpreter(provenance or Provenance()).call(laws, *arguments)

    return compacted


class Interpreter:
    """Evaluates traced programs on compact values. Values that meet larger ones are materialised once."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._materialised: dict[int, tuple[Value, Value]] = {}
        self._reciprocals: dict[int, tuple[Value, Value]] = {}
        self._computed: dict[Any, tuple[Sequence[Value], Value]] = {}
        self._any_length: frozenset[int] = frozenset()
        """Sizes that stand for any while a program that serves all lengths is evaluated."""
        self._separable = Separable(provenance, partial(self._applied, anew=False))

    def call(self, laws: Callable[..., _T], *arguments: Any) -> _T:
        """The laws' results for these arguments, of which NumPy arrays are constants."""
        leaves, tree = jax.tree.flatten(arguments)
        fixed = [is_constant(leaf) for leaf in leaves]
        given = [leaf for leaf, constant in zip(leaves, fixed, strict=True) if not constant]
        program, structure = traced(lambda merged: laws(*merged), tree, leaves, fixed, given)
        found: _T = self._results(program, structure, given)
        return found

    def call_traced(self, laws: Traced, argument: Any, rank: int, *options: Hashable) -> Any:
        """The results of laws that are traced once for arrays of any length, on a grid of so many dimensions."""
        self._any_length = frozenset(LENGTHS[:rank])
        try:
            return self._results(*laws.program(argument, rank, *options))
        finally:
            self._any_length = frozenset()

    def _results(self, program: ClosedJaxpr, structure: Any, arguments: Sequence[Value]) -> Any:
        consts = [_known(const) for const in program.consts]
        return jax.tree.unflatten(structure, self._evaluate(program.jaxpr, consts, arguments))

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
        if name in CALLS:
            inner = equation.params[CALLS[name]]
            return self._evaluate(inner.jaxpr, [_known(const) for const in inner.consts], values)
        if name == "scan":
            return self._repeated(equation, values)
        if name == "broadcast_in_dim":
            return [self._spread(equation, values[0])]
        if name == "slice":
            return [self._slice(equation, values[0])]
        if name == "reshape":
            return [self._restated(equation, values[0])]
        if name in ELEMENTWISE:
            return [self._applied(equation.primitive, equation.params, values)]
        return self._general(equation, values)

    def _repeated(self, equation: JaxprEqn, values: list[Value]) -> Sequence[Value]:
        """A loop over a state, unrolled: each round on compact values, so that what is constant is folded."""
        body = equation.params["jaxpr"]
        fixed = len(values) - len(body.jaxpr.outvars)  # what comes back is the state, and nothing else
        state: Sequence[Value] = values[fixed:]
        for _ in range(equation.params["length"]):
            state = self._evaluate(body.jaxpr, [_known(const) for const in body.consts], [*values[:fixed], *state])
        return state

    def _applied(
        self, primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], anew: bool = True
    ) -> Value:
        """The result of an elementwise operation, at the highest rank of its operands.

        `anew`: whether products and sums may be written in another order.
        """
        simpler = folded(primitive, params, values, self._provenance, self._applied)
        if simpler is None:
            return self._shared(primitive, params, values, lambda: self._elementwise(primitive, params, values, anew))
        rank = max(np.ndim(value) for value in values)
        return self._reshaped(simpler, (1,) * (rank - np.ndim(simpler)) + np.shape(simpler))

    def _shared(
        self, primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], make: Callable[[], Value]
    ) -> Value:
        """The result of an operation, computed once however often the program asks for it."""
        key = (primitive.name, str(params), *map(identity, values))
        if key not in self._computed:
            # the operands are kept too, so that their ids are not reused
            self._computed[key] = (values, make())
        return self._computed[key][1]

    def _elementwise(
        self, primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], anew: bool = True
    ) -> Value:
        shape = np.broadcast_shapes(*(np.shape(value) for value in values))
        if primitive.name == "div" and np.size(values[1]) < math.prod(shape) and not _is_number(values[1]):
            # one division per small value instead of one per point
            inverse = self._once(self._reciprocals, values[1], self._inverse)
            return self._elementwise_of(lax.mul_p, {}, [values[0], inverse], shape, anew)
        return self._elementwise_of(primitive, params, values, shape, anew)

    def _inverse(self, value: Value) -> Value:
        return self._elementwise_of(lax.div_p, {}, [np.ones((), value.dtype), value], np.shape(value))

    def _elementwise_of(
        self,
        primitive: Primitive,
        params: Mapping[str, Any],
        values: Sequence[Value],
        shape: tuple[int, ...],
        anew: bool = True,
    ) -> Value:
        if all(is_constant(value) for value in values):
            return constants.elementwise(primitive, params, values, shape)
        if len(shape) > _LEAST_RANK and shape[0] == 1:
            # of one rank whatever the laws' own dimensions, or a compiler computes a term once for every rank
            flat = [self._reshaped(one, np.shape(one)[np.ndim(one) == len(shape) :]) for one in values]
            return self._reshaped(self._elementwise_of(primitive, params, flat, shape[1:], anew), shape)
        if len(shape) == _LEAST_RANK + 1 and shape[0] <= _MOST_LAYERS and min(shape) > 1:
            return self._layered(primitive, params, values, shape)
        if anew and len(shape) == _LEAST_RANK and min(shape) > 1:
            separated = self._separable.result(primitive.name, values)
            if separated is not None and np.shape(separated) == shape:
                return separated
        grown = [self._grown(value, shape) for value in values]
        finite = all(is_finite(self._provenance.range_of(value)) for value in values)
        if primitive.name in CHOICES and finite:  # no NaN to propagate, which takes three instructions instead of one
            first, second = grown
            result = lax.select(CHOICES[primitive.name].bind(first, second), first, second)
        else:
            result = primitive.bind(*grown, **params)
        self._record(result, primitive, params, values)
        return result

    def _layered(
        self, primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], shape: tuple[int, ...]
    ) -> Value:
        """Layer by layer: what is written out is fused, where an array of layers would be kept in memory."""
        layers = [
            self._elementwise_of(primitive, params, [self._layer(value, place) for value in values], (1, *shape[1:]))
            for place in range(shape[0])
        ]
        result = lax.concatenate(layers, 0)
        self._record(result, lax.concatenate_p, {}, layers)
        return result

    def _layer(self, value: Value, place: int) -> Value:
        if np.ndim(value) <= _LEAST_RANK or np.shape(value)[0] == 1:
            return value
        if is_constant(value):
            return value[place : place + 1]
        origin = self._provenance.origin_of(value)
        if origin and origin.name == "concatenate":
            return origin.operands[place]

        def make() -> Value:
            result = lax.slice_in_dim(value, place, place + 1)
            self._provenance.record(result, None, self._provenance.range_of(value))
            return result

        return self._shared(lax.slice_p, {"place": place}, [value], make)

    def _record(
        self, result: Value, primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], terms: int = 1
    ) -> None:
        within = range_after(
            primitive.name,
            [self._provenance.range_of(value) for value in values],
            np.dtype(result.dtype).kind,
            terms=terms,
            exponent=params.get("y", 1),
        )
        self._provenance.record(result, Origin(primitive, params, values), within)

    def _grown(self, value: Value, shape: tuple[int, ...]) -> Value:
        if np.shape(value) == shape:
            return value
        if not is_constant(value):
            value = self._once(self._materialised, value, lax.optimization_barrier)
        aligned = (1,) * (len(shape) - np.ndim(value)) + np.shape(value)
        return lax.broadcast_in_dim(lax.reshape(value, aligned), shape, tuple(range(len(shape))))

    def _once(self, cache: dict[int, tuple[Value, Value]], value: Value, make: Callable[[Value], Value]) -> Value:
        """`make(value)`, made once per value; the value is kept beside it so that its id is not reused."""
        if id(value) not in cache:
            cache[id(value)] = (value, make(value))
        return cache[id(value)][1]

    def _spread(self, equation: JaxprEqn, value: Value) -> Value:
        """A broadcast, put off: new dimensions get size 1, grown ones stay 1."""
        shape = [1] * len(equation.params["shape"])
        for place, size in zip(equation.params["broadcast_dimensions"], np.shape(value), strict=True):
            shape[place] = size
        return self._reshaped(value, tuple(shape))

    def _reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if is_constant(value) or np.shape(value) == shape:
            return np.reshape(value, shape) if is_constant(value) else value
        origin = self._provenance.origin_of(value)
        if origin and origin.name == "reshape" and np.shape(origin.operands[0]) == shape:
            return origin.operands[0]

        def make() -> Value:
            result = lax.reshape(value, shape)
            self._record(result, lax.reshape_p, {}, [value])
            return result

        return self._shared(lax.reshape_p, {"shape": shape}, [value], make)

    def _slice(self, equation: JaxprEqn, value: Value) -> Value:
        """A slice; along dimensions where the value does not vary any slice is the value itself."""
        full, params = _shaped(equation.invars[0]).shape, equation.params
        strides = params["strides"] or (1,) * len(full)
        cuts = list(map(slice, params["start_indices"], params["limit_indices"], strides))
        whole = [cut == slice(0, n, 1) for n, cut in zip(full, cuts, strict=True)]
        self._check(equation, [n for n, all_of_it in zip(full, whole, strict=True) if not all_of_it])
        kept = [own == 1 or all_of_it for own, all_of_it in zip(np.shape(value), whole, strict=True)]
        return value[tuple(slice(None) if every else cut for every, cut in zip(kept, cuts, strict=True))]

    def _restated(self, equation: JaxprEqn, value: Value) -> Value:
        """A reshape; one that adds or drops dimensions of length one does so whatever the others' lengths."""
        full, sizes = _shaped(equation.invars[0]).shape, equation.params["new_sizes"]
        if [n for n in full if n > 1] == [n for n in sizes if n > 1]:
            own = iter([n for n, traced in zip(np.shape(value), full, strict=True) if traced > 1])
            return self._reshaped(value, tuple(next(own) if n > 1 else 1 for n in sizes))
        constant = is_constant(value)
        return self._bound(equation, [self._along(equation, value, full, None, constant)], constant)[0]

    def _general(self, equation: JaxprEqn, values: list[Value]) -> Sequence[Value]:
        """Any other operation: only the dimensions it works on are grown to their traced size."""
        params = equation.params
        axes = params.get("axes", params.get("dimensions", (params["axis"],) if "axis" in params else None))
        if equation.primitive.name.startswith("reduce_") and axes is not None:
            return [self._reduced(equation, values[0])]
        constant = all(is_constant(value) for value in values)
        if equation.primitive.name == "cumsum" and axes == (0,) and not constant:
            return [self._cumulated(equation, values[0])]
        grown = [
            self._along(equation, value, _shaped(variable).shape, axes, constant)
            for variable, value in zip(equation.invars, values, strict=True)
        ]
        return self._bound(equation, grown, constant)

    def _cumulated(self, equation: JaxprEqn, value: Value) -> Value:
        """A cumulative sum of layers, written out: in a loop over points a compiler would sum anew for every use."""
        layers = [self._layer(value, place) for place in range(_shaped(equation.invars[0]).shape[0])]
        if equation.params["reverse"]:
            layers.reverse()
        sums = list(accumulate(layers, lambda one, other: self._applied(lax.add_p, {}, [one, other])))
        if equation.params["reverse"]:
            sums.reverse()
        shape = np.broadcast_shapes(*map(np.shape, sums))
        grown = [self._grown(each, shape) for each in sums]
        result = lax.concatenate(grown, 0)
        self._record(result, lax.concatenate_p, {}, grown)
        return result

    def _along(
        self, equation: JaxprEqn, value: Value, full: tuple[int, ...], axes: Sequence[int] | None, constant: bool
    ) -> Value:
        """The value grown along `axes` (None: all)."""
        worked_on = range(len(full)) if axes is None else axes
        self._check(equation, [full[axis] for axis in worked_on])
        shape = tuple(n if i in worked_on else np.shape(value)[i] for i, n in enumerate(full))
        return np.broadcast_to(value, shape) if constant else self._grown(value, shape)

    def _check(self, equation: JaxprEqn, sizes: Sequence[int]) -> None:
        """Raise TypeError where a program for arrays of any length works along the grid."""
        if self._any_length.intersection(sizes):
            raise TypeError(
                f"a law does {equation.primitive.name} along the grid's own dimensions: write it elementwise, or along "
                "a leading dimension"
            )

    def _bound(self, equation: JaxprEqn, grown: list[Value], constant: bool) -> Sequence[Value]:
        if constant:
            return constants.operation(equation.primitive, equation.params, grown)
        results = equation.primitive.bind(*grown, **equation.params)
        return results if equation.primitive.multiple_results else [results]

    def _reduced(self, equation: JaxprEqn, value: Value) -> Value:
        """A sum or an extreme along axes; along those of size 1 it is the value itself."""
        full, axes = _shaped(equation.invars[0]).shape, equation.params["axes"]
        self._check(equation, [full[axis] for axis in axes])
        terms = math.prod(full[axis] for axis in axes)
        if terms == 1:
            return self._reshaped(value, tuple(n for axis, n in enumerate(np.shape(value)) if axis not in axes))
        origin = self._provenance.origin_of(value)
        if origin and origin.name == "concatenate" and tuple(axes) == (0,) and equation.primitive.name in ALONG_LAYERS:
            added = ALONG_LAYERS[equation.primitive.name]
            layers = [self._reshaped(one, np.shape(one)[1:]) for one in origin.operands]
            return reduce(lambda one, other: self._applied(added, {}, [one, other]), layers)

        def make() -> Value:
            constant = is_constant(value)
            grown = self._along(equation, value, full, axes, constant)
            (result,) = self._bound(equation, [grown], constant)
            if not constant:
                if grown is not value:
                    self._provenance.record(grown, None, self._provenance.range_of(value))
                self._record(result, equation.primitive, equation.params, [grown], terms)
            return result

        return self._shared(equation.primitive, equation.params, [value], make)


def _is_number(value: Value) -> bool:
    """Whether it is one number, known while tracing: a compiler divides by those as fast as it multiplies."""
    return is_constant(value) and np.size(value) == 1


def _shaped(variable: Any) -> Any:
    """The shape and dtype a traced variable has in the program."""
    return variable.aval


def _known(const: Any) -> Value:
    return np.asarray(const) if not isinstance(const, jax.core.Tracer) else const
