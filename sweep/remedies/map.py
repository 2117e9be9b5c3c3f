"""The map: over context and batch, which family pays most, where none does, and which makes it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.sweep.remedies.budget import Budgets
from kvwall.sweep.remedies.choose import Tried, within
from kvwall.sweep.remedies.family import Change
from kvwall.sweep.remedies.outcome import DEVICES, Evaluator, Outcomes
from kvwall.sweep.remedies.register import FAMILIES
from kvwall.sweep.report.style import binary_text
from kvwall.sweep.single import SingleDesign

WORTH: Final = 1.05
"""A family pays from so much more speed on."""
ANSWERS: Final = ("pays", "none_pays", "makes_it_fit", "does_not_fit", "not_computed")
"""What a cell says: a family pays most; none pays WORTH; one makes it fit; none does; the step's time is not known."""
_CONTEXTS: Final = tuple(2**power for power in range(10, 21))
_BATCHES: Final = tuple(2**power for power in range(10))
_FEWEST: Final = 4
"""Contexts shown whatever the model's longest is."""


def context_text(context: int) -> str:
    """A context on the map's axis: powers of two as people call them, others in full.

    >>> context_text(131072), context_text(512_000)
    ('128k', '512,000')
    """
    return binary_text(context) if context & (context - 1) == 0 else f"{context:,}"


@dataclass(frozen=True)
class Best:
    """Arrays over context and batch: the family that is best, its setting, its speed over the design's as it is."""

    family: NDArray[np.int64]
    """Index into `RemedyMap.families`; -1 for none."""
    setting: NDArray[np.int64]
    """Index into `RemedyMap.changes`; -1 for none."""
    speedup: NDArray[np.float64]
    """NaN where not known."""
    answer: NDArray[np.int64]
    """Index into ANSWERS."""


@dataclass(frozen=True)
class RemedyMap:
    """Every family alone over context and batch, on the design's devices and within the budget."""

    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    families: tuple[str, ...]
    changes: tuple[Change, ...]
    by_family: Mapping[str, NDArray[np.float64]]
    """The best speedup of each family among the settings that fit; NaN where none does."""
    remedies: Best
    """Among the remedies of the KV cache."""
    with_levers: Best
    """Among all families."""

    def to_json(self) -> dict[str, Any]:
        """The map as plain JSON types; each grid is a list per context of a list per batch."""
        return {
            "dims": ["context", "batch"],
            "context": list(self.contexts),
            "batch": list(self.batches),
            **self._best_json(self.remedies),
            "with_levers": self._best_json(self.with_levers),
            "by_family": {name: _numbers(grid) for name, grid in self.by_family.items()},
        }

    def _best_json(self, best: Best) -> dict[str, Any]:
        return {
            "family": [[self.families[at] if at >= 0 else None for at in row] for row in best.family],
            "speedup": _numbers(best.speedup),
            "answer": [[ANSWERS[at] for at in row] for row in best.answer],
            "setting": [[dict(self.changes[at]) if at >= 0 else {} for at in row] for row in best.setting],
        }


def _numbers(grid: NDArray[np.float64]) -> list[list[float | None]]:
    return [[float(value) if np.isfinite(value) else None for value in row] for row in grid]


def remedy_map(evaluator: Evaluator, tried: Sequence[Tried], budgets: Budgets) -> RemedyMap:
    """The map around a design: families' settings that may be combined, at other contexts and batches."""
    single = evaluator.single
    contexts, batches = _contexts(single), _batches(single)
    owners, changes = _alone(tried)
    everything: list[dict[str, Value]] = [
        {**change, "context": context, "batch": batch}
        for change in ({}, *changes)
        for context in contexts
        for batch in batches
    ]
    found = evaluator(everything)
    shape = (len(changes) + 1, len(contexts), len(batches))
    grid = Outcomes({name: found[name].reshape(shape) for name in evaluator.ranked_by})
    speed, allowed, fits = _speedups(grid), within(grid, budgets), grid.fits
    families = tuple(dict.fromkeys(owners))
    usable = np.where(allowed & fits, speed, np.nan)
    by_family = {name: _most(usable[1:][np.array(owners) == name]) for name in families}
    of_cache = np.array([not FAMILIES[name].lever for name in owners], bool)
    numbers = np.array([families.index(name) for name in owners], np.int64)
    return RemedyMap(
        contexts, batches, families, tuple(changes), by_family,
        _best(grid, usable, numbers, of_cache), _best(grid, usable, numbers, np.ones_like(of_cache)),
    )  # fmt: skip


def _alone(tried: Sequence[Tried]) -> tuple[list[str], list[Change]]:
    """Families and changes of the settings that may be combined and need no more devices."""
    pairs = [
        (one.family.name, setting.change)
        for one in tried
        for place, setting in enumerate(one.settings)
        if setting.combines and one.outcomes[DEVICES][place] <= one.before[DEVICES]
    ]
    return [name for name, _ in pairs], [change for _, change in pairs]


def _speedups(grid: Outcomes) -> NDArray[np.float64]:
    speed = np.where(grid.known, grid["tokens_per_second"], np.nan)
    return np.asarray(speed / speed[0])


def _most(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest along the first axis, NaN where there is none."""
    found = np.max(np.where(np.isnan(values), -np.inf, values), axis=0, initial=-np.inf)
    return np.where(np.isfinite(found), found, np.nan)


def _best(grid: Outcomes, usable: NDArray[np.float64], owners: NDArray[np.int64], among: NDArray[np.bool_]) -> Best:
    values = np.where(np.isnan(usable[1:]) | ~among[:, None, None], -np.inf, usable[1:])
    place = np.argmax(values, axis=0) if len(values) else np.zeros(grid.fits.shape[1:], np.int64)
    most = np.max(values, axis=0, initial=-np.inf)
    known, fits, some = grid.known[0], grid.holds[0], np.isfinite(most)
    pays = some & (~fits | (most > WORTH))
    answer = np.where(
        ~known, ANSWERS.index("not_computed"),
        np.where(
            fits,
            np.where(pays, ANSWERS.index("pays"), ANSWERS.index("none_pays")),
            np.where(pays, ANSWERS.index("makes_it_fit"), ANSWERS.index("does_not_fit")),
        ),
    )  # fmt: skip
    chosen = known & pays
    families = owners[place] if len(owners) else np.full_like(place, -1)
    return Best(
        family=np.where(chosen, families, -1),
        setting=np.where(chosen, place, -1),
        speedup=np.where(known & some, most, np.nan),
        answer=answer,
    )


def _contexts(single: SingleDesign) -> tuple[int, ...]:
    own, limit = int(single.number("context")), single.model.max_positions
    shown = [each for place, each in enumerate(_CONTEXTS) if limit is None or each <= limit or place < _FEWEST]
    return tuple(sorted({*shown, own}))


def _batches(single: SingleDesign) -> tuple[int, ...]:
    return tuple(sorted({*_BATCHES, int(single.number("batch"))}))
