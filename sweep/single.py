"""One design, checked and evaluated in full precision, with the records it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np

from kvwall.objectives.register import Evaluation, evaluation_of, metric_register
from kvwall.objectives.step import Step, evaluate_step
from kvwall.spaces.axes import Value
from kvwall.spaces.columns import Catalogue, Columns, calibration_of, curves_of
from kvwall.spaces.design import Design
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.hardware import Hardware, load_hardware
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import load_model
from kvwall.spaces.modes import CEILING, check_mode
from kvwall.spaces.quality import QualityCurves
from kvwall.spaces.quality_columns import QualityParameters
from kvwall.spaces.quality_record_columns import check_confidence, quality_parameters
from kvwall.spaces.space import Space, make_space
from kvwall.spaces.vetoes import HARD_RETRIEVAL, VetoRules, checked_vetoes, trait_names

_T = TypeVar("_T")


@dataclass(frozen=True)
class SingleDesign:
    """One design with the records it came from and the step that all its metrics are computed from."""

    inputs: Mapping[str, Value]
    """Every axis's value."""
    stated: frozenset[str]
    """Axes the user set; the others are neutral."""
    model: Model
    hardware: Hardware
    catalogue: Catalogue
    """Of this one model and hardware, in full precision."""
    task: str
    confidence: float
    design: Design
    step: Step
    evaluation: Evaluation

    @property
    def mode(self) -> str:
        """Ceiling or estimate."""
        return self.catalogue.mode

    def number(self, axis: str) -> float:
        """The value of a numeric axis."""
        return float(self.inputs[axis])


def single_design(
    axes: Mapping[str, object],
    *,
    task: str,
    confidence: float,
    mode: str,
    assume: Mapping[str, str],
    calibration: str = "",
    allow_veto: Sequence[str] = (),
    budgeted: Sequence[str] = (),
    quality_curves: str = "",
) -> SingleDesign:
    """The design that one value per axis states, evaluated. Raises InputError with every fault.

    Vetoes in `allow_veto` are not imposed. Tasks in `budgeted` are in the workload besides `task`.
    """
    faults = Faults()
    stated = {name: _one_value(name, value, faults) for name, value in axes.items()}
    space = attempt(faults, lambda: make_space(stated))
    name, chip = stated.get("model"), stated.get("hardware")
    model = attempt(faults, lambda: load_model(name)) if isinstance(name, str) and name else None
    hardware = attempt(faults, lambda: load_hardware(chip, assume)) if isinstance(chip, str) and chip else None
    attempt(faults, lambda: check_mode(mode))
    attempt(faults, lambda: calibration_of(mode, calibration) if calibration else None)
    attempt(faults, lambda: _check_task(task))
    curves = attempt(faults, lambda: curves_of(quality_curves))
    attempt(faults, lambda: _check_level(curves, confidence))
    allowed = attempt(faults, lambda: checked_vetoes(allow_veto))
    faults.raise_if_any()
    if space is None or model is None or hardware is None or curves is None or allowed is None:
        raise InputError("state one model and one hardware by name or path")
    rules = VetoRules(allowed, any(one in HARD_RETRIEVAL for one in (task, *budgeted)))
    quality = _parameters(curves, confidence, model)
    catalogue = Catalogue((model,), (hardware,), quality, curves, calibration_of(mode, calibration), rules)
    return _evaluated(space, frozenset(axes), catalogue, task, confidence)


def changed_design(single: SingleDesign, change: Mapping[str, Value]) -> SingleDesign:
    """The design with other values of some axes, not of model and hardware. Raises InputError with every fault."""
    space = make_space({**single.inputs, **change})
    return _evaluated(space, single.stated | change.keys(), single.catalogue, single.task, single.confidence)


def ceiling_of(single: SingleDesign) -> SingleDesign:
    """The same design in ceiling mode."""
    design, step = replace(single.design, calibrated=None), single.step.ceiling
    with jax.enable_x64(True):
        evaluation = evaluation_of(design, step, single.task)
    catalogue = replace(single.catalogue, calibration=None)
    return replace(single, catalogue=catalogue, design=design, step=step, evaluation=evaluation)


def _evaluated(
    space: Space, stated: frozenset[str], catalogue: Catalogue, task: str, confidence: float
) -> SingleDesign:
    with jax.enable_x64(True):
        design = Columns(space, catalogue).design({})
        step = evaluate_step(design)
        evaluation = evaluation_of(design, step, task)
    (model,), (hardware,) = catalogue.models, catalogue.hardware
    return SingleDesign(space.point(0), stated, model, hardware, catalogue, task, confidence, design, step, evaluation)


def attempt(faults: Faults, action: Callable[[], _T]) -> _T | None:
    """What the action returns; where it raises InputError, its faults are recorded and the answer is None."""
    try:
        return action()
    except InputError as error:
        faults.absorb(error)
        return None


def plain(value: object) -> object:
    """NumPy scalars as the Python numbers that axes take."""
    return value.item() if isinstance(value, np.generic) else value


def _check_task(task: object) -> None:
    if not isinstance(task, str):
        raise InputError(f"task = {task!r}: it takes a name in quotes")
    metric_register(task, CEILING)


def _check_level(curves: QualityCurves | None, confidence: object) -> None:
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise InputError(f"confidence = {confidence!r} is not a number: use a fraction such as 0.9")
    if curves is not None:
        check_confidence(curves, confidence)


def _parameters(curves: QualityCurves, confidence: float, model: Model) -> QualityParameters:
    own = quality_parameters(curves, confidence, [trait_names(model)])
    doubled: QualityParameters = jax.tree.map(_double, own)
    return doubled


def _double(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A column of the quality record, which is stored for grids, in the precision of a single design."""
    return column.astype(np.float64) if column.dtype == np.float32 else column


def _one_value(name: str, value: object, faults: Faults) -> object:
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and len(value) != 1):
        faults.add(f"{name} takes one value here; `crossover` takes lists and a study takes grids")
        return next(iter(value), None) if isinstance(value, list | tuple) else value
    return plain(value[0] if isinstance(value, list | tuple) else value)
