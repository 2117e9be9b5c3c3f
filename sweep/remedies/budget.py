"""The quality budget: the most that may be lost, as the upper bound at the confidence asked for."""

from __future__ import annotations

import math
from typing import Final

from kvwall.spaces.errors import InputError

_LOG_RATIO: Final = "perplexity"


def checked_budget(budget: object, task: object) -> float:
    """The budget as a number. Raises InputError where it is none, negative, or more than all.

    >>> checked_budget(0.02, "retrieval")
    0.02
    """
    what = "a share of the score that may be lost, such as 0.02; 1 sets no limit"
    if task == _LOG_RATIO:
        what = "a rise of ln(perplexity) that is allowed, such as 0.02"
    if budget is None:
        raise InputError(f"quality_budget is missing: it is {what}")
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise InputError(f"quality_budget = {budget!r} is not a number: it is {what}")
    if not math.isfinite(budget) or budget < 0:
        raise InputError(f"quality_budget = {budget!r} is out of range: it is {what}")
    if budget > 1 and task != _LOG_RATIO:
        percent = f"; {budget:g} % is {budget / 100:g}" if budget <= 100 else ""
        raise InputError(f"quality_budget = {budget!r} is more than all: it is {what}{percent}")
    return float(budget)
