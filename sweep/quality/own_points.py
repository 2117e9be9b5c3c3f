"""The user's own measured points: a record whose curves they move and whose upper curves they bring closer.

A point is evidence for one curve, that of its method and task: for a factor on its hazard, which published rows leave
open by the curve's own spread (`factors`). The record is for the user's own tasks: the central curve goes to the
likeliest mean of the subtasks measured. The upper curve leaves room for another subtask and setting with 90 %
confidence, but is never farther off than it was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from kvwall.spaces.quality import Narrowed, QualityCurves, curve_key
from kvwall.spaces.quality_methods import load_methods
from kvwall.sweep.quality.factors import Posterior, Scatter, likelihood, losses_at_factors, posterior, scatter_of
from kvwall.sweep.quality.prediction import curve_name, sees_question
from kvwall.sweep.quality.rows import FULL, Row
from kvwall.sweep.quality.terms import Floats

LEVEL: Final = 0.9
"""Confidence at which upper curves are set; at others the same share of the distance is left."""
HIGHEST_GAIN: Final = 0.2
"""Published rows gain at most 0.16 of their score by compression: more is a mistake, such as two scores swapped."""


@dataclass(frozen=True)
class CurveId:
    """A curve of the record."""

    remedy: str
    name: str
    task: str
    visible: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """Its names in `QualityCurves.narrowed`: two where the question makes no difference to the method."""
        seen = (self.visible,) if self.remedy != "evictor" or self.scores_by_question else (True, False)
        return tuple(curve_key(self.remedy, self.name, self.task, each) for each in seen)

    @property
    def scores_by_question(self) -> bool:
        """Whether it is of an evictor that has one curve with the question visible, and another one without."""
        return self.remedy == "evictor" and load_methods()["evictor"].by_question(self.name)

    @property
    def family(self) -> str:
        """Whose upper curve is its own."""
        if self.remedy == "activation":
            return self.remedy
        return load_methods()[self.remedy].family(self.name, question_visible=self.visible)


@dataclass(frozen=True)
class NarrowedCurve:
    """A curve that points have changed."""

    curve: CurveId
    change: Narrowed
    rows: tuple[Row, ...]
    replaced: int
    """Points that the record it started from had narrowed it by, which do not count any more."""


@dataclass(frozen=True)
class OwnRecord:
    """A record with points of the user's own."""

    curves: QualityCurves
    narrowed: tuple[NarrowedCurve, ...]
    refused: Mapping[str, tuple[str, ...]]
    """Row id -> reasons."""

    @property
    def used(self) -> tuple[Row, ...]:
        """The rows that count, curve by curve."""
        return tuple(row for each in self.narrowed for row in each.rows)


def narrow(rows: Sequence[Row], curves: QualityCurves, errors: Mapping[str, float] | None = None) -> OwnRecord:
    """The record with the evidence of measured rows; curves that none of them is of stay as they are.

    A curve that the record has narrowed before starts again from its published form, so that no point counts twice.

    Args:
        rows: measured, with ids of their own.
        curves: the record to start from.
        errors: row id -> standard error of its loss, where it is known.
    """
    refused = {row.id: reasons for row in rows if (reasons := tuple(refusals(row)))}
    of_curves: dict[CurveId, list[Row]] = defaultdict(list)
    seen: dict[Row, str] = {}
    for row in rows:
        if row.id in refused:
            continue
        same = seen.setdefault(replace(row, id="", source=""), row.id)
        if same != row.id:
            refused[row.id] = (f"it is there already: {same} is the same point",)
        else:
            of_curves[curve_of_row(row)].append(row)
    found = tuple(_narrowed(curve, own, curves, errors or {}) for curve, own in of_curves.items())
    changes = {key: each.change for each in found for key in each.curve.keys}
    return OwnRecord(replace(curves, narrowed=curves.narrowed | changes), found, refused)


