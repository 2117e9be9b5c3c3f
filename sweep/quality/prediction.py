"""Rows under a record: central and upper loss of each, whether it is vetoed, and where it leaves the evidence.

A row whose benchmark is known is predicted for that benchmark: some subtasks of a class are harder than others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives import quality
from kvwall.objectives.veto import VETOES, first_veto
from kvwall.spaces.design import KVFormat
from kvwall.spaces.quality import LONGEST_CONTEXT, SUBTASK_ON_BITS, QualityCurves
from kvwall.spaces.quality_columns import CacheCurve, QualityParameters
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, WEIGHT_QUANTIZERS, load_methods
from kvwall.spaces.quality_record_columns import quality_parameters
from kvwall.spaces.quality_tasks import TASKS
from kvwall.spaces.veto_columns import VetoLimits
from kvwall.spaces.vetoes import HARD_RETRIEVAL, limits_of, scores_blindly
from kvwall.sweep.quality.rows import Named, Part, Row

_TRAITS: Final = ((), ("llama_3",), ("k_outliers",), ("llama_3", "k_outliers"))


@dataclass(frozen=True)
class Prediction:
    """What a record says of a row; losses are ln(PPL/PPL0) in perplexity."""

    row: Row
    central: float
    upper: float
    vetoed: str
    """The veto that would refuse such a design; "" for none."""
    beyond: tuple[str, ...]
    """In which respects the row is outside of what was measured."""


def predict(rows: Sequence[Row], curves: QualityCurves, confidence: float = 0.9) -> list[Prediction]:
    """One prediction for each row, in order."""
    if not rows:
        return []
    with jax.enable_x64(True):
        found = parts_of(rows, curves, confidence)
        central, upper = (
            np.bincount(found.rows, weights=found.weight * np.asarray(law(found.asked, found.curves)))
            for law in (quality.composed_loss, quality.composed_loss_upper)
        )
    return [
        Prediction(row, float(one), float(most), veto_of(row), tuple(_beyond(row, curves)))
        for row, one, most in zip(rows, central, upper, strict=True)
    ]


@dataclass(frozen=True)
class RowParts:
    """The parts of rows as the laws take them, all leaves of shape (part,)."""

    rows: NDArray[np.int64]
    """Place of the row that each is a part of."""
    weight: NDArray[np.float64]
    asked: quality.Compression
    curves: QualityParameters


def parts_of(rows: Sequence[Row], curves: QualityCurves, confidence: float = 0.9) -> RowParts:
    """The parts of rows; call it where JAX counts in double precision."""
    parts = [(place, row, part) for place, row in enumerate(rows) for part in row.parts]
    return RowParts(
        rows=np.array([place for place, _, _ in parts], dtype=np.int64),
        weight=np.array([part.weight for _, _, part in parts]),
        asked=_asked([row for _, row, _ in parts]),
        curves=_of_parts(quality_parameters(curves, confidence, _TRAITS), curves, parts),
    )


def veto_of(row: Row) -> str:
    """The veto that a design of the row's settings and task falls under; "" for none."""
    limits = VetoLimits(*limits_of(_traits(row), row.quantizer.family if row.quantizer else None, _blind(row)))
    kv_format = KVFormat(row.key_bits, row.value_bits, 0.0, 0.0, 0.0, 0.0, 0.0)
    name = VETOES[int(first_veto(kv_format, 1.0 if row.reads else row.kept, limits))]
    return "" if name == VETOES[0] else name


def _blind(row: Row) -> bool:
    blind = row.evictor is not None and scores_blindly(row.evictor.family, True)
    return blind and row.task in HARD_RETRIEVAL


def _beyond(row: Row, curves: QualityCurves) -> Iterator[str]:
    if min(row.key_bits, row.value_bits, row.weight_bits) < curves.smallest_bits:
        yield f"below {curves.smallest_bits:g} bits"
    if row.kept < curves.smallest_retention:
        yield f"less than {100 * curves.smallest_retention:g} % of the tokens"
    if row.context is not None and row.context > LONGEST_CONTEXT:
        yield "context beyond 128k tokens"


def _asked(rows: Sequence[Row]) -> quality.Compression:
    def column(read: Callable[[Row], float]) -> Any:
        return np.array([read(row) for row in rows], dtype=np.float64)

    return quality.Compression(
        key_bits=column(lambda row: row.key_bits),
        value_bits=column(lambda row: row.value_bits),
        kept_fraction=column(lambda row: 1.0 if row.reads else row.kept),
        read_fraction=column(lambda row: row.kept if row.reads else 1.0),
        weight_bits=column(lambda row: row.weight_bits),
        activation_bits=column(lambda row: row.activation_bits),
    )


def _of_parts(
    parameters: QualityParameters, curves: QualityCurves, parts: Sequence[tuple[int, Row, Part]]
) -> QualityParameters:
    """The curves of each part, all leaves of shape (part,)."""
    task = np.array([TASKS.index(part.task) for _, _, part in parts])
    of = [row for _, row, _ in parts]
    subtask = np.array([curves.subtasks.get(part.subtask, 0.0) for _, _, part in parts])
    evictor = np.array([EVICTORS.index(curve_name(row.evictor, "evictor")) for row in of])
    visible = np.array([int(sees_question(row)) for row in of])
    quantizer = np.array([QUANTIZERS.index(curve_name(row.quantizer, "quantizer")) for row in of])
    traits = np.array([_TRAITS.index(_traits(row)) for row in of])
    weight = np.array([WEIGHT_QUANTIZERS.index(curve_name(row.weight_quantizer, "weight_quantizer")) for row in of])
    channel = np.exp(curves.per_channel * np.array([row.per_channel for row in of]))

    def taken(curve: Any, *index: NDArray[np.int64]) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[(task, *index)], curve)

    harder = np.exp(-SUBTASK_ON_BITS * subtask)
    cache = taken(parameters.cache, quantizer, traits)
    return QualityParameters(
        cache=CacheCurve(cache.key.scaled(harder), cache.value.scaled(harder)),
        evictor=taken(parameters.evictor, evictor, visible).moved(subtask),
        reader=taken(parameters.reader, evictor, visible).moved(subtask),
        weight=taken(parameters.weight, weight).scaled(channel),
        activation=taken(parameters.activation),
        small_budget=taken(parameters.small_budget),
        log_ratio=np.asarray(parameters.log_ratio)[task],
    )


def curve_name(named: Named | None, remedy: str) -> str:
    """The name whose curve a row is predicted by; the first family's where the row has no such remedy."""
    return named.name if named else next(iter(load_methods()[remedy].families))


def sees_question(row: Row) -> bool:
    """Whether a row is predicted by a curve of questions that are known when tokens are scored."""
    if row.evictor is None:
        return True
    return load_methods()["evictor"].family(row.evictor.name) == row.evictor.family


def _traits(row: Row) -> Collection[str]:
    return tuple(name for name in ("llama_3", "k_outliers") if getattr(row, name))
