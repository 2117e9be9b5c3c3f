"""Quality curves: the fitted record of how much compressed KV caches and weights lose.

The record is data (`catalog/quality/curves.json`, written by `sweep/quality_fit.py`); here it is typed, checked
and turned into the numeric columns of `quality_columns`. The laws are in `objectives/quality.py`.

Every curve is a *hazard* h >= 0, zero at neutral settings. In accuracy tasks the loss relative to the 16-bit,
full-cache model is 1 - exp(-h); in perplexity it is h = ln(PPL/PPL0) itself. The upper curve of a confidence is the
same curve with its hazard multiplied by exp(shift).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from kvwall.spaces.confidence import Confidence, by_row, rows_from
from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.quality_columns import BitCurve, EvictionCurve, QualityParameters, WeightCurve

__all__ = [
    "EVICTORS",
    "QUANTIZERS",
    "RECORD",
    "TASKS",
    "BitCurve",
    "Evidence",
    "EvictionCurve",
    "FittedBits",
    "FittedEviction",
    "HeldOut",
    "QualityCurves",
    "QualityParameters",
    "WeightCurve",
    "load_quality_curves",
    "task_rows",
]

TASKS = ("aggregate", "retrieval_easy", "retrieval_hard", "reasoning", "code", "summarisation", "perplexity")
QUANTIZERS = ("structure_aware", "naive_grouped", "naive")
EVICTORS = ("query_aware", "query_agnostic", "heavy_hitter", "reconstruction", "position", "random")
RECORD = Path(__file__).parent / "catalog" / "quality" / "curves.json"

Leaf: TypeAlias = Any
"""A NumPy array here, concrete while a function is traced and on no device; a jax.Array once gathered in one."""

_WORST_OF = {task: (row,) for row, task in enumerate(TASKS)} | {
    "retrieval": (TASKS.index("retrieval_easy"), TASKS.index("retrieval_hard"))
}


def task_rows(name: str) -> tuple[int, ...]:
    """Rows of the task axis whose worst loss is the loss of this task; raises InputError for an unknown one.

    >>> task_rows("retrieval"), task_rows("aggregate")
    ((1, 2), (0,))
    """
    return _WORST_OF[_known("task", name, tuple(_WORST_OF))]


def _known(axis: str, name: str, allowed: Sequence[str]) -> str:
    if name in allowed:
        return name
    raise InputError(f'{axis} "{name}" is unknown{nearest(name, allowed)}: use one of {", ".join(allowed)}')


@dataclass(frozen=True)
class Evidence:
    """What a curve rests on."""

    rows: int
    sources: int
    borrowed_from: str | None
    """The parent whose numbers it carries, or is drawn to; None when its own rows decide."""


@dataclass(frozen=True)
class FittedBits:
    """One fitted curve over bits: hazard `scale` at 4 bits of everything, `slope` per bit, `floor` at 8 bits."""

    scale: float
    slope: float
    floor: float
    evidence: Evidence


@dataclass(frozen=True)
class FittedEviction:
    """One fitted eviction curve."""

    exponent: float
    log_half: float
    ceiling: float
    evidence: Evidence


@dataclass(frozen=True)
class HeldOut:
    """Upper curve set on rows of sources left out of the fit."""

    shifts: tuple[float, ...]
    """ln of the hazard factor at each confidence of the record; rising, >= 0."""
    rows: int
    sources: int
    coverage_unraised: float
    """Share of left-out rows at or below a plain 90 % quantile curve that saw nothing of their source."""
    coverage: float
    """The same once the quantile's level is raised to cover 90 %, as the shifts are."""
    borrowed_from: str | None


