"""What estimates were worth on rows left out of the fit, as its command wrote it beside the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from kvwall.spaces.calibration import RECORD
from kvwall.spaces.errors import InputError
from kvwall.sweep.accuracy import Accuracy

HELD_OUT: Final = RECORD.with_name("held_out.json")
_REMEDY: Final = "run `python -m kvwall.sweep.calibration.estimate` again"


@dataclass(frozen=True)
class Score:
    """Errors of predicted times of rows that the fit has not seen; all but `n` are None where there are none."""

    n: int
    mape: float | None
    median_ape: float | None
    bias: float | None
    """Above 0: predicted too slow."""
    coverage: float | None
    """None where the form has no bands."""

    @property
    def accuracy(self) -> Accuracy:
        """As comparisons of speeds have it."""
        return Accuracy(self.n, self.mape, self.median_ape, self.bias, self.coverage, self.bias)


@dataclass(frozen=True)
class ByKind:
    """Of dense models and of those with routed experts."""

    dense: Score
    experts: Score


@dataclass(frozen=True)
class FormScore(ByKind):
    """A form of the model that was tried."""

    name: str
    meaning: str


@dataclass(frozen=True)
class GroupScore(Score):
    """Of the rows that one label has in common."""

    by: Mapping[str, str]


@dataclass(frozen=True)
class OwnRows:
    """Median errors of an engine on a chip that the fit has not seen, before and after it is told ten rows of it."""

    chip: str
    engine: str
    rows: int
    before: float
    after: float


@dataclass(frozen=True)
class HeldOutRecord:
    """The whole record."""

    rows: int
    forms: tuple[FormScore, ...]
    left_out: Mapping[str, ByKind]
    """"pair": whole pairs of model and chip were left out, "chip": whole chips."""
    pure_bandwidth: Score
    """Of engines that do little but read weights, at batch 1."""
    groups: tuple[GroupScore, ...]
    chips: tuple[GroupScore, ...]
    """Per chip, of rows predicted without any of the chip."""
    refused: Mapping[str, int]
    """Reason -> rows."""
    own_rows: tuple[OwnRows, ...]

    def of(self, label: str) -> list[GroupScore]:
        """The groups of one label."""
        return [group for group in self.groups if label in group.by]


@cache
def load_held_out(path: Path = HELD_OUT) -> HeldOutRecord:
    """The record. Raises InputError with every fault."""
    try:
        return TypeAdapter(HeldOutRecord).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; {_REMEDY}" for each in fault.errors()
        ) from fault
    except (OSError, ValueError) as fault:
        raise InputError(f"{path}: not a record of rows left out ({fault}); {_REMEDY}") from fault
