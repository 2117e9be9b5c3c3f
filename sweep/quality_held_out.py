"""Upper quality curves: how far above curves fitted without their source rows lie, and what shift covers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kvwall.spaces.quality import TASKS, HeldOut
from kvwall.sweep.quality_rows import Row

CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels at which the upper curves are tabulated."""


@dataclass(frozen=True)
class Margin:
    """How far above its left-out-source curve a row lies: ln(observed hazard / curve), -inf where nothing was lost."""

    task: str
    curves: tuple[str, ...]
    source: str
    value: float


Hazard = Callable[[Row], float | None]
"""Hazard at a row's settings under fitted curves; None where its curve has too few rows and is borrowed."""


def held_out_margins(rows: Sequence[Row], fit: Callable[[Sequence[Row]], Hazard]) -> list[Margin]:
    """Margins of the rows under curves fitted without their source, where another source measured the same curve."""
    margins = []
    for source in sorted({row.source for row in rows}):
        hazard = fit([row for row in rows if row.source != source])
        for row in rows:
            predicted = hazard(row) if row.source == source else None
            if predicted is not None:
                observed = row.hazard
                value = float(np.log(observed / predicted)) if observed > 0 else -np.inf
                margins.append(Margin(row.task, row.curves, source, value))
    return margins


def upper_curve(margins: Sequence[Margin], borrowed_from: str | None) -> HeldOut:
    """Shifts that cover each confidence's share of left-out rows when the shift, too, has not seen their source.

    The plain quantile covers less than it says on a new source, so its level is raised until it does not, though
    by no more than half of what is missing to 1: a lone outlier must not set the curve.
    """
    levels = {confidence: _raised_level(margins, confidence) for confidence in CONFIDENCES}
    return HeldOut(
        shifts=tuple(np.maximum.accumulate([_shift(margins, level) for level in levels.values()]).tolist()),
        rows=len(margins),
        sources=len({margin.source for margin in margins}),
        coverage_unraised=_coverage(margins, 0.9),
        coverage=_coverage(margins, levels[0.9]),
        borrowed_from=borrowed_from,
    )


def _raised_level(margins: Sequence[Margin], confidence: float) -> float:
    most = (1 + confidence) / 2
    levels = np.linspace(confidence, most, 11)
    return min((float(level) for level in levels if _coverage(margins, float(level)) >= confidence), default=most)


def _shift(margins: Sequence[Margin], level: float) -> float:
    return max(0.0, float(np.quantile([margin.value for margin in margins], level, method="higher")))


def _coverage(margins: Sequence[Margin], level: float) -> float:
    """Share of rows at or below the shift that the other sources' rows give at this quantile."""
    covered = 0
    for source in {margin.source for margin in margins}:
        shift = _shift([margin for margin in margins if margin.source != source], level)
        covered += sum(margin.value <= shift for margin in margins if margin.source == source)
    return float(covered / len(margins))


def upper_curves(margins: Sequence[Margin]) -> dict[str, HeldOut]:
    """Upper curve per task, and per curve and task; what fewer than three sources measured has the wider group's."""
    pooled = [margin for margin in margins if margin.task != "perplexity"]
    upper = {}
    for task in TASKS:
        own = [margin for margin in margins if margin.task == task]
        upper[task] = upper_curve(own, None) if _enough(own) else upper_curve(pooled, "all accuracy tasks")
        for name in sorted({name for margin in own for name in margin.curves}):
            of_curve = [margin for margin in own if name in margin.curves]
            if _enough(of_curve):
                upper[f"{name} {task}"] = upper_curve(of_curve, None)
    return upper


def _enough(margins: Sequence[Margin]) -> bool:
    return len({margin.source for margin in margins}) >= 3
