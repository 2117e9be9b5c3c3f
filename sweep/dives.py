"""A few good designs, found by always going on with the better half of a box."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from kvwall.sweep.bounds import ADMISSIBLE, BOXES_PER_CALL, INFEASIBLE, REJECTED, Bound, Bounded
from kvwall.sweep.boxes import Ordered
from kvwall.sweep.looseness import Looseness, in_calls

Array: TypeAlias = np.ndarray[Any, Any]

_SEED = 17
_OUT = 1e6
"""Of a half that holds nothing admissible, against logarithms of objectives."""


def dive(bounds: Bound, looseness: Looseness, ordered: Ordered, objectives: int) -> Array:
    """Objective vectors of admissible designs, shape (designs, objectives).

    Each dive weighs the objectives in its own random way, so that the designs are spread over the front.
    """
    random = np.random.default_rng(_SEED)
    boxes = ordered.root(random.integers(0, ordered.roots, BOXES_PER_CALL))
    weights = random.dirichlet(np.full(objectives, 0.5), BOXES_PER_CALL)
    while len(wide := np.flatnonzero(boxes.sizes > 1)):
        halves = boxes[wide].halved(looseness.loosest(boxes[wide]))
        poor = _poverty(in_calls(bounds, halves), np.concatenate([weights[wide], weights[wide]]))
        better = np.where(poor[: len(wide)] <= poor[len(wide) :], 0, len(wide)) + np.arange(len(wide))
        boxes.first[wide], boxes.last[wide] = halves.first[better], halves.last[better]
    found = bounds(boxes)
    vectors: Array = found.best[found.fate == ADMISSIBLE]
    return vectors


def _poverty(found: Bounded, weights: Array) -> Array:
    """How bad the best of each box is: the weighted logarithm of its objectives."""
    with np.errstate(all="ignore"):
        size = np.log(np.abs(found.best) + 1e-12)
    logs = np.nan_to_num(np.where(found.best < 0, -size, size), posinf=_OUT, neginf=-_OUT)
    out = np.isin(found.fate, (INFEASIBLE, REJECTED))
    poor: Array = np.sum(weights * logs, axis=1) + _OUT * out
    return poor
