"""The Pareto front of finished results: the stored exact one, or another among the points that are stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import netCDF4
import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS, metric_named
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.front import Front
from kvwall.sweep.objective import Objective, signed
from kvwall.sweep.store import open_front, open_results
from kvwall.sweep.store.front_file import ROW, front_image
from kvwall.sweep.stored_front import admissible, front_of_stored
from kvwall.sweep.study import Study
from kvwall.sweep.where import Where, held, where_text

EXACT: Final = "exact front of the whole grid"
SLICE: Final = "front among the points of the stored slice; designs that were not stored are not considered"
OF_FRONT: Final = (
    "front among the designs of the study's own front; others of the grid may be better by these objectives: "
    "name them in [objectives] and run `kvwall sweep`, or store their metrics with [sweep] keep"
)
OF_DATASET: Final = "front among the points of the dataset given"
BASIS: Final = "basis"
"""Attribute of the answer that says among which points the front was taken."""
_MAXIMIZED: Final = (
    "tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user", "memory_margin", "max_batch",
    "max_context",
)  # fmt: skip
_MINIMIZED: Final = (
    "time_per_output_token", "weight_bytes_read", "kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved",
    "energy_per_token", "cost_per_million_tokens", "quality_loss",
)  # fmt: skip


def pareto(
    results: str | Path | xr.Dataset,
    objectives: str | Sequence[str | Objective] | None = None,
    where: Where | None = None,
) -> xr.Dataset:
    """Non-dominated admissible designs (status ok, every constraint of the study met), one row along `point`.

    Args:
        results: a results folder, or a dataset of stored points (`kvwall.open(folder)` or a selection from it), or of
            a front. Of a folder with the study's own objectives the answer is the exact front of the whole grid; else
            the attribute `basis` says among which points it was taken.
        objectives: names, each "metric", "maximize:metric" or "minimize:metric", as a list or one text with commas.
            The study's by default.
        where: axis -> one stored value, such as {"context": 131072}: the front among the stored points that have it.

    Raises:
        InputError: naming every fault of the objectives, or what is not stored.
    """
    if isinstance(results, xr.Dataset):
        return _of_dataset(results, objectives, where or {})
    front = open_front(results)
    study = _study(front)
    asked = read_objectives(objectives, study)
    if where:
        with open_results(results) as stored:
            return _of_stored(study, asked, held(_with_all(study, asked, stored), where, study), _slice_where(where))
    if asked == study.objectives:
        return front.assign_attrs({BASIS: EXACT, **_told(asked)})
    needed = _needed(study, asked)
    if needed <= set(study.keep):
        with open_results(results) as stored:
            return _of_stored(study, asked, stored, SLICE)
    return _front_of_rows(study, asked, front, OF_FRONT)


def read_objectives(stated: str | Sequence[str | Objective] | None, study: Study) -> tuple[Objective, ...]:
    """Objectives as a user names them. Raises InputError with every fault."""
    if stated is None:
        return study.objectives
    words = stated.split(",") if isinstance(stated, str) else stated
    faults = Faults()
    found = []
    for word in words:
        try:
            found.append(word if isinstance(word, Objective) else _objective(word.strip(), study))
        except InputError as error:
            faults.absorb(error)
    names = [objective.metric for objective in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        faults.add(f'"{name}" is named twice among the objectives: name it once')
    if not words or words == [""]:
        faults.add("no objective: name at least one metric, such as maximize:tokens_per_second_per_device")
    faults.raise_if_any()
    return tuple(found)


def _objective(word: str, study: Study) -> Objective:
    sense, _, name = word.rpartition(":")
    if name in AXES:
        raise InputError(
            f'"{name}" is an axis, not a metric: hold it at a value with --where {name}=VALUE '
            f'(in Python where={{"{name}": VALUE}})'
        )
    if name in LABELS:
        raise InputError(f'"{name}" is a label, not a number: name a metric, such as tokens_per_second_per_device')
    metric_named(name, study.task, study.mode)
    match sense.strip().lower():
        case "maximize" | "max":
            return Objective(name, "maximize")
        case "minimize" | "min":
            return Objective(name, "minimize")
        case "":
            return _with_usual_sense(name, study)
        case other:
            raise InputError(f'"{other}:{name}": write maximize:{name} or minimize:{name}')


def _with_usual_sense(name: str, study: Study) -> Objective:
    for objective in study.objectives:
        if objective.metric == name:
            return objective
    if name in _MAXIMIZED:
        return Objective(name, "maximize")
    if name in _MINIMIZED or name.startswith("quality_loss"):
        return Objective(name, "minimize")
    raise InputError(f'"{name}" could be wanted large or small: write maximize:{name} or minimize:{name}')


def _study(dataset: xr.Dataset) -> Study:
    text = dataset.attrs.get("study_toml")
    if not isinstance(text, str):
        raise InputError("the dataset carries no study (attribute study_toml): give one that kvwall has written")
    return Study.from_text(text, "the study that the results carry")


def _told(objectives: Sequence[Objective]) -> dict[str, list[str]]:
    return {"objectives": [f"{objective.sense} {objective.metric}" for objective in objectives]}


def _needed(study: Study, objectives: Sequence[Objective]) -> set[str]:
    return {objective.metric for objective in objectives} | {one.metric for one in study.constraints}


def _of_dataset(dataset: xr.Dataset, objectives: str | Sequence[str | Objective] | None, where: Where) -> xr.Dataset:
    study = _study(dataset)
    asked = read_objectives(objectives, study)
    chosen = held(_with_all(study, asked, dataset), where, study)
    basis = f"{OF_DATASET} with {where_text(where)}" if where else OF_DATASET
    if ROW in chosen.dims:
        return _front_of_rows(study, asked, chosen, basis)
    return _of_stored(study, asked, chosen, basis)


def _slice_where(where: Where) -> str:
    among, _, rest = SLICE.partition(";")
    return f"{among} with {where_text(where)};{rest}"


def _with_all(study: Study, asked: Sequence[Objective], dataset: xr.Dataset) -> xr.Dataset:
    """The dataset. Raises InputError where it lacks an objective, a constraint or the status."""
    missing = sorted((_needed(study, asked) | {"status"}) - set(map(str, dataset.data_vars)))
    if missing:
        raise InputError(
            f"the dataset does not hold {', '.join(missing)}: add it to [sweep] keep and run `kvwall sweep`, or give "
            "the results folder, whose front holds every metric"
        )
    return dataset


def _front_of_rows(study: Study, objectives: Sequence[Objective], rows: xr.Dataset, basis: str) -> xr.Dataset:
    """Rows of a front that stay non-dominated by other objectives; of those that tie the first, with how many do."""
    found = {str(name): array.values for name, array in rows.data_vars.items()}
    kept = np.flatnonzero(admissible(study.constraints, objectives, found))
    front = Front(len(objectives), np.float64)
    front.add(signed(objectives, found)[kept], kept)
    order = np.argsort(front.index)
    return _answer(rows.isel({ROW: front.index[order]}), objectives, basis, front.multiplicity[order])


def _of_stored(study: Study, objectives: Sequence[Objective], stored: xr.Dataset, basis: str) -> xr.Dataset:
    """Exact among the stored points; the rows hold every metric unrounded."""
    table = front_of_stored(study, objectives, stored)
    with netCDF4.Dataset("front.nc", memory=front_image(study, table)) as file:
        store = xr.backends.NetCDF4DataStore(file)  # type: ignore[no-untyped-call]
        rows = xr.open_dataset(store, decode_timedelta=False).load()
    return _answer(rows, objectives, basis, table.multiplicity)


def _answer(
    rows: xr.Dataset, objectives: Sequence[Objective], basis: str, multiplicity: NDArray[np.int64]
) -> xr.Dataset:
    """Rows with how many designs of the basis tie with each, and what was asked."""
    about = {"long_name": "designs of the basis whose objectives tie exactly with this one, itself included"}
    counted = rows.assign(multiplicity=(ROW, multiplicity, {"units": "1", **about}))
    return counted.assign_attrs({BASIS: basis, "summary": basis, **_told(objectives)})


def rows_of(front: xr.Dataset) -> list[dict[str, Any]]:
    """The rows of a front as plain records: every axis and metric by name, labels in words, NaN and infinity None."""
    names = [str(name) for name in (*front.coords, *front.data_vars) if ROW in front[name].dims or not front[name].dims]
    columns = {name: _plain_column(front[name], front.sizes[ROW]) for name in names}
    return [{name: column[row] for name, column in columns.items()} for row in range(front.sizes[ROW])]


def _plain_column(array: xr.DataArray, rows: int) -> list[Any]:
    if "flag_meanings" in array.attrs and array.dtype.kind != "b":
        words = str(array.attrs["flag_meanings"]).split()
        codes = np.atleast_1d(array.attrs["flag_values"]).tolist()
        return [words[codes.index(int(code))] for code in np.broadcast_to(array.values, rows)]
    values = np.broadcast_to(array.values, rows).tolist()
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]
