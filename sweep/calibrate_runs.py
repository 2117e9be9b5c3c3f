"""Estimates adapted to runs of one's own: the record that follows, and how far off it was before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.calibration import RECORD, Calibration, load_calibration
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.accuracy import Accuracy, accuracy
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.calibration.update import updated
from kvwall.sweep.runs import read_runs
from kvwall.sweep.speed_prediction import predict, usable_steps
from kvwall.sweep.validate_speed import errors_of_predictions, nothing_usable


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


def check_out(path: Path) -> None:
    """Refuse a file name that no record can have, before anything is computed. Raises InputError with every fault."""
    faults = Faults()
    if path.suffix != ".json":
        faults.add(f"--out {path}: give a name that ends in .json; the covariance lies beside it, in .parquet")
    if path.is_dir():
        faults.add(f"--out {path} is a folder: give a file's name")
    elif path.resolve() == RECORD.resolve():
        faults.add(f"--out {path} is the shipped record: give another name")
    if not path.parent.is_dir():
        faults.add(f"--out {path}: there is no folder {path.parent}: make it, or choose another")
    faults.raise_if_any()


def write_adapted(adapted: Adapted, path: Path) -> None:
    """Write the record's two files. Raises InputError where they cannot be written."""
    try:
        write_record(adapted.record, path)
    except OSError as fault:
        raise InputError(f"--out {path} cannot be written ({fault.strerror or fault}): choose another place") from fault
