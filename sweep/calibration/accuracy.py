"""What estimates are worth on rows left out of the fit: one table per way of leaving out, form and group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.calibration.forms import CHOSEN, FORMS
from kvwall.sweep.calibration.held_out import HeldOut
from kvwall.sweep.calibration.spreads import Spreads
from kvwall.sweep.calibration.steps import MeasuredSteps

Mask: TypeAlias = NDArray[np.bool_]

BANDS: Final = (1, 2, 8, 32, 128)
"""Lower ends of the bands of batch."""
CONTEXTS: Final = (1, 512, 2048, 8192)
"""Lower ends of the bands of context, in tokens."""
PURE_BANDWIDTH: Final = ("llamacpp", "gpt-fast")
"""Engines whose rows at batch 1 are little but reading weights."""


def accuracy_report(
    steps: MeasuredSteps,
    left_out: Mapping[str, HeldOut],
    by_chip: HeldOut,
    spreads: Spreads,
    refused: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Everything that the page on accuracy shows; rows faster than can be are refused.

    Args:
        steps: the rows, repeats as their median.
        left_out: form -> predictions of every row without its pair of model and chip.
        by_chip: predictions of the chosen form without the row's chip.
        spreads: of the bands.
        refused: rows without a prediction.
    """
    chosen = left_out[CHOSEN]
    reasons = Counter(why for each in refused.values() for why in each)
    reasons["faster than the ceiling by more than a quarter"] += int(np.sum(steps.too_fast))
    return {
        "rows": len(steps),
        "forms": [
            {"name": name, "meaning": meaning, **_both(steps, left_out[name], None)}
            for name, (meaning, _) in FORMS.items()
        ],
        "left_out": {"pair": _both(steps, chosen, spreads), "chip": _both(steps, by_chip, spreads)},
        "pure_bandwidth": score(steps, chosen, spreads, _pure(steps)),
        "groups": [
            {"by": {kind: value}, **score(steps, chosen, spreads, mask)}
            for kind, of in GROUPS.items()
            for value, mask in _groups(steps, of)
        ],
        "refused": dict(sorted(reasons.items())),
    }


def score(steps: MeasuredSteps, left: HeldOut, spreads: Spreads | None, which: Mask) -> dict[str, Any]:
    """n, mape, median_ape, bias and coverage of these rows, as fractions; coverage without spreads is null."""
    kept = np.logical_and(which, ~steps.too_fast)
    if not np.any(kept):
        return {"n": 0, "mape": None, "median_ape": None, "bias": None, "coverage": None}
    off = np.expm1(left.log_ratio[kept])
    inside = spreads.covered(steps.routed, left)[kept] if spreads else None
    return {
        "n": int(np.sum(kept)),
        "mape": float(np.mean(np.abs(off))),
        "median_ape": float(np.median(np.abs(off))),
        "bias": float(np.mean(off)),
        "coverage": None if inside is None else float(np.mean(inside)),
    }


def _both(steps: MeasuredSteps, left: HeldOut, spreads: Spreads | None) -> dict[str, Any]:
    return {
        "dense": score(steps, left, spreads, ~steps.routed),
        "experts": score(steps, left, spreads, steps.routed),
    }


def _pure(steps: MeasuredSteps) -> Mask:
    alone = np.array([int(usable.axes["batch"]) == 1 for usable in steps.rows])
    found: Mask = np.logical_and(alone, np.array([steps.cells[cell][0] in PURE_BANDWIDTH for cell in steps.cell]))
    return found


def _band(number: float, lower: tuple[int, ...]) -> str:
    at = [each for each in lower if each <= number][-1]
    above = [each for each in lower if each > number]
    return f"{at} to {above[0] - 1}" if above else f"{at} and more"


def _precision(steps: MeasuredSteps, at: int) -> str:
    axes = steps.rows[at].axes
    weights = steps.rows[at].row.weight_precision.partition(" (")[0] or "not stated"
    return f"weights {weights}, KV {float(axes['key_bits']):g}"


GROUPS: Final[Mapping[str, Callable[[MeasuredSteps, int], str]]] = {
    "hardware": lambda steps, at: steps.cells[steps.cell[at]][1].name,
    "engine": lambda steps, at: steps.cells[steps.cell[at]][0],
    "model": lambda steps, at: steps.rows[at].model,
    "precision": _precision,
    "context": lambda steps, at: _band(float(int(steps.rows[at].axes["context"])), CONTEXTS),
    "batch": lambda steps, at: _band(float(int(steps.rows[at].axes["batch"])), BANDS),
    "source": lambda steps, at: steps.rows[at].row.id.partition("-")[0],
}
"""What rows are grouped by."""


def _groups(steps: MeasuredSteps, of: Callable[[MeasuredSteps, int], str]) -> list[tuple[str, Mask]]:
    names = np.array([of(steps, at) for at in range(len(steps))])
    return [(str(name), names == name) for name in np.unique(names)]
