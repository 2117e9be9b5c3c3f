"""The best combination: every family's settings with every other's, evaluated together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.sweep.remedies.budget import Budgets
from kvwall.sweep.remedies.choose import Tried, best_place, within
from kvwall.sweep.remedies.family import Change
from kvwall.sweep.remedies.outcome import DEVICES, SPARE, Evaluator

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


@dataclass(frozen=True)
class _Table:
    """Families that change an axis in common, and the places of their options that go together, a row each."""

    families: tuple[str, ...]
    places: NDArray[np.int16]


_Lists: TypeAlias = Mapping[str, Sequence[_Option]]


def best_combination(evaluator: Evaluator, tried: Sequence[Tried], budgets: Budgets) -> tuple[Combination, bool]:
    """The fastest combination on the design's devices that is admissible, or on the fewest more that have one.

    The second answer is whether it is admissible; where none is, it is the one least short of memory.
    A setting that breaks a budget or is vetoed alone is so in every combination, since losses only add: it is left out.
    """
    lists = {one.family.name: _options(one, budgets) for one in tried}
    counts = sorted({option.devices for options in lists.values() for option in options})
    evaluated, best = 0, Combination({}, 0, 0, True)
    for count in counts:
        chosen = {name: _on_devices(options, count, counts[0]) for name, options in lists.items()}
        found = _search(evaluator, chosen, budgets)
        evaluated += found.evaluated
        best = replace(found, evaluated=evaluated)
        if found.admissible:
            return best, True
    return best, False


def _options(tried: Tried, budgets: Budgets) -> list[_Option]:
    """Doing nothing, and the settings that may be combined."""
    before = tried.before
    found = [_Option({}, before["tokens_per_second"] if before.fits else before[SPARE], int(before[DEVICES]))]
    if not tried.settings:
        return found
    allowed = within(tried.outcomes, budgets) & tried.outcomes.known
    for place, setting in enumerate(tried.settings):
        if setting.combines and allowed[place]:
            speed, spare, devices = (tried.outcomes[name][place] for name in ("tokens_per_second", SPARE, DEVICES))
            found.append(_Option(setting.change, float(speed if before.fits else spare), int(devices)))
    return found


def _on_devices(options: Sequence[_Option], count: int, own: int) -> list[_Option]:
    """A family's options for so many devices: those that make them so many, or those that leave their number alone."""
    return [each for each in options if each.devices == count] or [each for each in options if each.devices == own]


def _search(evaluator: Evaluator, lists: _Lists, budgets: Budgets) -> Combination:
    """The best of all combinations."""
    lists, tables, exhaustive = _thinned(lists)
    index = _index(tables)
    values, positions = _positions(lists, index, evaluator)
    count = len(next(iter(index.values())))
    outcomes = evaluator.at(evaluator.space(values), positions, count, evaluator.ranked_by)
    used = np.zeros(count, np.int64)
    for name, part in index.items():
        used += np.array([bool(option.change) for option in lists[name]])[part]
    place = best_place(outcomes, budgets, [used])
    chosen = {} if place is None else {name: lists[name][int(part[place])].change for name, part in index.items()}
    admissible = int(np.count_nonzero(within(outcomes, budgets) & outcomes.fits))
    changes = {name: chosen[name] for name in lists if chosen.get(name)}
    return Combination(changes, count, admissible, exhaustive)


def _thinned(lists: _Lists) -> tuple[_Lists, list[_Table], bool]:
    """At most MOST combinations: while there are more, the longest list loses the setting that is worst alone."""
    found, exhaustive = dict(lists), True
    while True:
        tables = _tables(found)
        if math.prod(len(table.places) for table in tables) <= MOST:
            return found, tables, exhaustive
        longest = max(found, key=lambda name: len(found[name]))
        worst = min((option for option in found[longest] if option.change), key=lambda option: option.speed)
        found[longest], exhaustive = [option for option in found[longest] if option is not worst], False


def _tables(lists: _Lists) -> list[_Table]:
    """The families in groups that share no axis with each other, and of each group what goes together."""
    groups: list[tuple[str, ...]] = []
    for name, options in lists.items():
        axes = _axes(options)
        joined = [group for group in groups if any(axes & _axes(lists[each]) for each in group)]
        apart = [group for group in groups if group not in joined]
        groups = [*apart, (*itertools.chain.from_iterable(joined), name)]
    return [_Table(group, _together([lists[name] for name in group])) for group in groups]


def _axes(options: Sequence[_Option]) -> set[str]:
    return {axis for option in options for axis in option.change}


def _together(lists: Sequence[Sequence[_Option]]) -> NDArray[np.int16]:
    """Places of the options that ask no axis for two values."""
    rows = []
    for places in itertools.product(*(range(len(options)) for options in lists)):
        asked: dict[str, Value] = {}
        changes = [options[place].change for options, place in zip(lists, places, strict=True)]
        if all(asked.setdefault(axis, value) == value for change in changes for axis, value in change.items()):
            rows.append(places)
    return np.array(rows, np.int16)


def _index(tables: Sequence[_Table]) -> dict[str, NDArray[np.int16]]:
    """Family -> the place of its option in every combination."""
    sizes = [len(table.places) for table in tables]
    number = np.arange(math.prod(sizes))
    found: dict[str, NDArray[np.int16]] = {}
    for table, size in zip(tables, sizes, strict=True):
        number, row = np.divmod(number, size)
        found |= {name: table.places[row, column] for column, name in enumerate(table.families)}
    return found


def _positions(
    lists: _Lists, index: Mapping[str, NDArray[np.int16]], evaluator: Evaluator
) -> tuple[dict[str, list[Value]], dict[str, NDArray[Any]]]:
    """Values by axis, and the combinations' positions among them."""
    values: dict[str, list[Value]] = {}
    positions: dict[str, NDArray[Any]] = {}
    for name, options in lists.items():
        for axis in sorted(_axes(options)):
            listed = values.setdefault(axis, [evaluator.single.inputs[axis]])
            listed += dict.fromkeys(
                o.change[axis] for o in options if axis in o.change and o.change[axis] not in listed
            )
            places = [listed.index(option.change[axis]) if axis in option.change else -1 for option in options]
            asked = np.array(places, np.int16)[index[name]]
            positions[axis] = np.maximum(positions.get(axis, np.int16(0)), asked)
    return values, positions
