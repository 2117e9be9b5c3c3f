"""Quality curves: the fitted record of how much compressed KV caches, weights and activations lose.

The record is data (`catalog/quality/curves.json`, written by `python -m kvwall.sweep.quality.fit`); here it is typed
and checked. `quality_record_columns` makes numeric columns of it, the laws are in `objectives/quality.py`.

Every curve is a *hazard* h >= 0, zero at neutral settings. In accuracy tasks the loss relative to the 16-bit,
full-cache model is 1 - exp(-h); in perplexity it is h = ln(PPL/PPL0) itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, WEIGHT_QUANTIZERS, load_methods
from kvwall.spaces.quality_tasks import TASKS

RECORD: Final = Path(__file__).parent / "catalog" / "quality" / "curves.json"
LONGEST_CONTEXT: Final = 131_072
"""Published quality results hardly go beyond 128k tokens."""

SUBTASK_ON_BITS: Final = 0.7
"""Share of a subtask's effect on eviction that it has on bits."""
ROUNDING_BITS: Final = 2.0
"""Bits below 4 at which rounding is as bad for other models as for Llama-3-like ones."""
_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Evidence:
    """What a curve rests on."""

    rows: int
    sources: int
    borrowed_from: str | None
    """Whose rows decide it; None when its own do."""


@with_config(_STRICT)
@dataclass(frozen=True)
class FittedBits:
    """One fitted curve over bits: hazard `scale` at 4 bits of everything, `slope` per bit, `floor` at 8 bits."""

    scale: float
    slope: float
    floor: float
    evidence: Evidence


@with_config(_STRICT)
@dataclass(frozen=True)
class FittedEviction:
    """One fitted eviction curve, see `quality_columns.EvictionCurve`."""

    exponent: float
    log_half: float
    ceiling: float
    evidence: Evidence


@with_config(_STRICT)
@dataclass(frozen=True)
class FittedUpper:
    """How far the upper curves of a family and task lie above the central one, at each confidence of the record."""

    log_spread: tuple[float, ...]
    """ln of the factor on the hazard, >= 0 and rising."""
    noise: tuple[float, ...]
    """Hazard added, see `quality_columns`; >= 0 and rising."""


@with_config(_STRICT)
@dataclass(frozen=True)
class FittedBudget:
    """The penalty of few bits with few tokens, see `quality_columns.SmallBudget`."""

    hazard: float
    kept: float


@with_config(_STRICT)
@dataclass(frozen=True)
class Narrowed:
    """What the user's own points say of one curve: the central one moves, the upper one comes closer."""

    log_factor: float
    """ln of the factor on the hazard; of eviction, on w."""
    remaining: float
    """Share of the upper curve's distance that is left, in (0, 1]."""
    points: int


Tables = dict[str, dict[str, FittedBits]]
"""Name -> task -> curve."""
EvictionTables = dict[str, dict[str, FittedEviction]]


@with_config(_STRICT)
@dataclass(frozen=True)
class QualityCurves:
    """The whole fitted record, with its provenance."""

    version: str
    fitted: str
    stamp: str
    """Of the rows and the code it was fitted by."""
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
    quantizer: Tables
    rounding: dict[str, float]
    """Family of quantizers -> ln of the factor at 4 bits on Llama-3-like models; gone `ROUNDING_BITS` below."""
    outlier_keys: float
    """ln of the factor on the keys' hazard of models whose keys have outliers."""
    evictor: EvictionTables
    """Where the question is visible, or does not matter."""
    evictor_hidden: EvictionTables
    """Of those that score by the question, where it is hidden."""
    weight_quantizer: Tables
    activation: dict[str, FittedBits]
    small_budget: FittedBudget
    upper: dict[str, dict[str, dict[str, FittedUpper]]]
    """By remedy (quantizer, evictor, weight_quantizer, activation), then family, then task."""
    per_channel: float
    """ln of the factor on weights with one scale a channel; rows only, designs are of groups."""
    subtasks: dict[str, float]
    """Benchmark and subtask -> how much harder than its class, ln of the hazard at few losses; rows only."""
    narrowed: dict[str, Narrowed]
    """By `curve_key`: the user's own evidence; empty in the shipped record."""

    def eviction(self, name: str, task: str, visible: bool) -> FittedEviction:
        """The curve of an evictor and a task."""
        table = self.evictor_hidden if not visible and name in self.evictor_hidden else self.evictor
        return table[name][task]


