"""What a study asks for: objectives with a sense, and constraints with bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


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

        NaN stands for what no source states and is not allowed; infinities are compared like numbers.

        >>> import numpy as np
        >>> Constraint("max_context", low=4096.0).allows(np.array([4096.0, 4095.0, np.inf, np.nan]))
        array([ True, False,  True, False])
        """
        within = value == value
        if self.low is not None:
            within = within & (value + slack >= self.low)
        if self.high is not None:
            within = within & (value - slack <= self.high)
        return within

    def __str__(self) -> str:
        sides = [f"{self.metric} >= {self.low:g}" if self.low is not None else ""]
        sides.append(f"{self.metric} <= {self.high:g}" if self.high is not None else "")
        return " and ".join(side for side in sides if side)