@dataclass(frozen=True)
class QualityCurves:
    """The whole fitted record, with its provenance."""

    version: str
    fitted: str
    rows: int
    sources: int
    excluded: dict[str, int]
    """Rows not fitted, by reason."""
    smallest_bits: float
    """Below this the curves extrapolate."""
    smallest_retention: float
    key_share: float
    """Share of the KV hazard that keys carry at equal bits."""
    confidences: tuple[float, ...]
    quantizer: dict[str, dict[str, FittedBits]]
    """By quantizer, then task."""
    evictor: dict[str, dict[str, dict[str, FittedEviction]]]
    """By evictor, then "visible" or "hidden", then task."""
    weight: dict[str, FittedBits]
    held_out: dict[str, dict[str, HeldOut]]
    """By remedy (quantizer, evictor, weight), then task or, where three sources allow, curve and task.

    Such as "retrieval_easy", "position visible retrieval_easy".
    """

    def parameters(self, confidence: Confidence) -> QualityParameters:
        """All columns, the upper curves at this confidence, or each task's at its own; shapes as the classes state.

        Raises InputError when a confidence lies outside the record's table (0.5 to 0.99), or two differ on one row.
        """
        levels = by_row(confidence, _WORST_OF)
        return rows_from({level: self.parameters_at(level) for level in levels}, levels)

    def parameters_at(self, confidence: float) -> QualityParameters:
        """All columns, the upper curves of all tasks at one confidence."""
        return QualityParameters(
            self.quantizer_columns(confidence), self.evictor_columns(confidence), self.weight_columns(confidence)
        )

    def quantizer_columns(self, confidence: float) -> BitCurve:
        """Columns of shape (task, quantizer) for the quantizer axis."""

        def column(read: Callable[[FittedBits], float]) -> Leaf:
            return _float32([[read(self.quantizer[name][task]) for name in QUANTIZERS] for task in TASKS])

        scale = column(lambda curve: curve.scale)
        return BitCurve(
            key_scale=self.key_share * scale,
            value_scale=(1 - self.key_share) * scale,
            slope=column(lambda curve: curve.slope),
            floor=column(lambda curve: curve.floor),
            spread=_spread(np.stack([self.upper_shift("quantizer", name, confidence) for name in QUANTIZERS], axis=-1)),
        )

    def evictor_columns(self, confidence: float) -> EvictionCurve:
        """Columns of shape (task, evictor, question_visible) for those two axes; index 0 = hidden, 1 = visible."""

        def column(read: Callable[[FittedEviction], float]) -> Leaf:
            return _float32(
                [
                    [[read(self.evictor[name][seen][task]) for seen in ("hidden", "visible")] for name in EVICTORS]
                    for task in TASKS
                ]
            )

        exponent = column(lambda curve: curve.exponent)
        names = [f"{name} {seen}" for name in EVICTORS for seen in ("hidden", "visible")]
        shifts = [self.upper_shift("evictor", name, confidence) for name in names]
        return EvictionCurve(
            exponent=exponent,
            log_half=column(lambda curve: curve.log_half),
            ceiling=column(lambda curve: curve.ceiling),
            spread=_spread(np.stack(shifts, axis=-1).reshape(exponent.shape)),
        )

    def weight_columns(self, confidence: float) -> WeightCurve:
        """Columns of shape (task,) for the weight-bits axis."""

        def column(read: Callable[[FittedBits], float]) -> Leaf:
            return _float32([read(self.weight[task]) for task in TASKS])

        return WeightCurve(
            scale=column(lambda curve: curve.scale),
            slope=column(lambda curve: curve.slope),
            floor=column(lambda curve: curve.floor),
            spread=_spread(self.upper_shift("weight", "", confidence)),
            log_ratio=_log_ratio(),
        )

    def upper_shift(self, remedy: str, curve: str, confidence: float) -> NDArray[np.float32]:
        """Natural log of the upper curve's hazard factor, shape (task,).

        Remedy is quantizer, evictor or weight; curve such as "naive", "position visible" or, for weights, "".
        A curve without a shift of its own has its remedy's. Interpolated linearly between the record's confidences;
        raises InputError outside them.
        """
        low, high = self.confidences[0], self.confidences[-1]
        if not low <= confidence <= high:
            raise InputError(
                f"confidence {confidence} is outside {low} to {high}, the range the quality curves were checked on: "
                f"use a fraction such as 0.9"
            )
        table = self.held_out[_known("remedy", remedy, tuple(self.held_out))]
        held_out = [table.get(f"{curve} {task}", table[task]) for task in TASKS]
        return _float32([np.interp(confidence, self.confidences, each.shifts) for each in held_out])


def _float32(values: object) -> NDArray[np.float32]:
    return np.asarray(values, dtype=np.float32)


def _log_ratio() -> Leaf:
    return np.array([task == "perplexity" for task in TASKS])


def _spread(shift: NDArray[np.float32]) -> Leaf:
    return _float32(np.exp(shift.astype(np.float64)))  # NumPy's float32 exp is often off in its last bit


@cache
def load_quality_curves(path: Path = RECORD) -> QualityCurves:
    """The record at `path`, by default the shipped one. Raises InputError naming every fault of the file."""
    try:
        record = TypeAdapter(QualityCurves).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; regenerate the file" for each in fault.errors()
        ) from fault
    except (OSError, json.JSONDecodeError) as fault:
        raise InputError(f"{path}: not a quality record ({fault}); regenerate the file") from fault
    faults = Faults()
    for where, table in _tables(record):
        missing = [task for task in TASKS if task not in table]
        if missing:
            faults.add(f"{path}: {where} lacks {', '.join(missing)}; regenerate the file")
    faults.raise_if_any()
    return record


def _tables(record: QualityCurves) -> list[tuple[str, dict[str, object]]]:
    empty: dict[str, object] = {}
    tables = [(f"quantizer {name}", dict(record.quantizer.get(name, empty))) for name in QUANTIZERS]
    for name in EVICTORS:
        seen_tables = record.evictor.get(name, {})
        tables += [(f"evictor {name} {seen}", dict(seen_tables.get(seen, empty))) for seen in ("hidden", "visible")]
    tables.append(("weight", dict(record.weight)))
    for remedy in ("quantizer", "evictor", "weight"):
        tables.append((f"held_out {remedy}", dict(record.held_out.get(remedy, empty))))
    return tables
