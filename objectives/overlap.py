"""Overlap of transfer and arithmetic: the law of `kernels.overlapped`, cheap enough for every point of a grid.

Compilers keep divisions, logarithms and power functions out of a fused pass where their result is used twice; a sweep
is three times as slow with one of them here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from kvwall.spaces.units import Ratio, Real, Seconds

_GUESS: dict[int, int] = {4: 0x54A2FA8C, 8: 0x553EF0FF289DD796}
"""By size of a number in bytes: these bits minus a third of the number's are those of about its inverse cube root.

Source: Moroz, Samotyy, Walczyk, Cieslinski: Fast calculation of the cube root and inverse cube root, 2021.
"""
_ROUNDS: dict[int, int] = {4: 3, 8: 4}
"""From 3.5 % off to the last digits."""
_NOTHING = 1e-36
"""Stands for the cube of no time, which has no inverse root."""


def overlapped(first: Seconds, second: Seconds) -> Seconds:
    """Time of two things that overlap, though not wholly: (first^3 + second^3)^(1/3).

    >>> round(float(overlapped(3.0, 4.0)), 5), round(float(overlapped(3.0, 0.0)), 5)
    (4.49794, 3.0)
    """
    return cube_root(first * first * first + second * second * second + _NOTHING)


@jax.custom_jvp
def cube_root(number: Real) -> Real:
    """The cube root of a positive number, by Newton's method on the inverse root.

    >>> round(float(cube_root(27.0)), 5)
    3.0
    """
    inverse = _inverse_root(number)
    return number * (inverse * inverse)


@cube_root.defjvp
def _(primals: tuple[Real], tangents: tuple[Real]) -> tuple[Real, Real]:
    """The derivative is inverse^2/3, which needs no second walk through the rounds."""
    (number,), (step,) = primals, tangents
    inverse = _inverse_root(number)
    slope = inverse * inverse
    return number * slope, step * (slope * (1 / 3))


def _inverse_root(number: Real) -> Ratio:
    positive: Any = jnp.asarray(number)
    size = positive.dtype.itemsize
    bits = lax.bitcast_convert_type(positive, {4: jnp.int32, 8: jnp.int64}[size])
    guess = _GUESS[size] - lax.div(bits, jnp.asarray(3, bits.dtype))
    third = positive * (1 / 3)
    inverse: Ratio = lax.bitcast_convert_type(guess, positive.dtype)
    for _ in range(_ROUNDS[size]):
        inverse = inverse * (4 / 3 - third * (inverse * inverse * inverse))
    return inverse
