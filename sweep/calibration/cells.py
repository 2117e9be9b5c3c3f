"""The law of a kernel fitted to the rows of one cell: one chip, one engine, one format.

Least squares in the logarithm of the time; rows that miss by much more than `_SPREAD` count less. What the rows do not
tell (arithmetic, where every row waits for memory) stays near what is known beforehand, with its wide deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats: TypeAlias = NDArray[np.float64]

_SPREAD: Final = 0.1
_LEAST_SD: Final = 0.02
"""Of a row about the law; what is known beforehand weighs as one such row."""
_TOP: Final = 1.0
"""No share is larger; a fit that wants more has read caches."""


@dataclass(frozen=True)
class Number:
    """What is known of a parameter beforehand."""

    guess: float
    sd: float
    """Of its logarithm."""
    most: float = np.inf
    """Largest value, not a logarithm."""


SHARE: Final = Number(0.7, 0.5, _TOP)
FIXED: Final = Number(10e-6, 1.0, 1e-3)


@dataclass(frozen=True)
class Fitted:
    """Logarithms of a cell's parameters, their standard deviations, and by how much rows miss."""

    value: Floats
    sd: Floats
    misses: Floats
    """ln(law / measured) of each row."""


def fit_cell(law: Callable[[Sequence[float]], Floats], seconds: Floats, numbers: Sequence[Number]) -> Fitted:
    """The parameters of a law, `numbers` in its order, for these times."""
    guess = np.log([number.guess for number in numbers])
    width = np.array([number.sd for number in numbers])
    most = np.log([number.most for number in numbers])
    measured = np.log(seconds)

    def off(point: Floats) -> Floats:
        return np.asarray(np.log(law([float(each) for each in np.exp(point)])) - measured)

    def misses(point: Floats) -> Floats:
        return np.concatenate([off(point), (point - guess) / width * _LEAST_SD])

    best = least_squares(
        misses, np.minimum(guess, most - 1e-3), bounds=(-np.inf, most), loss="soft_l1", f_scale=_SPREAD, x_scale=1.0
    )
    found = off(best.x)
    spread = max(float(np.median(np.abs(found))) * 1.4826, _LEAST_SD)
    # The Jacobian without the guess: what the rows tell; then the guess as it is.
    slope = _slope(off, best.x) / spread
    information = slope.T @ slope + np.diag(1 / width**2)
    return Fitted(best.x, np.sqrt(np.diag(np.linalg.inv(information))), found)


def _slope(function: Callable[[Floats], Floats], point: Floats, step: float = 1e-4) -> Floats:
    columns = [
        (function(point + step * axis) - function(point - step * axis)) / (2 * step) for axis in np.eye(len(point))
    ]
    return np.stack(columns, axis=1)
