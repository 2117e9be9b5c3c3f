"""Score many trials in one compiled call of fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import LABELS, STATUS_OK, Evaluation, evaluate, metric_register
from kvwall.objectives.status import STATUSES
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import Value
from kvwall.spaces.columns import with_number
from kvwall.spaces.design import Design
from kvwall.sweep.compiling import COMPILED_SOON
from kvwall.sweep.objective import Constraint
from kvwall.sweep.search.parameters import Parameters, Params

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

BATCH = 50
"""Trials asked, scored and told together."""

_CANNOT = 10.0
"""Violation of a design that no amount of tuning makes possible; memory overruns are below it."""
_LEAST = 1e-9
"""A violated constraint is never rounded to zero."""
_MEMORY = STATUSES.index("memory")


@dataclass(frozen=True)
class Scores:
    """What a study asks of some designs; row i belongs to design i."""

    objectives: Floats
    """(designs, objectives), as the metrics are; NaN where a figure has no source."""
    violations: Floats
    """(designs, rules) in the order of `rules`, at most 0 where a rule is kept, scaled to its bound."""
    status: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def admissible(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(designs,) whether every rule is kept."""
        kept: np.ndarray[Any, np.dtype[np.bool_]] = np.all(self.violations <= 0, axis=1)
        return kept

    def __len__(self) -> int:
        return len(self.status)


class Evaluator:
    """Scores batches of trials of a study; compiles once."""

    def __init__(self, study: Study, parameters: Parameters) -> None:
        self.study = study
        self.parameters = parameters
        self.rules = ("status", "sourced", *(str(constraint) for constraint in study.constraints))
        self._columns = study.columns()
        self._score = jax.jit(self._scores)
        self._describe = jax.jit(self._evaluation, compiler_options=dict(COMPILED_SOON))

    def __call__(self, batch: Sequence[Params]) -> Scores:
        """Scores of the trials, BATCH at a time in float32; the last batch is padded."""
        parts = [self._padded(batch[first : first + BATCH]) for first in range(0, len(batch), BATCH)]
        objectives, violations, status = (np.concatenate(each) for each in zip(*parts, strict=True))
        return Scores(objectives.astype(np.float64), violations.astype(np.float64), status.astype(np.int64))

    def _padded(self, batch: Sequence[Params]) -> list[np.ndarray[Any, Any]]:
        filled = [*batch, *[batch[0]] * (BATCH - len(batch))]
        scored = self._score(self.parameters.positions(filled), self.parameters.numbers(filled))
        return [np.asarray(part)[: len(batch)] for part in scored]

    def _scores(self, positions: Any, numbers: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        design = self._design(positions, numbers)
        step = evaluate_step(design)
        register = metric_register(self.study.task, self.study.mode)

        def value(name: str) -> Any:
            return jnp.where(register[name].sourced(design), register[name].law(design, step), jnp.nan)

        objectives = [value(objective.metric) for objective in self.study.objectives]
        sourced = reduce(jnp.logical_and, [register[each.metric].sourced(design) for each in self.study.objectives])
        status = LABELS["status"].law(design, step)
        shortage = jnp.clip(-step.memory.margin / design.hardware.memory_capacity, _LEAST, _CANNOT)
        violations = [
            jnp.where(status == STATUS_OK, 0.0, jnp.where(status == _MEMORY, shortage, _CANNOT)),
            jnp.where(sourced, 0.0, _CANNOT),
            *(_violation(value(each.metric), each) for each in self.study.constraints),
        ]
        return _rows(objectives), _rows(violations), jnp.broadcast_to(status, (BATCH,))

    def describe(self, batch: Sequence[Params]) -> list[dict[str, Value | None]]:
        """Axes, metrics (float64, None where there is no number) and labels of the trials' designs.

        The objectives are as they were compared, in float32.
        """
        if not batch:
            return []
        objectives = self(batch).objectives
        with jax.enable_x64(True):
            parts = [self._described(batch[first : first + BATCH]) for first in range(0, len(batch), BATCH)]
        found = jax.tree.map(lambda *columns: np.concatenate(columns), *parts)
        metrics = {name: np.where(found.sourced[name], value, np.nan) for name, value in found.metrics.items()}
        for place, objective in enumerate(self.study.objectives):
            metrics[objective.metric] = objectives[:, place]
        columns = {name: _column(value, len(batch)) for name, value in metrics.items()}
        labels = {name: _column(value, len(batch)) for name, value in found.labels.items()}
        return [
            self.parameters.chosen(params)
            | {name: float(column[row]) if np.isfinite(column[row]) else None for name, column in columns.items()}
            | {name: LABELS[name].meanings[int(column[row])] for name, column in labels.items()}
            for row, params in enumerate(batch)
        ]

    def _described(self, batch: Sequence[Params]) -> Evaluation:
        filled = [*batch, *[batch[0]] * (BATCH - len(batch))]
        found = self._describe(self.parameters.positions(filled), self.parameters.numbers(filled))
        cut: Evaluation = jax.tree.map(lambda column: np.asarray(column)[: len(batch)], found)
        return cut

    def _evaluation(self, positions: Any, numbers: Any) -> Evaluation:
        found = evaluate(self._design(positions, numbers), self.study.task)
        full: Evaluation = jax.tree.map(lambda column: jnp.broadcast_to(column, (BATCH,)), found)
        return full

    def _design(self, positions: Any, numbers: Any) -> Design:
        design = self._columns.design(positions)
        space = self.parameters.space
        for entry in space.axes:
            name = entry.axis.name
            dimension = space.dimension_of(name)
            if dimension in numbers:
                design = with_number(design, name, numbers[dimension])
        return design


def _column(values: Any, rows: int) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.asarray(values).reshape(-1), (rows,))


def _rows(parts: Sequence[Any]) -> jax.Array:
    return jnp.stack([jnp.broadcast_to(part, (BATCH,)) for part in parts], axis=-1)


def _violation(value: Any, constraint: Constraint) -> jax.Array:
    """Distance outside the bounds as a fraction of the bound (absolute for a bound of 0); NaN is far outside."""
    outside = jnp.full_like(value, _LEAST)
    for bound, side in ((constraint.low, -1.0), (constraint.high, 1.0)):
        if bound is not None:
            outside = jnp.maximum(outside, side * (value - bound) / (abs(bound) or 1.0))
    far = jnp.where(jnp.isnan(value), _CANNOT, jnp.minimum(outside, _CANNOT))
    return jnp.where(constraint.allows(value), 0.0, far)
