"""Operations on numbers that are known while tracing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import Primitive

from kvwall.sweep.provenance import Value

_IN_NUMPY: Final[Mapping[str, Callable[..., Any]]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "floor": np.floor, "ceil": np.ceil, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip
"""What is rounded one way only, so that no program need be compiled for it. Two differences are of no account to laws,
whose numbers are far from both: XLA takes subnormal numbers for zero, and of two zeros either is an extreme."""


def elementwise(
    primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value], shape: tuple[int, ...]
) -> Value:
    """The result of an elementwise operation on constants, of this shape."""
    name, kind = primitive.name, np.dtype(values[-1].dtype).kind
    if name == "select_n" and values[0].dtype == bool:
        return np.broadcast_to(np.where(values[0], values[2], values[1]), shape)
    in_numpy = np.divide if name == "div" and kind == "f" else _IN_NUMPY.get(name)
    if in_numpy:
        with np.errstate(all="ignore"):
            return np.broadcast_to(in_numpy(*values), shape)
    (result,) = operation(primitive, params, [np.broadcast_to(value, shape) for value in values])
    return result


def operation(primitive: Primitive, params: Mapping[str, Any], values: Sequence[Value]) -> list[Value]:
    """The results of any operation on constants."""
    with jax.ensure_compile_time_eval():
        results = primitive.bind(*values, **params)
        return [np.asarray(result) for result in (results if primitive.multiple_results else [results])]
