"""What a study asks for: objectives with a sense, and constraints with bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

BOUND_SLACK = 1e-6
"""Relative widening of a constraint's bounds: about sixteen times the spacing of float32 numbers."""


@dataclass(frozen=True)
class Objective:
    """A metric to maximize or minimize."""

    metric: str
    sense: Literal["maximize", "minimize"]

    @property
    def sign(self) -> float:
        """Factor that makes smaller better."""
        return -1.0 if self.sense == "maximize" else 1.0


@dataclass(frozen=True)
class Constraint:
    """A metric that must lie between two bounds, inclusive; None = open."""

    metric: str
    low: float | None = None
    high: float | None = None

    def allows(self, value: Any, slack: Any = 0.0) -> Any:
        """Elementwise whether values lie between the bounds, or outside by at most `slack`.

        Bounds are widened by BOUND_SLACK, so that a value that meets one exactly does so in float32 as well. NaN
        stands for what no source states and is not allowed; infinities are compared like numbers.

        >>> Constraint("max_context", low=4096.0).allows(np.array([4096.0, 4095.0, np.inf, np.nan]))
        array([ True, False,  True, False])
        """
        if self.high is None:
            return value + slack >= self.lowest  # a comparison with NaN does not hold
        within = value - slack <= self.highest
        return within if self.low is None else within & (value + slack >= self.lowest)

    @property
    def lowest(self) -> float:
        """The least value allowed."""
        return -math.inf if self.low is None else self.low - BOUND_SLACK * abs(self.low)

    @property
    def highest(self) -> float:
        """The greatest value allowed."""
        return math.inf if self.high is None else self.high + BOUND_SLACK * abs(self.high)

    def __str__(self) -> str:
        sides = [f"{self.metric} >= {self.low:g}" if self.low is not None else ""]
        sides.append(f"{self.metric} <= {self.high:g}" if self.high is not None else "")
        return " and ".join(side for side in sides if side)


def signed(objectives: Sequence[Objective], metrics: Mapping[str, Any]) -> NDArray[np.float64]:
    """Each objective's sign * value as fronts compare it, smaller is better, shape (designs, objectives)."""
    values = [rounded(one.sign * np.asarray(metrics[one.metric], np.float64)) for one in objectives]
    return np.stack(values, axis=1)


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """To 40 bits, as float64 too computes equal quantities with different last bits; no order is ever reversed."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0**40) * 2.0**-40, exponent)