def curve_key(remedy: str, name: str, task: str, visible: bool = True) -> str:
    """The name of a curve in `narrowed`.

    >>> curve_key("evictor", "snapkv", "retrieval_easy", visible=False)
    'evictor snapkv hidden retrieval_easy'
    """
    return " ".join((remedy, name, *(() if visible else ("hidden",)), task))


@cache
def load_quality_curves(path: Path = RECORD) -> QualityCurves:
    """The record at `path`, by default the shipped one. Raises InputError naming every fault of the file."""
    try:
        record = TypeAdapter(QualityCurves).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; {_REMEDY}" for each in fault.errors()
        ) from fault
    except OSError as fault:
        raise InputError(f"{path}: cannot be read ({fault.strerror or fault}); {_REMEDY}") from fault
    except (ValueError, RecursionError) as fault:
        raise InputError(f"{path}: not a quality record, nor any JSON ({fault}); {_REMEDY}") from fault
    faults = Faults()
    for where, table in _tables(record):
        missing = [task for task in TASKS if task not in table]
        if missing:
            faults.add(f"{path}: {where} lacks {', '.join(missing)}; {_REMEDY}")
    known = frozenset(_curve_keys())
    for key, own in record.narrowed.items():
        if key not in known:
            faults.add(f'{path}: narrowed: "{key}" is no curve; {_REMEDY}')
        if not (math.isfinite(own.log_factor) and 0 < own.remaining <= 1 and own.points > 0):
            faults.add(f"{path}: narrowed: {key}: its numbers cannot be; {_REMEDY}")
    for wrong in _impossible(record):
        faults.add(f"{path}: {wrong}; {_REMEDY}")
    faults.raise_if_any()
    return record


def _impossible(record: QualityCurves) -> Iterator[str]:
    """What no fit gives: numbers that are none, outside of what they can be, or that fall with confidence."""
    levels = record.confidences
    if not levels or list(levels) != sorted(set(levels)) or not (levels[0] > 0 and levels[-1] < 1):
        yield f"confidences = {list(levels)}: they rise from above 0 to below 1"
    if not 0 <= record.key_share <= 1:
        yield f"key_share = {record.key_share:g}: it is from 0 to 1"
    for where, number in _numbers(asdict(record)):
        if not math.isfinite(number):
            yield f"{where} = {number}: it is a finite number"
    for where, curve in _curves(record):
        if isinstance(curve, FittedBits) and min(curve.scale, curve.slope, curve.floor) < 0:
            yield f"{where}: scale, slope and floor are at least 0"
        if isinstance(curve, FittedEviction) and not (curve.exponent >= 1 and 0 < curve.ceiling < 1):
            yield f"{where}: exponent is at least 1 and ceiling between 0 and 1"
        if isinstance(curve, FittedUpper):
            for each in (curve.log_spread, curve.noise):
                if len(each) != len(levels) or list(each) != sorted(each) or min(each, default=-1.0) < 0:
                    yield f"{where}: log_spread and noise have a number for each confidence, at least 0 and rising"


def _curves(record: QualityCurves) -> Iterator[tuple[str, object]]:
    for where, table in _tables(record):
        yield from ((f"{where}: {task}", curve) for task, curve in table.items())


def _numbers(value: object, where: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield where, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in items:
        yield from _numbers(inner, f"{where}.{key}" if where else str(key))


def _curve_keys() -> Iterator[str]:
    for task in TASKS:
        yield curve_key("activation", "activation", task)
        for remedy, names in (("quantizer", QUANTIZERS), ("weight_quantizer", WEIGHT_QUANTIZERS)):
            yield from (curve_key(remedy, name, task) for name in names)
        for visible in (True, False):
            yield from (curve_key("evictor", name, task, visible) for name in EVICTORS)


_REMEDY: Final = "give a file that `kvwall calibrate --quality` wrote, or regenerate the shipped one"


def _tables(record: QualityCurves) -> Iterator[tuple[str, Mapping[str, object]]]:
    empty: Mapping[str, object] = {}
    for remedy, names in (("quantizer", QUANTIZERS), ("evictor", EVICTORS), ("weight_quantizer", WEIGHT_QUANTIZERS)):
        for name in names:
            yield f"{remedy} {name}", getattr(record, remedy).get(name, empty)
        for family in load_methods()[remedy].families:
            yield f"upper {remedy} {family}", record.upper.get(remedy, {}).get(family, empty)
    for name in (each for each in EVICTORS if load_methods()["evictor"].by_question(each)):
        yield f"evictor_hidden {name}", record.evictor_hidden.get(name, empty)
    yield "activation", record.activation
    yield "upper activation", record.upper.get("activation", {}).get("activation", empty)
