"""What a search found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kvwall.spaces.axes import Value

Row = dict[str, Value | None]
"""A design: its axes, every metric (None where there is no number) and every label."""


@dataclass(frozen=True)
class OptimizeResult:
    """The best design, a front, and how far the best is from the exact optimum; `to_json` is the command's output."""

    best: Row | None
    """Best admissible value of the first objective; None where no trial is admissible."""
    front: list[Row]
    """Non-dominated admissible designs."""
    front_source: Literal["exact", "search"]
    """Whether the front is the grid's exact one, or what the trials found."""
    trials: int
    """Trials of the search for the best, earlier calls included."""
    front_trials: int
    """Trials of the separate search for the front."""
    seconds: float
    """Of this call."""
    regret: float | None
    """(optimum - best) / |optimum| on the first objective, positive = worse; None with a reason."""
    reason: str | None
    """Why something is None."""
    rejected: tuple[str, ...] = field(default=())
    """Where nothing is admissible: a sentence on each status and constraint, with how many trials it rules out."""

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self) | {"rejected": list(self.rejected)}
