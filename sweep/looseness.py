"""How much of a box's doubt comes from each of its dimensions: halving the one with most tightens the bounds most."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from kvwall.sweep.bounds import BOXES_PER_CALL, INFEASIBLE, Bound, Bounded
from kvwall.sweep.boxes import Boxes, Ordered

Array: TypeAlias = np.ndarray[Any, Any]

_PROBES = 64
"""Random designs per pair of neighbouring places."""
_CHANGE = 0.1
"""Weight of how much the bounds differ between neighbours, beside how loose the bounds over both are: a dimension
whose best end is known at once is halved last, but before it is all that is left."""
_MOST = 5.0
"""What one probe can count at most: a bound that is infinite says no more than one that is far off."""
_SEED = 6


class Looseness:
    """Measured on random designs, once per problem."""

    def __init__(self, bounds: Bound, ordered: Ordered) -> None:
        random = np.random.default_rng(_SEED)
        self._up_to = [
            np.zeros(length) if named or length == 1 else _accumulated(bounds, ordered.space.shape, dim, random)
            for dim, (length, named) in enumerate(zip(ordered.space.shape, ordered.named, strict=True))
        ]

    def loosest(self, boxes: Boxes) -> Array:
        """The dimension along which each box is to be halved; boxes have one with more than one place."""
        doubts = [up_to[boxes.last[:, dim]] - up_to[boxes.first[:, dim]] for dim, up_to in enumerate(self._up_to)]
        found: Array = np.argmax(np.stack(doubts, axis=1), axis=1)
        return found


def _accumulated(bounds: Bound, shape: tuple[int, ...], dim: int, random: np.random.Generator) -> Array:
    """Doubt of ranges from the first place on: that of a range is the difference of its ends'."""
    pairs = shape[dim] - 1
    first = np.stack([random.integers(0, length, pairs * _PROBES) for length in shape], axis=1).astype(np.int32)
    first[:, dim] = np.repeat(np.arange(pairs), _PROBES)
    second = first.copy()
    second[:, dim] += 1
    one, other, both = (in_calls(bounds, Boxes(*ends)) for ends in ((first, first), (second, second), (first, second)))
    loose = _apart(np.minimum(one.best, other.best), both.best)
    change = _apart(one.best, other.best) + ((one.fate == INFEASIBLE) != (other.fate == INFEASIBLE))[:, None]
    doubt = np.sum(loose + _CHANGE * change, axis=1).reshape(pairs, _PROBES).mean(axis=1)
    return np.concatenate([[0.0], np.cumsum(doubt + 1e-6)])  # never nothing: every dimension has its turn


def _apart(one: Array, other: Array) -> Array:
    """How far apart numbers are, as the logarithm of their ratio."""
    with np.errstate(all="ignore"):
        ratio = np.abs(np.log(np.abs(one) + 1e-12) - np.log(np.abs(other) + 1e-12))
    found: Array = np.minimum(np.nan_to_num(ratio, nan=0.0, posinf=_MOST), _MOST)
    return found


def in_calls(bounds: Bound, boxes: Boxes) -> Bounded:
    """Bounds of any number of boxes."""
    parts = [bounds(boxes[start : start + BOXES_PER_CALL]) for start in range(0, len(boxes), BOXES_PER_CALL)]
    return Bounded(
        np.concatenate([part.best for part in parts]),
        np.concatenate([part.worst for part in parts]),
        np.concatenate([part.fate for part in parts]),
    )
