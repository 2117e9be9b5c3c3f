"""Quality budgets: the most that may be lost on a task, as the upper bound at a confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvwall.spaces.confidence import DEFAULT, Confidence, by_row
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality_tasks import TASKS, task_rows
from kvwall.spaces.vetoes import HARD_RETRIEVAL
from kvwall.sweep.objective import Constraint

UPPER: Final = "quality_loss_upper"
_LOG_RATIO: Final = "perplexity"


@dataclass(frozen=True)
class Budget:
    """The most that may be lost on a task."""

    task: str
    most: float
    confidence: float | None = None
    """Of the upper bound; None = that of all tasks without one of their own."""

    @property
    def metric(self) -> str:
        """The loss that it is about."""
        return f"{UPPER}_{self.task}"

    @property
    def constraint(self) -> Constraint:
        """What it imposes."""
        return Constraint(self.metric, high=self.most)

    def __str__(self) -> str:
        level = f" at {100 * self.confidence:g} % confidence" if self.confidence is not None else ""
        return f"{self.task} at most {self.most:g}{level}"


def checked_most(most: object, task: object, name: str = "quality_budget") -> float:
    """The most that may be lost as a number. Raises InputError where it is none, negative, or more than all.

    >>> checked_most(0.02, "retrieval")
    0.02
    """
    what = "a share of the score that may be lost, such as 0.02; 1 sets no limit"
    if task == _LOG_RATIO:
        what = "a rise of ln(perplexity) that is allowed, such as 0.02"
    if most is None:
        raise InputError(f"{name} is missing: it is {what}")
    if isinstance(most, bool) or not isinstance(most, int | float):
        raise InputError(f"{name} = {most!r} is not a number: it is {what}")
    if not math.isfinite(most) or most < 0:
        raise InputError(f"{name} = {most!r} is out of range: it is {what}")
    if most > 1 and task != _LOG_RATIO:
        percent = f"; {most:g} % is {most / 100:g}" if most <= 100 else ""
        raise InputError(f"{name} = {most!r} is more than all: it is {what}{percent}")
    return float(most)


def confidence_with(default: float, budgets: Sequence[Budget]) -> Confidence:
    """The confidence of every task: the budgets' own where they have one, the default elsewhere.

    A budget without one holds at the default. Raises InputError where budgets of one curve differ.
    """
    if all(budget.confidence is None for budget in budgets):
        return default
    own = {b.task: default if b.confidence is None else b.confidence for b in budgets}
    levels = {DEFAULT: default, **own}
    by_row(levels, {task: task_rows(task) for task in (*TASKS, *own)})
    return levels


def asks_for_hard_retrieval(task: str, metrics: Sequence[str]) -> bool:
    """Whether a task, or metrics that are asked for, put hard retrieval into the workload.

    >>> asks_for_hard_retrieval("code", ["quality_loss_upper"])
    False
    >>> asks_for_hard_retrieval("code", ["max_batch", "quality_loss_retrieval"])
    True
    """
    losses = {f"{kind}_{name}" for kind in ("quality_loss", UPPER) for name in HARD_RETRIEVAL}
    return task in HARD_RETRIEVAL or not losses.isdisjoint(metrics)
