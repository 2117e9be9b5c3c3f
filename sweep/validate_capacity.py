"""Published start-up figures against the capacity laws: predictions, their errors, and the rows left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import jax
import numpy as np

from kvwall.objectives.pool import pool_bytes
from kvwall.spaces.errors import NothingAdmissible
from kvwall.sweep.capacity_law import Prediction, device_memory, engine_columns, predict
from kvwall.sweep.capacity_rows import CapacityRow, read_rows

QUANTITIES: Final = (
    "bytes_per_token",
    "kv_pool_bytes",
    "kv_pool_bytes_given_parts",
    "max_concurrency",
    "refusal",
)
_MANY_DEVICES: Final = 8
_NO_ERROR: Final = "refusal"
"""A yes or no: 1 where the engine refused to start, else 0."""


@dataclass(frozen=True)
class Compared:
    """One quantity of one row."""

    id: str
    quantity: str
    measured: float
    predicted: float
    counted: bool
    """Whether it enters the overall figures."""
    labels: Mapping[str, str]

    @property
    def relative(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "id": self.id,
            "quantity": self.quantity,
            "measured": self.measured,
            "predicted": self.predicted,
            "counted": self.counted,
            "trust": self.labels["trust"],
        }


@dataclass(frozen=True)
class CapacityReport:
    """The comparison of a whole file."""

    predictions: Sequence[Compared]
    refused: Sequence[Mapping[str, str]]
    rows: int
    """Rows of the file."""

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "overall": self.overall,
            "groups": self.groups,
            "refused": list(self.refused),
            "predictions": [each.to_json() for each in self.predictions],
        }

    @property
    def overall(self) -> dict[str, Any]:
        """Errors over all quantities that are counted; `coverage` is the share of the file's rows with a prediction."""
        counted = [each for each in self.predictions if each.counted]
        covered = len({each.id for each in self.predictions}) / self.rows if self.rows else 0.0
        return _summary(counted) | {"coverage": covered}

    @property
    def groups(self) -> list[dict[str, Any]]:
        """By quantity, by quantity and engine, and, counted or not, by quantity and trust."""
        counted = [each for each in self.predictions if each.counted]
        return [
            *_grouped(counted, ()),
            *_grouped(counted, ("engine",)),
            *_grouped(self.predictions, ("trust",)),
        ]


def validate_capacity(path: Path) -> CapacityReport:
    """Compare a file's rows. Raises InputError where it is no table, NothingAdmissible where no row can be used."""
    rows, refused = read_rows(path)
    predictions: list[Compared] = []
    for row in rows:
        found, reasons = compare(row)
        predictions += found
        refused += [{"id": row.id, "reason": reason} for reason in reasons]
    if not predictions:
        reasons_of_all = [f"{each['id']}: {each['reason']}" for each in refused] or ["it has no rows"]
        raise NothingAdmissible(f"{path}: no row can be used: {reason}" for reason in reasons_of_all)
    return CapacityReport(predictions, refused, len({row.id for row in rows} | {each["id"] for each in refused}))


def compare(row: CapacityRow) -> tuple[list[Compared], list[str]]:
    """Every quantity that the row posts and the laws give, and why others are left out."""
    predicted = predict(row)
    reasons: list[str] = []
    answers: dict[str, tuple[float, float]] = {}
    logged, free = row.logged, _pool(row, predicted, reasons)
    if logged.bytes_per_token is not None:
        answers["bytes_per_token"] = (logged.bytes_per_token, predicted.bytes_per_token)
    if logged.pool is not None and logged.pool > 0:
        if free is not None:
            answers["kv_pool_bytes"] = (logged.pool, free)
        given = _pool_given_parts(row, predicted)
        if given is not None:
            answers["kv_pool_bytes_given_parts"] = (logged.pool, given)
        if logged.max_concurrency is not None:
            answers["max_concurrency"] = (
                logged.max_concurrency,
                predicted.concurrency(_binding_pool(row, logged.pool)),
            )
    starts = logged.max_concurrency is not None and logged.max_concurrency >= 1
    if free is not None and (logged.refused or starts):
        answers["refusal"] = (float(logged.refused), float(predicted.concurrency(free) < 1))
    if not answers and not reasons:
        reasons.append("it posts no pool, no bytes per token and no concurrency beside a pool")
    finite = {name: values for name, values in answers.items() if all(map(math.isfinite, values))}
    reasons += [f"{name}: no finite number to compare" for name in answers if name not in finite]
    compared = [Compared(row.id, name, *values, name in row.counted, row.labels) for name, values in finite.items()]
    return compared, reasons


