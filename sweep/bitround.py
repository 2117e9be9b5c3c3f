"""Rounding a float32 to fewer mantissa bits, so that what is left compresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MANTISSA_BITS = 23
KEEP_BITS = 12
"""Explicit mantissa bits kept in stored grids, but those stored exactly: the relative error is at most 2**-13."""

_EXPONENT = np.uint32(0x7F800000)


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
    rounded: NDArray[np.uint32] = round_bits(np.asarray(numbers, dtype=np.float32).view(np.uint32), keep_bits)
    return rounded.view(np.float32)


def round_bits(bits: Any, keep_bits: int) -> Any:
    """`bitround` on the bits of float32 numbers, for NumPy arrays and inside kernels of JAX: uint32 in, uint32 out."""
    if keep_bits == MANTISSA_BITS:
        return bits
    dropped = np.uint32(MANTISSA_BITS - keep_bits)
    mask = np.uint32((0xFFFFFFFF << int(dropped)) & 0xFFFFFFFF)
    below_half = np.uint32((1 << (int(dropped) - 1)) - 1)
    where = bits.__array_namespace__().where
    rounded = (bits + (below_half + ((bits >> dropped) & np.uint32(1)))) & mask
    rounded = where((rounded & _EXPONENT) == _EXPONENT, bits & mask, rounded)
    return where((bits & _EXPONENT) == _EXPONENT, bits, rounded)