def refusals(row: Row) -> list[str]:
    """Why a row is no evidence for a curve."""
    found = []
    taken = remedies_of(row)
    if not taken:
        found.append(
            "nothing is compressed at its setting, so it says nothing of any curve: measure fewer bits or tokens"
        )
    if len(taken) > 1:
        words = " and ".join(_WORDS[each] for each in taken)
        found.append(f"it takes {words} at once, and which of them loses cannot be told: measure one remedy at a time")
    if len(row.parts) != 1:
        found.append("it is an average of easy and hard tasks, which have curves of their own: give its subtasks")
    if not math.isfinite(row.loss):
        found.append("its loss is not a finite number")
    elif row.loss < -HIGHEST_GAIN:
        found.append(f"its score is {-row.loss:.0%} better than the baseline's: are the two swapped?")
    return found


def remedies_of(row: Row) -> tuple[str, ...]:
    """What a row compresses."""
    bits = {"quantizer": min(row.key_bits, row.value_bits), "weight_quantizer": row.weight_bits}
    bits["activation"] = row.activation_bits
    return (*(["evictor"] if row.kept < 1 else []), *(name for name, value in bits.items() if value < FULL))


_WORDS: Final = {
    "evictor": "eviction", "quantizer": "KV bits", "weight_quantizer": "weight bits", "activation": "activation bits",
}  # fmt: skip


def curve_of_row(row: Row) -> CurveId:
    """The curve that a row of one remedy and one part is evidence for."""
    (remedy,), (part,) = remedies_of(row), row.parts
    name = remedy if remedy == "activation" else curve_name(getattr(row, remedy), remedy)
    visible = remedy != "evictor" or sees_question(row)
    return CurveId(remedy, name, part.task, visible)


def _narrowed(curve: CurveId, rows: Sequence[Row], curves: QualityCurves, errors: Mapping[str, float]) -> NarrowedCurve:
    scatter = scatter_of(curve.remedy, curve.family)
    log_spread = log_spread_of(curve, curves)
    z = NormalDist().inv_cdf(LEVEL)
    between = max(scatter.between, math.sqrt(max((log_spread / z) ** 2 - scatter.within**2, 0.0)))
    likelihoods = _likelihoods(curve, rows, curves, errors)
    found = posterior(likelihoods, between, scatter)
    log_factor = _of_own_subtasks(likelihoods, between, scatter).mode
    distance = max(found.quantile(LEVEL) - log_factor, z * scatter.within)
    before = [curves.narrowed[key].points for key in curve.keys if key in curves.narrowed]
    change = Narrowed(
        log_factor=log_factor,
        remaining=min(distance / log_spread, 1.0) if log_spread > 0 else 1.0,
        points=len(rows),
    )
    return NarrowedCurve(curve, change, tuple(rows), max(before, default=0))


def _of_own_subtasks(likelihoods: Mapping[str, Floats], between: float, scatter: Scatter) -> Posterior:
    """What is known of the mean over the subtasks measured, whose own deviations are part of it."""
    many = len(likelihoods)
    shared = scatter.subtask / math.sqrt(many)
    apart = scatter.subtask * math.sqrt(1 - 1 / many)
    return posterior(likelihoods, math.hypot(between, shared), replace(scatter, subtask=apart))


def _likelihoods(
    curve: CurveId, rows: Sequence[Row], curves: QualityCurves, errors: Mapping[str, float]
) -> dict[str, Floats]:
    """Subtask -> likelihood of its points by the published curve."""
    published = replace(curves, narrowed={key: each for key, each in curves.narrowed.items() if key not in curve.keys})
    found = {}
    for subtask in sorted({row.parts[0].subtask for row in rows}):
        own = [row for row in rows if row.parts[0].subtask == subtask]
        losses = losses_at_factors(own, [curve.remedy] * len(own), published)
        found[subtask] = likelihood(own, losses, [errors.get(row.id) for row in own])
    return found


def log_spread_of(curve: CurveId, curves: QualityCurves) -> float:
    """The logarithm of the factor between a curve and its upper one at `LEVEL`."""
    fitted = curves.upper[curve.remedy][curve.family][curve.task]
    return float(np.interp(LEVEL, curves.confidences, fitted.log_spread))
