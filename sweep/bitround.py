"""Rounding a float32 to fewer mantissa bits, so that what is left compresses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MANTISSA_BITS = 23
KEEP_BITS = 12
"""Explicit mantissa bits kept in stored grids: the relative error is at most 2**-13."""


def bitround(numbers: NDArray[np.floating], keep_bits: int = KEEP_BITS) -> NDArray[np.float32]:
    """The nearest float32 with `keep_bits` explicit mantissa bits, ties to even; NaN and infinity stay as they are.

    A finite number never becomes infinite: where rounding up would overflow, it is cut instead.
    Relative error at most 2**-(keep_bits + 1) for normal numbers. Shape of the input.

    >>> float(bitround(np.array([1.0 + 2.0**-12 + 2.0**-20]))[0] - 1.0) == 2.0**-12
    True
    >>> bitround(np.array([np.nan, -np.inf]))
    array([ nan, -inf], dtype=float32)
    """
    if not 0 <= keep_bits <= MANTISSA_BITS:
        raise ValueError(f"keep_bits = {keep_bits}: it is from 0 to {MANTISSA_BITS}")
    exact = np.asarray(numbers, dtype=np.float32)
    dropped = np.uint32(MANTISSA_BITS - keep_bits)
    if dropped == 0:
        return exact.copy()
    bits = exact.view(np.uint32)
    mask = np.uint32((0xFFFFFFFF << int(dropped)) & 0xFFFFFFFF)
    below_half = np.uint32((1 << (int(dropped) - 1)) - 1)
    rounded = ((bits + (below_half + ((bits >> dropped) & np.uint32(1)))) & mask).view(np.float32)
    finite = np.isfinite(exact)
    overflowed = np.logical_and(finite, ~np.isfinite(rounded))
    if overflowed.any():
        rounded = np.where(overflowed, (bits & mask).view(np.float32), rounded)
    return np.where(finite, rounded, exact)
