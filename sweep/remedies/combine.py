"""The best combination: every family's settings with every other's, evaluated together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.sweep.remedies.choose import Tried, best_place, within
from kvwall.sweep.remedies.family import Change
from kvwall.sweep.remedies.outcome import DEVICES, LOSS, RANKED_BY, SPARE, Evaluator, Outcomes

MOST: Final = 2_000_000
"""Combinations evaluated for one number of devices; beyond it the longest lists of settings are thinned out."""


@dataclass(frozen=True)
class Combination:
    """The best combination, and what was searched for it."""

    changes: Mapping[str, Change]
    """Family -> its change; those left out change nothing."""
    evaluated: int
    admissible: int
    exhaustive: bool
    """Whether no setting was thinned out."""

    @property
    def change(self) -> dict[str, Value]:
        """All changes together."""
        return {axis: value for change in self.changes.values() for axis, value in change.items()}


@dataclass(frozen=True)
class _Option:
    change: Change
    speed: float
    """Alone; of what does not fit, how far it is from fitting."""
    devices: int


def best_combination(evaluator: Evaluator, tried: Sequence[Tried], budget: float) -> tuple[Combination, bool]:
    """The fastest combination on the design's devices that is admissible, or on the fewest more that have one.

    The second answer is whether it is admissible; where none is, it is the one least short of memory.
    A setting that breaks the budget alone does so in every combination, since losses only add: it is left out.
    """
    lists = {one.family.name: _options(one, budget) for one in tried}
    counts = sorted({option.devices for options in lists.values() for option in options})
    evaluated, best = 0, Combination({}, 0, 0, True)
    for place, count in enumerate(counts):
        chosen = {name: [each for each in options if each.devices <= count] for name, options in lists.items()}
        more = None if place == 0 else count
        found, admissible = _search(evaluator, chosen, budget, more)
        evaluated += found.evaluated
        best = Combination(found.changes, evaluated, found.admissible, found.exhaustive)
        if admissible:
            return best, True
    return best, False


def _options(tried: Tried, budget: float) -> list[_Option]:
    """Doing nothing, and the settings that may be combined."""
    before = tried.before
    found = [_Option({}, before["tokens_per_second"] if before.fits else before[SPARE], int(before[DEVICES]))]
    if not tried.settings:
        return found
    allowed = within(tried.outcomes, budget) & tried.outcomes.known
    for place, setting in enumerate(tried.settings):
        if setting.combines and allowed[place]:
            speed, spare, devices = (tried.outcomes[name][place] for name in ("tokens_per_second", SPARE, DEVICES))
            found.append(_Option(setting.change, float(speed if before.fits else spare), int(devices)))
    return found


def _search(
    evaluator: Evaluator, lists: Mapping[str, list[_Option]], budget: float, devices: int | None
) -> tuple[Combination, bool]:
    """The best of all combinations, of those on so many devices where a number is given."""
    lists, exhaustive = _thinned(lists)
    shape = tuple(len(options) for options in lists.values())
    index = [part.astype(np.int16) for part in np.unravel_index(np.arange(math.prod(shape)), shape)]
    values, positions, possible = _positions(lists, index, evaluator)
    keep = np.flatnonzero(possible)
    cut = {axis: where[keep] for axis, where in positions.items()}
    outcomes = evaluator.at(evaluator.space(values), cut, len(keep), RANKED_BY)
    used = sum((part[keep] > 0).astype(np.int64) for part in index)
    if devices is not None:
        losses = np.where(outcomes[DEVICES] == devices, outcomes[LOSS], np.inf)
        outcomes = Outcomes({**outcomes.arrays, LOSS: losses})
    admissible = int(np.count_nonzero(within(outcomes, budget) & outcomes.fits))
    place = best_place(outcomes, budget, [np.asarray(used)])
    chosen = [] if place is None else [int(part[keep[place]]) for part in index]
    changes = {name: options[at].change for (name, options), at in zip(lists.items(), chosen, strict=False) if at}
    return Combination(changes, len(keep), admissible, exhaustive), admissible > 0


def _thinned(lists: Mapping[str, list[_Option]]) -> tuple[dict[str, list[_Option]], bool]:
    """At most MOST combinations: the longest list is halved, its best settings alone kept, until they are."""
    found, exhaustive = dict(lists), True
    while math.prod(map(len, found.values())) > MOST:
        longest = max(found, key=lambda name: len(found[name]))
        first, *others = found[longest]
        best = sorted(others, key=lambda option: -option.speed)[: len(others) // 2]
        found[longest], exhaustive = [first, *(option for option in others if option in best)], False
    return found, exhaustive


def _positions(
    lists: Mapping[str, list[_Option]], index: Sequence[NDArray[np.int16]], evaluator: Evaluator
) -> tuple[dict[str, list[Value]], dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Values by axis, the combinations' positions among them, and whether no axis is asked for two values."""
    values: dict[str, list[Value]] = {}
    for options in lists.values():
        for axis, value in (pair for option in options for pair in option.change.items()):
            listed = values.setdefault(axis, [evaluator.single.inputs[axis]])
            if value not in listed:
                listed.append(value)
    positions = {axis: np.full(len(index[0]), -1, np.int16) for axis in values}
    possible = np.ones(len(index[0]), bool)
    for options, part in zip(lists.values(), index, strict=True):
        for axis, listed in values.items():
            if not any(axis in option.change for option in options):
                continue
            places = [listed.index(one.change[axis]) if axis in one.change else -1 for one in options]
            asked = np.array(places, np.int16)[part]
            possible &= (asked < 0) | (positions[axis] < 0) | (positions[axis] == asked)
            positions[axis] = np.where(asked >= 0, asked, positions[axis])
    return values, {axis: np.maximum(where, 0) for axis, where in positions.items()}, possible
