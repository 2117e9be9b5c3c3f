"""Columns that rise and fall together: tables of which one says what the others are.

A context, its square and the share of it that is read are three columns, and each grows with the context. What grows
with all three has its extremes where the context has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Column = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Comonotone:
    """Columns, each a monotone function of the one of most values."""

    base: Column
    columns: tuple[Column, ...]
    directions: tuple[int, ...]
    """Of each column: 1 if it never decreases with the base, -1 if it never increases."""

    def at(self, base: jax.Array) -> list[jax.Array]:
        """Every column where the base is so much; `base` is among its values, else the answer means nothing."""
        values, first = np.unique(self.base.ravel(), return_index=True)
        place = jnp.clip(jnp.searchsorted(values, base), 0, len(values) - 1)
        return [jnp.asarray(column.ravel()[first])[place] for column in self.columns]


def comonotone(columns: Sequence[Column]) -> Comonotone | None:
    """The columns as functions of one of them, if that is what they are.

    >>> both = comonotone([np.array([[1.0, 2.0, 2.0]]), np.array([[9.0, 4.0, 4.0]])])
    >>> both.directions
    (1, -1)
    >>> comonotone([np.array([[1.0, 2.0, 2.0]]), np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 0.0, 2.0]])]) is None
    True
    """
    base = max(columns, key=lambda column: len(np.unique(column)))
    directions = [_direction(column.ravel(), base.ravel()) for column in columns]
    if not all(directions):
        return None
    return Comonotone(base, tuple(columns), tuple(directions))


def _direction(column: Column, base: Column) -> int:
    """1 or -1, 0 if it is no monotone function of the base."""
    order = np.argsort(base, kind="stable")
    along, moves = np.diff(base[order]), np.diff(column[order])
    if np.any(moves[along == 0] != 0) or np.any(np.isnan(moves)):
        return 0
    return 1 if np.all(moves >= 0) else -1 if np.all(moves <= 0) else 0
