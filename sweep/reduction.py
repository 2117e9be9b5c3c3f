"""Many reductions along the columns of a block as one fused pass over its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

LARGE = np.float32(3.0e38)
"""Stands for 'no such point yet' in a minimum of float32."""


class Reduction:
    """Collects reductions along columns and runs those that need every point as one fused pass.

    A value that does not vary along columns needs no pass: its extreme is itself wherever any point counts.
    """

    _COMBINE = {"sum": jnp.add, "min": jnp.minimum, "max": jnp.maximum}

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._kinds: list[str] = []
        self._operands: list[Any] = []
        self._places: dict[tuple[str, int, int], int] = {}
        self._pending: list[Any] = []
        self._results: list[Any] = []

    def add(self, kind: str, flag: Any) -> int:
        """Count points where `flag` holds."""
        if np.shape(flag)[-1:] in {(1,), ()}:
            return self._later(lambda: jnp.broadcast_to(jnp.asarray(flag), (self._shape[0], 1))[:, 0] * self._shape[1])
        return self._full(kind, flag, flag)

    def extreme(self, kind: str, value: tuple[Any, Any], mask: Any, counted: int) -> int:
        """Least or greatest value over points in `mask` (of which `counted` is the count) that are sourced."""
        number, sourced = value
        none = LARGE if kind == "min" else -LARGE
        if np.shape(number)[-1:] in {(1,), ()} and np.shape(sourced)[-1:] in {(1,), ()}:
            own = jnp.where(sourced, number, none)
            return self._later(
                lambda: jnp.where(self._results[counted] > 0, jnp.broadcast_to(own, (self._shape[0], 1))[:, 0], none)
            )
        counts = mask if isinstance(sourced, np.ndarray) and sourced.all() else jnp.logical_and(mask, sourced)
        return self._full(kind, number, mask, lambda: jnp.where(counts, number, none))

    def _later(self, result: Any) -> int:
        self._pending.append(result)
        return len(self._pending) - 1

    def _full(self, kind: str, value: Any, mask: Any, operand: Any = None) -> int:
        """Two metrics that are one array (a reserve that equals what is stored) share their reduction."""
        key = (kind, id(value), id(mask))
        if key not in self._places:
            self._places[key] = len(self._kinds)
            self._kinds.append(kind)
            filled = operand() if operand else jnp.asarray(value, jnp.int32)
            self._operands.append(jnp.broadcast_to(filled, self._shape))
        place = self._places[key]
        return self._later(lambda: self._reduced[place])

    def run(self) -> None:
        """Do the pass."""
        start = {"sum": jnp.int32(0), "min": jnp.float32(LARGE), "max": jnp.float32(-LARGE)}

        def combine(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(self._COMBINE[kind](a, b) for kind, a, b in zip(self._kinds, left, right, strict=True))

        initial = tuple(start[kind] for kind in self._kinds)
        self._reduced = lax.reduce(tuple(self._operands), initial, combine, (1,)) if self._kinds else ()
        for result in self._pending:
            self._results.append(result())

    def stacked(self, keys: Sequence[int]) -> jax.Array:
        """Results as columns of one array (rows, len(keys))."""
        if not keys:
            return jnp.zeros((self._shape[0], 0), jnp.float32)
        return jnp.stack([jnp.asarray(self._results[key]) for key in keys], axis=-1)
