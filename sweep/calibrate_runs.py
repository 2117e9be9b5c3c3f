"""Estimates adapted to runs of one's own: the record that follows, and how far off it was before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.calibration import COVARIANCE, RECORD, Calibration, load_calibration
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.accuracy import Accuracy, accuracy
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.calibration.update import updated
from kvwall.sweep.runs import read_runs
from kvwall.sweep.speed_prediction import predict, usable_steps
from kvwall.sweep.validate_speed import errors_of_predictions, nothing_usable
from kvwall.sweep.written_file import check_record, holds


@dataclass(frozen=True)
class Adapted:
    """A record and the rows that changed it."""

    record: Calibration
    used: int
    """Rows that it was adapted to."""
    refused: Mapping[str, Sequence[str]]
    """Row id, or file and place -> reasons."""
    before: Accuracy
    """Of the record it started from, on the rows that can be predicted."""
    after: Accuracy
    """Of the adapted one on the same rows, which it has seen."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "version": self.record.version,
            "used": self.used,
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "refused": [{"id": name, "reason": "; ".join(reasons)} for name, reasons in self.refused.items()],
        }


def adapt(paths: Sequence[Path], stated: Mapping[str, str], start: Path | None = None) -> Adapted:
    """Adapt the shipped record, or the one in `start`, to the rows of files.

    Args:
        paths: files that `kvwall.sweep.runs.read_runs` reads.
        stated: what they leave open, by the names of `kvwall.sweep.runs.OPTIONS`.
        start: a record of an earlier call.

    Raises:
        InputError: with every fault of the files; or why no row can be used.
    """
    record = load_calibration(start or RECORD)
    runs = read_runs(paths, stated)
    steps, refused = usable_steps(runs.rows, load_aliases())
    refused = {**runs.refused, **refused}
    if steps is None:
        raise nothing_usable(refused)
    found = updated(record, steps)
    before, after = (accuracy(errors_of_predictions(predict(steps, each)[0])) for each in (record, found))
    return Adapted(found, found.rows - record.rows, refused, before, after)


def check_out(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a name that no record can have, or whose files are something else, before anything is computed.

    Args:
        path: the record's JSON file; its covariance has the same name with another ending.
        inputs: the files of runs, which must stay.

    Raises:
        InputError: with every fault.
    """
    beside = path.with_suffix(".parquet")
    check_record(path, inputs, RECORD, (beside,), "; the covariance lies beside it, in .parquet")
    faults = Faults()
    if path.exists() and not holds(path, {"terms", "reach"}):
        faults.add(f"--out {path} is there and is no calibration record: give another name, or remove it")
    if beside.exists() and not _is_covariance(beside):
        faults.add(f"--out {path} would overwrite {beside}, which is no part of a record: give another name")
    faults.raise_if_any()


def _is_covariance(path: Path) -> bool:
    try:
        return list(pyarrow.parquet.read_schema(path).names) == [COVARIANCE]
    except (OSError, pa.ArrowException):
        return False


def write_adapted(adapted: Adapted, path: Path) -> None:
    """Write the record's two files. Raises InputError where they cannot be written."""
    try:
        write_record(adapted.record, path)
    except OSError as fault:
        raise InputError(f"--out {path} cannot be written ({fault.strerror or fault}): choose another place") from fault
