"""`crossover`: the context at which KV passes weights, in bytes and in time, for one design or many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.metrics import crossover_context_bytes, crossover_context_time
from kvwall.objectives.register import not_built
from kvwall.objectives.status import layout_possible, step_sourced
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import Value
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.design import Design
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.hardware import load_hardware
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import load_model
from kvwall.spaces.modes import CEILING, DEFAULT_MODE, ESTIMATE, check_mode
from kvwall.spaces.space import Space, make_space
from kvwall.sweep.endless import never_in_time, no_crossover
from kvwall.sweep.single import attempt, plain

MOST_ROWS: Final = 100_000
BYTES: Final = "crossover_context_bytes"
TIME: Final = "crossover_context_time"
_POSSIBLE: Final = "possible"
_ALWAYS_SHOWN: Final = ("model", "hardware", "batch")
ANSWER: Final = "context"
"""The axis that is asked for."""
NO_CONTEXT: Final = "context: the answer is a context, and does not depend on one: leave it out"
_ANY_CONTEXT: Final = 1
"""A design must have a context; the crossover does not depend on it."""


@dataclass(frozen=True)
class CrossoverRow:
    """One design's crossover, in tokens; null with the reason."""

    axes: Mapping[str, Value]
    """Model, hardware, batch and every axis stated."""
    crossover_context_bytes: float | None
    crossover_context_time: float | None
    reason: str | None
    flags: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return {
            **self.axes,
            "crossover_context_bytes": self.crossover_context_bytes,
            "crossover_context_time": self.crossover_context_time,
            "reason": self.reason,
            "flags": list(self.flags),
        }


def crossover(*, mode: str = DEFAULT_MODE, calibration: str = "", **axes: object) -> tuple[CrossoverRow, ...]:
    """The crossover of every combination of the axes' values; each axis takes one value or a list, context none.

    `calibration` is the path of a record of `kvwall calibrate`, for estimates; the shipped one where it is blank.
    In bytes: a step reads as many KV bytes as weight bytes. In time, in estimates: attention takes as long as all else.

    Raises InputError with every fault of the arguments.

    >>> rows = crossover(mode="ceiling", model="paper/llama-3-70b", hardware="paper/h100", batch=[1, 32])
    >>> [round(row.crossover_context_bytes) for row in rows]
    [427246, 13351]
    """
    space = _space(axes, mode)
    columns = Columns(space, load_catalogue(space, mode=mode, calibration=calibration))
    positions = dict(zip(space.dims, np.indices(space.shape, sparse=True), strict=True))
    with jax.enable_x64(True):
        arrays = _computed(columns.design(positions), mode)
        found = {name: np.broadcast_to(np.asarray(each), space.shape).ravel() for name, each in arrays.items()}
    shown = [name for name in space_order(space) if name in axes or name in _ALWAYS_SHOWN]
    models = {str(name): load_model(str(name)) for name in space.values("model")}
    rows = ({name: array[place] for name, array in found.items()} for place in range(space.size))
    return tuple(_row(space.point(place), shown, models, row) for place, row in enumerate(rows))


def _computed(design: Design, mode: str) -> dict[str, Any]:
    """What a row is made of; the time crossover in estimate mode only, NaN where a figure has no source."""
    step = evaluate_step(design)
    found = {BYTES: crossover_context_bytes(design, step), _POSSIBLE: layout_possible(design)}
    if mode == ESTIMATE:
        found[TIME] = jnp.where(step_sourced(design), crossover_context_time(design, step), jnp.nan)
    return found


def space_order(space: Space) -> list[str]:
    """Axes as rows name them: model, hardware and batch first."""
    others = (values.axis.name for values in space.axes)
    return list(dict.fromkeys([*_ALWAYS_SHOWN, *others]))


def _space(axes: Mapping[str, object], mode: str) -> Space:
    faults = Faults()
    attempt(faults, lambda: check_mode(mode))
    if ANSWER in axes:
        faults.add(NO_CONTEXT)
    stated = {name: _plain_all(value) for name, value in axes.items() if name != ANSWER}
    space = attempt(faults, lambda: make_space({ANSWER: _ANY_CONTEXT} | stated))
    if space is None:
        for name in _names(stated.get("model")):
            attempt(faults, lambda name=name: load_model(name))  # type: ignore[misc]
        for name in _names(stated.get("hardware")):
            attempt(faults, lambda name=name: load_hardware(name))  # type: ignore[misc]
    faults.raise_if_any()
    if space is None or space.size > MOST_ROWS:
        size = space.size if space else 0
        raise InputError(f"{size:,} combinations: `crossover` lists at most {MOST_ROWS:,}; use a study for more")
    return space


def _plain_all(value: object) -> object:
    return [plain(each) for each in value] if isinstance(value, list | tuple | np.ndarray) else plain(value)


def _names(stated: object) -> list[str]:
    return [name for name in (stated if isinstance(stated, list) else [stated]) if isinstance(name, str) and name]


def _row(
    point: Mapping[str, Value], shown: list[str], models: Mapping[str, Model], found: Mapping[str, Any]
) -> CrossoverRow:
    in_bytes, in_time = (_finite(found.get(name)) for name in (BYTES, TIME))
    model = models[str(point["model"])]
    flags = [*model.flags]
    limit, longest = model.max_positions, max(in_bytes or 0.0, in_time or 0.0)
    if limit is not None and longest > limit:
        flags.append(f"beyond the model's stated context of {limit:,}")
    if not found[_POSSIBLE]:
        flags.append("these devices cannot split the model, or the axes contradict each other: `evaluate` says which")
    axes = {name: point[name] for name in shown}
    return CrossoverRow(axes, in_bytes, in_time, _reason(model, in_bytes, found.get(TIME)), tuple(flags))


def _finite(number: Any) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def _reason(model: Model, in_bytes: float | None, in_time: Any) -> str | None:
    """Why a crossover is null; None where both are numbers."""
    if in_bytes is None:
        return no_crossover(model)
    if in_time is None:
        return f"{TIME}: {not_built(CEILING)[TIME]}"
    if math.isnan(in_time):
        return f"{TIME}: a figure of the device has no source: `evaluate` says which"
    return None if math.isfinite(in_time) else f"{TIME}: {never_in_time(model)}"
