"""Measured speeds against estimates: predictions with their bands, errors for all and by group, the rows left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.calibration import RECORD, Calibration, load_calibration
from kvwall.spaces.errors import InputError
from kvwall.sweep.accuracy import Accuracy, Errors, accuracy, grouped
from kvwall.sweep.runs import Runs, read_runs
from kvwall.sweep.speed_groups import GROUPINGS, band_place, labels_of
from kvwall.sweep.speed_prediction import Predicted, collapsed, predict, reason_counts, usable_steps

MOST_LISTED: Final = 20
"""Refused rows that are told one by one; more are told by reason."""


@dataclass(frozen=True)
class SpeedReport:
    """The comparison of all files."""

    predictions: tuple[Predicted, ...]
    refused: Mapping[str, Sequence[str]]
    """Row id, or file and place -> reasons."""
    record: Calibration

    @cached_property
    def errors(self) -> Errors:
        """Of the predictions."""
        return errors_of_predictions(self.predictions)

    @property
    def overall(self) -> Accuracy:
        """Over all predictions."""
        return accuracy(self.errors)

    @cached_property
    def labels(self) -> list[dict[str, str]]:
        """What each prediction is grouped by."""
        return [labels_of(each.usable, each.routed) for each in self.predictions]

    @cached_property
    def groups(self) -> list[tuple[dict[str, str], Accuracy]]:
        """By every grouping: bands in their order, other groups by their rows, most first."""
        found = grouped(self.labels, self.errors, GROUPINGS)
        order = {name: place for place, (name,) in enumerate(GROUPINGS)}
        return sorted(found, key=lambda one: (order[next(iter(one[0]))], band_place(one[0]), -one[1].n))

    @property
    def outside(self) -> int:
        """Predictions that are extrapolated."""
        return sum(bool(each.because) for each in self.predictions)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "overall": self.overall.to_json(),
            "groups": [{"by": by} | found.to_json() for by, found in self.groups],
            "refused": [{"id": name, "reason": "; ".join(reasons)} for name, reasons in self.refused.items()],
            "predictions": [_prediction(each) for each in self.predictions],
            "calibration": {"version": self.record.version, "fitted": self.record.fitted, "rows": self.record.rows},
        }


def _prediction(each: Predicted) -> dict[str, Any]:
    return {
        "id": each.id,
        "measured": each.measured,
        "predicted": each.predicted,
        "low": each.low,
        "high": each.high,
        "extrapolated": bool(each.because),
        "extrapolated_because": list(each.because),
        "metric": each.usable.row.metric,
        "unit": each.usable.row.unit,
        "engine": each.engine,
        "repeats": each.repeats,
    }


def errors_of_predictions(predictions: Sequence[Predicted]) -> Errors:
    """Errors of rows in their own units."""
    predicted, measured = (
        np.array([getattr(each, name) for each in predictions]) for name in ("predicted", "measured")
    )
    own = predicted / measured
    is_rate = np.array([each.is_rate for each in predictions], dtype=bool)
    inside = np.array([each.low <= each.measured <= each.high for each in predictions], dtype=bool)
    return Errors(own - 1, np.where(is_rate, 1 / own, own) - 1, inside)


def validate_speed(
    paths: Sequence[Path], stated: Mapping[str, str], calibration: Path | None = None, *, collapse: bool = False
) -> SpeedReport:
    """Compare the rows of files with the shipped record, or with another.

    Args:
        paths: files that `kvwall.sweep.runs.read_runs` reads.
        stated: what they leave open, by the names of `kvwall.sweep.runs.OPTIONS`.
        calibration: a record of `kvwall calibrate`.
        collapse: one row per configuration, the median of its repeats.

    Raises:
        InputError: with every fault of the files; or why no row can be used.
    """
    record = load_calibration(calibration or RECORD)
    return compare(read_runs(paths, stated), record, collapse=collapse)


def compare(runs: Runs, record: Calibration, *, collapse: bool = False) -> SpeedReport:
    """Compare rows with a record. Raises InputError where no row can be used."""
    steps, refused = usable_steps(runs.rows, load_aliases())
    refused = {**runs.refused, **refused}
    if steps is None:
        raise nothing_usable(refused)
    found, unpredicted = predict(steps, record)
    refused |= unpredicted
    if not found:
        raise nothing_usable(refused)
    return SpeedReport(collapsed(found) if collapse else found, refused, record)


def nothing_usable(refused: Mapping[str, Sequence[str]]) -> InputError:
    """Why none of the rows can be used: row by row, or by reason where they are many."""
    head = "no row can be used"
    if not refused:
        return InputError(f"{head}: the files hold none")
    if len(refused) <= MOST_LISTED:
        return InputError(f"{head}: {name}: {reason}" for name, reasons in refused.items() for reason in reasons)
    return InputError(
        f"{head}: {reason} ({count} row{'s' * (count > 1)})" for reason, count in reason_counts(refused).items()
    )
