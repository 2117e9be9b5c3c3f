"""Gathering columns at grid positions: NumPy stays NumPy where a grid does not vary, so that a compiler can fold it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def take(table: Any, *index: Any) -> Any:
    """Gather along the last axes; leading axes stay in front. Stays NumPy while indices are, or all entries agree."""
    if not all(isinstance(one, np.ndarray) for one in index):
        first = table[(..., *([slice(0, 1)] * len(index)))]
        if np.all(table == first):
            return table[(..., *(np.zeros((1,) * np.ndim(one), dtype=np.int64) for one in index))]
        table = jnp.asarray(table)
    return table[(..., *index)]
