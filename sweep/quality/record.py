"""From fitted effects to the record that ships: the curve of every name and task, and what each rests on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kvwall.spaces.quality import (
    EvictionTables,
    Evidence,
    FittedBits,
    FittedBudget,
    FittedEviction,
    FittedUpper,
    QualityCurves,
    Tables,
)
from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality import hierarchy
from kvwall.sweep.quality.rows import FULL, Named, Row
from kvwall.sweep.quality.terms import FAMILIES, Floats
from kvwall.sweep.quality.upper import CONFIDENCES, REMEDIES, UPPER_FAMILIES, Upper, rising

VERSION: Final = "2"
_SMALLEST_BITS: Final = 2.0
_SMALLEST_RETENTION: Final = 0.016
"""Below these the rows are too few, of too few sources, to say what a new one will lose."""
Effects = Mapping[str, Floats]
UpperTables = dict[str, dict[str, dict[str, FittedUpper]]]
"""Remedy -> family -> task."""


def record_of(
    rows: Sequence[Row],
    excluded: Mapping[str, int],
    effects: Effects,
    subtasks: Mapping[str, int],
    upper: UpperTables,
    fitted: str,
    stamp: str,
) -> QualityCurves:
    """The record.

    Args:
        rows: that were fitted.
        excluded: rows that were not, by reason.
        effects: of the central fit.
        subtasks: subtask -> its place among the effects.
        upper: of the upper fits, see `upper_tables`.
        fitted: the date of the fit.
        stamp: see `stamp`.
    """
    evictors = load_methods()["evictor"]
    scored = [name for name in evictors.all if evictors.by_question(name)]
    return QualityCurves(
        version=VERSION,
        fitted=fitted,
        stamp=stamp,
        rows=len(rows),
        sources=len({row.source for row in rows}),
        excluded=dict(excluded),
        smallest_bits=_SMALLEST_BITS,
        smallest_retention=_SMALLEST_RETENTION,
        key_share=float(hierarchy.key_share(effects)),
        confidences=CONFIDENCES,
        quantizer=_quantizers(rows, effects),
        rounding=_named(FAMILIES["quantizer"], hierarchy.rounding(effects)),
        outlier_keys=float(effects["outliers"]),
        evictor=_evictors(rows, effects, evictors.all, visible=True),
        evictor_hidden=_evictors(rows, effects, scored, visible=False),
        weight_quantizer=_weights(rows, effects),
        activation=_activations(rows, effects),
        small_budget=FittedBudget(float(hierarchy.small_budget_hazard(effects)), hierarchy.SMALL),
        upper=upper,
        per_channel=float(effects["per_channel"]),
        subtasks={name: float(effects["subtask"][place]) for name, place in sorted(subtasks.items())},
        narrowed={},
    )


def _quantizers(rows: Sequence[Row], effects: Effects) -> Tables:
    found = {}
    for name in load_methods()["quantizer"].all:
        named = Named(load_methods()["quantizer"].family(name), name)
        own = [row for row in rows if row.quantizer and _speaks_for(row.quantizer, named)]
        curve = _of_tasks(hierarchy.cache_curve, effects, *_places("quantizer", named))
        found[name] = {task: _bits(curve, place, _evidence(own, task, named)) for place, task in enumerate(TASKS)}
    return found


def _evictors(rows: Sequence[Row], effects: Effects, names: Iterable[str], visible: bool) -> EvictionTables:
    found = {}
    for name in names:
        named = Named(load_methods()["evictor"].family(name, question_visible=visible), name)
        family = name == load_methods()["evictor"].family(name)
        asked = Named(named.family, named.family) if family else named
        own = [row for row in rows if row.evictor and _speaks_for(row.evictor, asked)]
        curve = _of_tasks(hierarchy.eviction_curve, effects, *_places("evictor", asked))
        found[name] = {
            task: FittedEviction(
                float(curve.exponent[place]),
                float(curve.log_half[place]),
                float(curve.ceiling[place]),
                _evidence(own, task, asked),
            )
            for place, task in enumerate(TASKS)
        }
    return found


def _weights(rows: Sequence[Row], effects: Effects) -> Tables:
    found = {}
    for place_of_family, family in enumerate(FAMILIES["weight_quantizer"]):
        named = Named(family, family)
        own = [row for row in rows if row.weight_quantizer == named]
        curve = _of_tasks(hierarchy.weight_curve, effects, place_of_family)
        found[family] = {task: _bits(curve, place, _evidence(own, task, named)) for place, task in enumerate(TASKS)}
    return found


def _activations(rows: Sequence[Row], effects: Effects) -> dict[str, FittedBits]:
    own = [row for row in rows if row.activation_bits < FULL]
    curve = hierarchy.activation_curve(effects, np.arange(len(TASKS)))
    named = Named("activation", "activation")
    return {task: _bits(curve, place, _evidence(own, task, named)) for place, task in enumerate(TASKS)}


def _speaks_for(measured: Named, named: Named) -> bool:
    """Whether a row of a method is evidence for a name: of the method itself, or of any of the family's."""
    return measured == named if named.name != named.family else measured.family == named.family


def _of_tasks(law: Any, effects: Effects, family: int, *method: int) -> Any:
    """A curve's leaves of shape (task,)."""
    tasks = np.arange(len(TASKS))
    return law(effects, np.full_like(tasks, family), tasks, *(np.full_like(tasks, each) for each in method))


def _places(remedy: str, named: Named) -> tuple[int, int, int]:
    """Places of the family and of the method, and whether it is one."""
    names = load_methods()[remedy].all
    return FAMILIES[remedy].index(named.family), names.index(named.name), int(named.name != named.family)


def _bits(curve: Any, place: int, evidence: Evidence) -> FittedBits:
    scale, slope, floor = (float(np.asarray(each)[place]) for each in (curve.scale, curve.slope, curve.floor))
    return FittedBits(scale, slope, floor, evidence)


def _evidence(rows: Sequence[Row], task: str, named: Named) -> Evidence:
    own = [row for row in rows if any(part.task == task for part in row.parts)]
    borrowed = None
    if not own:
        borrowed = named.family if named.name != named.family else "other tasks and families"
    return Evidence(len(own), len({row.source for row in own}), borrowed)


def _named(names: Sequence[str], values: Any) -> dict[str, float]:
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def upper_tables(uppers: Mapping[float, Upper]) -> UpperTables:
    """Spread and noise by remedy, family and task; they never fall with confidence."""
    found: UpperTables = {}
    levels = list(rising(uppers).values())
    for remedy in REMEDIES:
        spread, noise = (
            np.stack([getattr(each, field)[remedy] for each in levels]) for field in ("log_spread", "noise")
        )
        found[remedy] = {
            family: {
                task: FittedUpper(tuple(spread[:, row, column].tolist()), tuple(noise[:, row, column].tolist()))
                for column, task in enumerate(TASKS)
            }
            for row, family in enumerate(UPPER_FAMILIES[remedy])
        }
    return found
