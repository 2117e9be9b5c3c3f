"""The sections of a study file that depend on no other: their keys, types and names, checked by pydantic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kvwall.objectives.register import LABELS, metric_named, metric_register
from kvwall.spaces.calibration import load_calibration
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.modes import DEFAULT_MODE, ESTIMATE, check_mode
from kvwall.spaces.quality import load_quality_curves
from kvwall.spaces.quality_record_columns import check_confidence
from kvwall.spaces.quality_tasks import TASK_NAMES, task_rows
from kvwall.spaces.vetoes import checked_vetoes
from kvwall.sweep.keeping import DEFAULT_PROFILE, FULL, known_profile, known_store
from kvwall.sweep.study_file.lines import KeyPath, LocatedFaults

ANY_TASK = TASK_NAMES[0]
"""Names and units of metrics are the same for every task."""
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def known_metric(name: str) -> str:
    """The name, if it is a metric's in some mode. Raises InputError otherwise."""
    if name in LABELS:
        example = next(iter(metric_register(ANY_TASK, ESTIMATE)))
        raise InputError(f'"{name}" is a label, not a number: name a metric, such as {example}')
    return metric_named(name, ANY_TASK, ESTIMATE).name


def _known_result(name: str) -> str:
    if name in LABELS:
        return name
    try:
        return metric_named(name, ANY_TASK, ESTIMATE).name
    except InputError as error:
        close = nearest(name, LABELS)
        raise InputError(f'"{name}" is neither a metric nor a label{close}') if close else error from None


def _folder_name(name: str) -> str:
    if not _FOLDER_NAME.fullmatch(name) or name.endswith("."):
        raise InputError(
            f"name = {name[:60]!r} cannot name a results folder: use at most 100 letters, digits, dots, dashes and "
            "underscores, a letter or digit first and no dot last"
        )
    return name


def _task(name: str) -> str:
    task_rows(name)
    return name


def _confidence(level: float) -> float:
    check_confidence(load_quality_curves(), level)
    return level


def _veto(name: str) -> str:
    checked_vetoes([name])
    return name


def _record_path(path: str) -> str:
    """The path as it holds from any folder. Raises InputError where no record is."""
    if not path:
        return path
    load_calibration(Path(path))
    return str(Path(path).resolve())


def _curves_path(path: str) -> str:
    """The path as it holds from any folder. Raises InputError where no record is."""
    if not path:
        return path
    load_quality_curves(Path(path))
    return str(Path(path).resolve())


class Section(BaseModel):
    """A section: no other keys than those declared, no conversion between types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StudySection(Section):
    """[study]."""

    name: Annotated[str, AfterValidator(_folder_name)]
    mode: Annotated[str, BeforeValidator(check_mode)] = DEFAULT_MODE
    calibration: Annotated[str, AfterValidator(_record_path)] = ""


class QualitySection(Section):
    """[quality]."""

    task: Annotated[str, AfterValidator(_task)] = "aggregate"
    confidence: Annotated[float, AfterValidator(_confidence)] = 0.9
    curves: Annotated[str, AfterValidator(_curves_path)] = ""
    allow_veto: list[Annotated[str, AfterValidator(_veto)]] = []
    budget: dict[str, Any] = {}
    """Checked task by task."""


class BudgetSection(Section):
    """A task of [quality.budget] that states a confidence of its own."""

    max: float
    confidence: Annotated[float, AfterValidator(_confidence)] | None = None


class ObjectivesSection(Section):
    """[objectives]."""

    maximize: list[Annotated[str, AfterValidator(known_metric)]] = []
    minimize: list[Annotated[str, AfterValidator(known_metric)]] = []


class BoundsSection(Section):
    """The bounds of one constraint."""

    min: float | None = None
    max: float | None = None


class SweepSection(Section):
    """[sweep]; what the slice names is checked against the space."""

    store: Annotated[str, AfterValidator(known_store)] = FULL
    profile: Annotated[str, AfterValidator(known_profile)] = DEFAULT_PROFILE
    keep: list[Annotated[str, AfterValidator(_known_result)]] = []
    slice: dict[str, Any] = {}


class OptimizeSection(Section):
    """[optimize]."""

    trials: Annotated[int, Field(ge=1)] = 2000
    continuous: bool = False


_Model = TypeVar("_Model", bound=Section)


def validated(model: type[_Model], table: object, path: KeyPath, faults: LocatedFaults) -> _Model:
    """The section, its faults collected; a stand-in that must not be used where it has any."""
    try:
        return model.model_validate(table)
    except ValidationError as error:
        for detail in error.errors():
            where = (*path, *detail["loc"])
            for fault in _sentences(detail, where, tuple(model.model_fields)):
                faults.add(where, fault)
    return cast("_Model", model.model_construct())


def not_repeated(names: object, path: KeyPath, faults: LocatedFaults) -> None:
    """Record every name that a list holds twice."""
    seen = set()
    for position, name in enumerate(names if isinstance(names, list) else []):
        if isinstance(name, str) and name in seen:
            faults.add((*path, position), f'"{name}" is named twice in {path[-1]}: name it once')
        seen.add(str(name))


_EXPECTED: Mapping[str, str] = {
    "string_type": "write text in quotes",
    "int_type": "write a whole number",
    "float_type": "write a number",
    "bool_type": "write true or false",
    "list_type": "write a list, such as [...]",
    "dict_type": "write a table, such as { key = ... }",
    "model_type": "write a section of keys",
    "greater_than_equal": "it is at least 1",
}


def _sentences(detail: ErrorDetails, path: KeyPath, keys: Sequence[str]) -> tuple[str, ...]:
    key = str(path[-1]) if isinstance(path[-1], str) else f"{path[-2]}[{path[-1]}]"
    match detail["type"]:
        case "value_error":
            error = detail["ctx"]["error"]
            return error.faults if isinstance(error, InputError) else (f"{key}: {error}",)
        case "extra_forbidden":
            section = ".".join(map(str, path[:-1]))
            return (f'"{key}" is no key of [{section}]{nearest(key, keys)}: its keys are {", ".join(keys)}',)
        case "missing":
            return (f"{key} is missing: state it in [{'.'.join(map(str, path[:-1]))}]",)
        case kind:
            return (f"{key} = {repr(detail['input'])[:60]}: {_EXPECTED.get(kind, detail['msg'])}",)