def _binding_pool(row: CapacityRow, printed: float) -> float:
    """The pool that decides the block count: the poorest device's, where many share the layers."""
    shared = row.device is not None and row.asked.tensor >= _MANY_DEVICES
    return printed - row.device.smallest_rank if row.device is not None and shared else printed


def _pool(row: CapacityRow, predicted: Prediction, reasons: list[str]) -> float | None:
    """The pool from what is known before a start; None where the row posts none or its device is not known."""
    if row.logged.pool is None and not row.logged.refused:
        return None
    if row.engine.engine == "llamacpp":
        return None
    memory = device_memory(row)
    if memory is None:
        gpu = row.labels["gpu"] or "blank"
        reasons.append(f'kv_pool_bytes: memory of the device "{gpu}" is not known: name a device of the alias table')
        return None
    if row.device is not None and row.device.unmodelled:
        reasons.append(f"kv_pool_bytes: {row.device.unmodelled}")
        return None
    beside = row.tower_bytes / row.asked.tensor
    activations = predicted.activations
    if row.device is not None:
        experts = row.model.experts is not None
        beside += row.device.other_with_experts if experts else row.device.other
        beside += predicted.padded_copy if row.device.pads_experts else 0.0
    if row.tower_bytes:
        activations += float(row.engine.columns.encoder_bytes)
    return _law(row, memory, predicted.weights + beside, activations, predicted.non_torch, predicted.graphs)


def _pool_given_parts(row: CapacityRow, predicted: Prediction) -> float | None:
    """The pool from the parts that were logged; None where one is missing."""
    logged, engine = row.logged, row.engine.engine
    if row.asked.utilisation is None:
        return None
    if engine == "sglang" and logged.before is not None and logged.after is not None:
        return _law(row, logged.before, logged.before - logged.after, 0.0, 0.0, 0.0)
    if engine == "trtllm" and logged.after is not None:
        return _law(row, logged.after, 0.0, 0.0, 0.0, 0.0)
    memory = logged.total
    if engine != "vllm" or memory is None or logged.weights is None or logged.activations is None:
        return None
    if logged.non_torch is None:
        return None
    graphs = predicted.graphs if logged.graphs is None else logged.graphs
    return _law(row, memory, logged.weights, logged.activations, logged.non_torch, graphs)


def _law(row: CapacityRow, memory: float, *parts: float) -> float:
    engine = engine_columns(row)
    fraction = row.asked.utilisation or float(engine.utilisation)
    with jax.enable_x64(True):
        return float(pool_bytes(engine, memory, fraction, *parts))


def _summary(compared: Sequence[Compared]) -> dict[str, Any]:
    """Errors of those that have one: n, means and median of |relative error|, its 90th percentile, the signed mean."""
    errors = [each.relative for each in compared if each.quantity != _NO_ERROR]
    sizes = [abs(error) for error in errors]
    if not errors:
        return {"n": 0, "mape": None, "median_ape": None, "p90_ape": None, "bias": None}
    return {
        "n": len(errors),
        "mape": fmean(sizes),
        "median_ape": median(sizes),
        "p90_ape": float(np.percentile(sizes, 90)),
        "bias": fmean(errors),
    }


def _grouped(compared: Sequence[Compared], by: Sequence[str]) -> Iterator[dict[str, Any]]:
    parts: dict[tuple[str, ...], list[Compared]] = {}
    for each in compared:
        parts.setdefault((each.quantity, *(each.labels[label] for label in by)), []).append(each)
    for (quantity, *values), members in sorted(parts.items()):
        named = {"quantity": quantity} | dict(zip(by, values, strict=True))
        if quantity == _NO_ERROR:
            right = sum(each.measured == each.predicted for each in members)
            caught = sum(each.predicted for each in members if each.measured)
            refused = sum(each.measured for each in members)
            yield {"by": named, "n": len(members), "right": right, "refused": refused, "caught": caught}
        else:
            worst = max(abs(each.predicted - each.measured) for each in members)
            yield {"by": named} | _summary(members) | {"largest_gap": worst}
