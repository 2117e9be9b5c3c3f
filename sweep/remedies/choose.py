"""The setting of a family that is best at a design, within the quality budgets and the memory, and not vetoed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS
from kvwall.sweep.remedies.budget import Budgets
from kvwall.sweep.remedies.family import Family, Setting
from kvwall.sweep.remedies.outcome import LOSS, SPARE, VETOED, Outcome, Outcomes

_MEMORY = LABELS["status"].meanings.index("memory")
_ROUNDING = 1e-12
_DIGITS = 9
"""Of the logarithm of a speed, within which two designs are equally fast."""
_ALIKE = 1e9
"""Bytes of memory left, within which two designs leave equally much."""


@dataclass(frozen=True)
class Tried:
    """A family's settings at a design, and what they come to."""

    family: Family
    settings: tuple[Setting, ...]
    before: Outcome
    """The design that the family is compared with."""
    outcomes: Outcomes

    def best(self, budgets: Budgets) -> int | None:
        """The place of the best setting; None where the budgets, a veto or the status allow none."""
        return best_place(self.outcomes, budgets) if self.settings else None


def within(outcomes: Outcomes, budgets: Budgets) -> NDArray[np.bool_]:
    """Which lose no more quality than every budget, at most, at the confidence asked for, and are not vetoed."""
    return np.asarray(in_budget(outcomes, budgets) & ~np.asarray(outcomes[VETOED], bool))


def in_budget(outcomes: Outcomes, budgets: Budgets) -> NDArray[np.bool_]:
    """Which lose no more quality than every budget, vetoed or not."""
    kept = [outcomes[each.metric] <= each.most * (1 + _ROUNDING) + _ROUNDING for each in budgets]
    return np.asarray(np.all(kept, axis=0))


def best_place(outcomes: Outcomes, budgets: Budgets, ties: Sequence[NDArray[np.int64]] = ()) -> int | None:
    """The fastest design that fits; where none does, the one that is least short of memory; None if none is allowed.

    Of equally fast ones that with the least loss, then by `ties`, then the most memory left, then the first.
    """
    allowed = within(outcomes, budgets)
    fitting = np.flatnonzero(allowed & outcomes.fits)
    if len(fitting):
        speed = np.round(np.log(outcomes["tokens_per_second"][fitting]), _DIGITS)
        keys = [outcomes[LOSS], *ties, -np.round(outcomes[SPARE] / _ALIKE)]
        order = np.lexsort([*(key[fitting] for key in reversed(keys)), -speed])
        return int(fitting[order[0]])
    short = np.flatnonzero(allowed & (outcomes["status"] == _MEMORY))
    spare, speed = (outcomes[name][short] for name in (SPARE, "tokens_per_second"))
    return int(short[np.lexsort([-speed, -np.round(spare / _ALIKE)])[0]]) if len(short) else None
