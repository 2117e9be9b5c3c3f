"""How far predicted losses are from those observed: errors, how often the upper curve holds, its pinball loss.

Rows of a source are not independent. With weights, each source counts the same, whatever its number of rows; a user's
own rows count the same each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Of some rows, in the unit of their losses; all but the count are None where there are no rows."""

    n: int
    mae: float | None
    """Mean of |predicted - observed|."""
    mae_no_loss: float | None
    """The same if every prediction were 0."""
    bias: float | None
    """Mean of predicted - observed: above 0 too much loss is predicted."""
    coverage_upper: float | None
    """Share of rows that lose no more than the upper curve says."""
    pinball_upper: float | None
    """Mean pinball loss of the upper curve at its confidence: what a quantile is judged by, less is better."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


def scores(
    observed: ArrayLike, central: ArrayLike, upper: ArrayLike, confidence: float, weights: ArrayLike | None = None
) -> Scores:
    """The scores of rows, each counting the same unless weights are given.

    >>> found = scores([0.1, 0.3], [0.2, 0.2], [0.4, 0.2], 0.9)
    >>> found.n, found.coverage_upper, [round(each, 3) for each in (found.mae, found.mae_no_loss, found.pinball_upper)]
    (2, 0.5, [0.1, 0.2, 0.06])
    """
    found, middle, most = (np.asarray(each, np.float64) for each in (observed, central, upper))
    if not found.size:
        return Scores(0, None, None, None, None, None)
    share = np.ones_like(found) if weights is None else np.asarray(weights, np.float64)

    def mean(values: Floats) -> float:
        return float(np.average(values, weights=share))

    return Scores(
        n=found.size,
        mae=mean(np.abs(middle - found)),
        mae_no_loss=mean(np.abs(found)),
        bias=mean(middle - found),
        coverage_upper=mean((found <= most).astype(np.float64)),
        pinball_upper=mean(pinball(found, most, confidence)),
    )


def pinball(observed: ArrayLike, quantile: ArrayLike, level: float) -> Floats:
    """level*(y - q) where y is above q, (1 - level)*(q - y) below.

    >>> pinball([0.3, 0.1], [0.2, 0.2], 0.9).round(3).tolist()
    [0.09, 0.01]
    """
    above = np.asarray(observed, np.float64) - np.asarray(quantile, np.float64)
    return np.maximum(level * above, (level - 1) * above)


def source_weights(sources: Sequence[str]) -> Floats:
    """A weight for each row with which all sources count the same.

    >>> source_weights(["a", "a", "b"]).tolist()
    [0.5, 0.5, 1.0]
    """
    count = Counter(sources)
    return np.array([1 / count[source] for source in sources], dtype=np.float64)


def best_constant(observed: ArrayLike, level: float, weights: ArrayLike) -> float:
    """The one number that has the least pinball loss on the very rows it is judged on: their weighted quantile.

    At level 0.5 it has the least mean error. No predictor that knows less than the answers can be sure to beat it.

    >>> best_constant([0.3, 0.1, 0.2], 0.5, [1, 1, 1]), best_constant([0.3, 0.1, 0.2], 0.5, [3, 1, 1])
    (0.2, 0.3)
    """
    found, share = np.asarray(observed, np.float64), np.asarray(weights, np.float64)
    order = np.argsort(found, kind="stable")
    reached = np.cumsum(share[order])
    return float(found[order][np.searchsorted(reached, level * reached[-1] * (1 - 1e-12))])


@dataclass(frozen=True)
class SourceScores:
    """Of rows of several sources, each source counting the same, beside the constants that suit these rows best."""

    sources: int
    scores: Scores
    constant: float
    """Mean error of the best constant."""
    upper_constant: float
    """Pinball loss of the best constant."""
    covered: float
    """Share of rows that lose no more than the upper curve says, each row counting the same."""


def source_scores(
    observed: Floats, central: Floats, upper: Floats, sources: Sequence[str], level: float
) -> SourceScores:
    """The scores of some rows; `level` is the upper losses'.

    >>> found = source_scores(*np.array([[0.1, 0.3], [0.2, 0.2], [0.4, 0.2]]), ["a", "b"], 0.9)
    >>> found.sources, found.covered, round(found.constant, 3), round(found.upper_constant, 3)
    (2, 0.5, 0.1, 0.01)
    """
    share = source_weights(sources)
    middle, high = best_constant(observed, 0.5, share), best_constant(observed, level, share)
    return SourceScores(
        sources=len(set(sources)),
        scores=scores(observed, central, upper, level, share),
        constant=float(np.average(np.abs(observed - middle), weights=share)),
        upper_constant=float(np.average(pinball(observed, high, level), weights=share)),
        covered=float(np.mean(observed <= upper)),
    )
