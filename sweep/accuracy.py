"""How well predictions match what was measured: errors of rows, and their summary for all or by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Accuracy:
    """Errors of some rows; all but the count are None where there are no rows."""

    n: int
    mape: float | None
    """Mean of |predicted / measured - 1|, each row in its own unit."""
    median_ape: float | None
    """Median of the same."""
    bias: float | None
    """Mean of predicted / measured - 1, each row in its own unit."""
    coverage: float | None
    """Share of the rows between the 10 % and the 90 % bound."""
    bias_time: float | None = None
    """Mean of predicted / measured - 1 of the times that the rows state or imply: above 0 too slow."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class Errors:
    """Of rows, one entry each."""

    relative: Floats
    """predicted / measured - 1 in the row's own unit."""
    slower: Floats
    """The same of the time."""
    inside: NDArray[np.bool_]
    """Whether the measured number lies inside the band."""

    def __len__(self) -> int:
        return len(self.relative)

    def chosen(self, places: NDArray[np.int64]) -> Errors:
        """These of the rows."""
        return Errors(self.relative[places], self.slower[places], self.inside[places])


def errors_of(log_ratio: Floats, half_width: Floats, is_rate: NDArray[np.bool_]) -> Errors:
    """Errors from ln(predicted time / measured time) and half the width of the band in ln time.

    >>> found = errors_of(np.log([1.25, 0.8]), np.array([0.1, 0.3]), np.array([False, True]))
    >>> found.relative.round(3).tolist(), found.slower.round(3).tolist(), found.inside.tolist()
    ([0.25, 0.25], [0.25, -0.2], [False, True])
    """
    own = np.where(is_rate, -log_ratio, log_ratio)
    return Errors(np.expm1(own), np.expm1(log_ratio), np.abs(log_ratio) <= half_width)


def accuracy(errors: Errors) -> Accuracy:
    """The summary of rows.

    >>> accuracy(Errors(np.array([0.1, -0.3]), np.array([0.1, -0.3]), np.array([True, False]))).mape
    0.2
    """
    if not len(errors):
        return Accuracy(0, None, None, None, None)
    size = np.abs(errors.relative)
    return Accuracy(
        n=len(errors),
        mape=float(size.mean()),
        median_ape=float(np.median(size)),
        bias=float(errors.relative.mean()),
        coverage=float(errors.inside.mean()),
        bias_time=float(errors.slower.mean()),
    )


def grouped(
    labels: Sequence[Mapping[str, str]], errors: Errors, groupings: Sequence[Sequence[str]]
) -> list[tuple[dict[str, str], Accuracy]]:
    """Accuracy by the values of each grouping's labels; groups of a grouping in the order of their first row."""
    found = []
    for names in groupings:
        places: dict[tuple[str, ...], list[int]] = {}
        for place, own in enumerate(labels):
            places.setdefault(tuple(own[name] for name in names), []).append(place)
        for values, members in places.items():
            by = dict(zip(names, values, strict=True))
            found.append((by, accuracy(errors.chosen(np.array(members)))))
    return found
