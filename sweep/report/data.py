"""What the page is made from: the study and the results of one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.spaces.errors import InputError
from kvwall.sweep.canonical import canonical_json
from kvwall.sweep.store import open_front, open_summary
from kvwall.sweep.store.spec_file import differences, read_spec
from kvwall.sweep.study import Study

STUDY = "study.toml"
_MOST_CHANGES = 6


@dataclass(frozen=True)
class Results:
    """A finished sweep."""

    folder: Path
    study: Study
    front: xr.Dataset
    """Rows along `point`."""
    summary: xr.Dataset | None
    changes: tuple[str, ...]
    """What differs between the catalogue or program that made the results and the present one."""

    @property
    def first(self) -> str:
        """Metric of the first objective."""
        return self.study.objectives[0].metric

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Rows of the front, best first objective first, ties (to six digits) by the next; without a number last."""
        keys = [
            objective.sign * _six_digits(np.asarray(self.front[objective.metric].values, dtype=np.float64))
            for objective in self.study.objectives
        ]
        return np.lexsort(keys[::-1])

    def names(self, axis: str) -> NDArray[Any]:
        """Value of an axis of names, "model" or "hardware", of every row of the front."""
        found: NDArray[Any] = np.broadcast_to(self.front[axis].values, self.front.sizes["point"])
        return found

    def count(self, name: str) -> int | None:
        """One of the summary's totals: points, feasible, admissible; None without a summary."""
        return None if self.summary is None or name not in self.summary else int(self.summary[name])

    @cached_property
    def rejected(self) -> Mapping[str, int]:
        """Constraint -> feasible points that it alone rejects."""
        if self.summary is None or "constraint" not in self.summary:
            return {}
        names = map(str, self.summary["constraint"].values)
        return dict(zip(names, map(int, self.summary["rejected"].values), strict=True))

    def design(self, row: int) -> dict[str, Value]:
        """Every axis's value of one row of the front."""
        return self.study.space.point(int(self.front["grid_index"].values[row]))


def _six_digits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rounded, so that what single precision cannot tell apart ties."""
    size = np.where(np.isfinite(values) & (values != 0), np.abs(values), 1.0)
    scale = 10.0 ** (5 - np.floor(np.log10(size)))
    return np.round(values * scale) / scale


def read_results(folder: Path) -> Results:
    """The results of a folder. Raises InputError where there are none or they cannot be read."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of results; `kvwall sweep` makes one")
    if not (folder / STUDY).is_file():
        raise InputError(f"{folder} holds no {STUDY}: give a folder that `kvwall sweep` has made")
    study = Study.load(folder / STUDY)
    front = open_front(folder)
    summary = open_summary(folder) if (folder / "summary.nc").is_file() else None
    return Results(folder, study, front, summary, _changes(folder, study))


def _changes(folder: Path, study: Study) -> tuple[str, ...]:
    found = [*differences(read_spec(folder), json.loads(canonical_json(study.spec())))]
    more = [f"and {len(found) - _MOST_CHANGES} more"] if len(found) > _MOST_CHANGES else []
    return (*found[:_MOST_CHANGES], *more)
