"""What estimates are worth on rows left out of the fit: one table per way of leaving out, form and group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.accuracy import Errors, accuracy
from kvwall.sweep.calibration.forms import CHOSEN, FORMS
from kvwall.sweep.calibration.held_out import HeldOut
from kvwall.sweep.calibration.spreads import covered_elsewhere
from kvwall.sweep.calibration.steps import MeasuredSteps
from kvwall.sweep.speed_groups import GROUPINGS, labels_of

Mask: TypeAlias = NDArray[np.bool_]

PURE_BANDWIDTH: Final = ("llamacpp", "gpt-fast")
"""Engines whose rows at batch 1 are little but reading weights."""


def accuracy_report(
    steps: MeasuredSteps,
    left_out: Mapping[str, HeldOut],
    by_chip: HeldOut,
    refused: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Everything that the page on accuracy shows; rows faster than can be are refused.

    Args:
        steps: the rows, repeats as their median.
        left_out: form -> predictions of every row without its pair of model and chip.
        by_chip: predictions of the chosen form without the row's chip. Coverage, as for pairs, is that of bands whose
            spreads were set on other rows.
        refused: rows without a prediction.
    """
    chosen = left_out[CHOSEN]
    of_pairs, of_chips = covered_elsewhere(steps, chosen, by_chip)
    reasons = Counter(why for each in refused.values() for why in each)
    reasons["faster than the ceiling by more than a quarter"] += int(np.sum(steps.too_fast))
    return {
        "rows": len(steps),
        "forms": [
            {"name": name, "meaning": meaning, **_both(steps, left_out[name], None)}
            for name, (meaning, _) in FORMS.items()
        ],
        "left_out": {"pair": _both(steps, chosen, of_pairs), "chip": _both(steps, by_chip, of_chips)},
        "pure_bandwidth": score(steps, chosen, of_pairs, _pure(steps)),
        "groups": [{"by": by, **score(steps, chosen, of_pairs, mask)} for by, mask in _groups(steps)],
        "chips": [
            {"by": by, **score(steps, by_chip, of_chips, mask)} for by, mask in _groups(steps) if "hardware" in by
        ],
        "refused": dict(sorted(reasons.items())),
    }


def score(steps: MeasuredSteps, left: HeldOut, inside: Mask | None, which: Mask) -> dict[str, Any]:
    """n, mape, median_ape, bias and coverage of these rows' times, as fractions; coverage is null without bands."""
    kept = np.logical_and(which, ~steps.too_fast)
    off = np.expm1(left.log_ratio[kept])
    numbers = accuracy(Errors(off, off, np.zeros(len(off), bool) if inside is None else inside[kept])).to_json()
    del numbers["bias_time"]  # all are times
    return {**numbers, "coverage": None} if inside is None else numbers


def _both(steps: MeasuredSteps, left: HeldOut, inside: Mask | None) -> dict[str, Any]:
    return {
        "dense": score(steps, left, inside, ~steps.routed),
        "experts": score(steps, left, inside, steps.routed),
    }


def _pure(steps: MeasuredSteps) -> Mask:
    alone = np.array([int(usable.axes["batch"]) == 1 for usable in steps.rows])
    found: Mask = np.logical_and(alone, np.array([steps.cells[cell][0] in PURE_BANDWIDTH for cell in steps.cell]))
    return found


def _groups(steps: MeasuredSteps) -> Iterator[tuple[dict[str, str], Mask]]:
    """Groups of one label each, and by source."""
    labels = [
        {**labels_of(row, bool(routed)), "source": row.row.id.partition("-")[0]}
        for row, routed in zip(steps.rows, steps.routed, strict=True)
    ]
    for name in (*(grouping[0] for grouping in GROUPINGS), "source"):
        values = np.array([each[name] for each in labels])
        yield from (({name: str(value)}, values == value) for value in np.unique(values))
