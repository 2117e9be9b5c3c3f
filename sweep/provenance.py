"""Where the values of a traced program come from, and the range each of them lies in."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jax.extend.core import Primitive

from kvwall.sweep.ranges import ANY, Range, range_of_array

Value: TypeAlias = Any
"""A NumPy array when known while tracing, else a tracer."""


@dataclass(frozen=True)
class Origin:
    """The operation that gave a value; its operands are at their smallest shapes."""

    primitive: Primitive
    params: Mapping[str, Any]
    operands: Sequence[Value]

    @property
    def name(self) -> str:
        """Of the operation."""
        return self.primitive.name


class Provenance:
    """Origins and ranges of values, by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Value, Origin | None, Range]] = {}

    def record(self, value: Value, origin: Origin | None, within: Range) -> None:
        """Keep what is known of a value; the value is kept too, so that its id is not reused."""
        self._known[id(value)] = (value, origin, within)

    def origin_of(self, value: Value) -> Origin | None:
        """The operation that gave it; None for inputs and constants."""
        return self._known[id(value)][1] if id(value) in self._known else None

    def range_of(self, value: Value) -> Range:
        """The range it lies in wherever it is a number."""
        if is_constant(value):
            return range_of_array(value)
        return self._known[id(value)][2] if id(value) in self._known else ANY


def is_constant(value: Value) -> bool:
    """Whether it is known while tracing."""
    return isinstance(value, np.ndarray | np.generic)


def identity(value: Value) -> Hashable:
    """What tells a value from others; constants are told apart by their numbers."""
    return (value.dtype.str, value.shape, value.tobytes()) if is_constant(value) else id(value)
