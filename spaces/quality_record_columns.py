"""The quality record as numeric columns: the curves of all names, with the upper ones at one confidence or several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.confidence import Confidence, by_row, rows_from
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import ROUNDING_BITS, FittedBits, Narrowed, QualityCurves, curve_key
from kvwall.spaces.quality_columns import BitCurve, CacheCurve, EvictionCurve, QualityParameters, SmallBudget
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, READERS, WEIGHT_QUANTIZERS, load_methods, reader_of
from kvwall.spaces.quality_tasks import TASK_NAMES, TASKS, task_rows

Leaf: TypeAlias = Any
"""A NumPy array here, concrete while a function is traced and on no device; a jax.Array once gathered in one."""
_SEEN: Final = (False, True)
_UNTOUCHED: Final = Narrowed(0.0, 1.0, 0)
NO_TRAITS: Final[Sequence[Collection[str]]] = ((),)
"""Of one model that has none."""


def dropper_of(evictor: str) -> str:
    """The name whose curve tells what dropping tokens loses.

    A reader drops none, so what is dropped beside it is taken to be dropped by a score that does not see the question.

    >>> dropper_of("quest"), dropper_of("snapkv")
    ('query_agnostic', 'snapkv')
    """
    return "query_agnostic" if load_methods()["evictor"].family(evictor) in READERS else evictor


def quality_parameters(
    curves: QualityCurves, confidence: Confidence = 0.9, traits: Sequence[Collection[str]] = NO_TRAITS
) -> QualityParameters:
    """All columns, the upper curves at this confidence, or each task's at its own; shapes as the classes state.

    Args:
        curves: the record.
        confidence: of the upper curves.
        traits: of each model of the model axis, the names of its traits that curves depend on.

    Raises:
        InputError: when a confidence lies outside the record's table (0.5 to 0.99), or two differ on one row.
    """
    levels = by_row(confidence, {name: task_rows(name) for name in TASK_NAMES})
    return rows_from({level: _at(curves, level, traits) for level in set(levels)}, levels)


def check_confidence(curves: QualityCurves, confidence: float) -> None:
    """Raise InputError when a confidence lies outside the record's table."""
    low, high = curves.confidences[0], curves.confidences[-1]
    if not low <= confidence <= high:
        raise InputError(
            f"confidence {confidence} is outside {low} to {high}, the range the quality curves were checked on: "
            f"use a fraction such as 0.9"
        )


def _at(curves: QualityCurves, confidence: float, traits: Sequence[Collection[str]]) -> QualityParameters:
    check_confidence(curves, confidence)
    evictor = [[curves.eviction(name, task, seen) for name in EVICTORS for seen in _SEEN] for task in TASKS]
    keys = [[("evictor", name, task, seen) for name in EVICTORS for seen in _SEEN] for task in TASKS]
    own = [[_narrowed(curves, *key) for key in of_task] for of_task in keys]
    log_factor, left = (_array(own, field) for field in ("log_factor", "remaining"))
    exponent = _array(evictor, "exponent")
    shape = (len(TASKS), len(EVICTORS), len(_SEEN))
    spread, noise = _upper(curves, confidence, keys, left)
    columns = {
        "exponent": exponent,
        "log_half": _array(evictor, "log_half") - log_factor / exponent,
        "ceiling": _array(evictor, "ceiling"),
        "spread": spread,
        "noise": noise,
    }

    def of_names(stands_for: Callable[[str], str]) -> EvictionCurve:
        places = [EVICTORS.index(stands_for(name)) for name in EVICTORS]
        return EvictionCurve(**{name: _float32(table.reshape(shape)[:, places]) for name, table in columns.items()})

    budget = curves.small_budget
    return QualityParameters(
        cache=_cache(curves, confidence, traits),
        evictor=of_names(dropper_of),
        reader=of_names(reader_of),
        weight=_bits(curves, confidence, "weight_quantizer", WEIGHT_QUANTIZERS, curves.weight_quantizer),
        activation=_squeezed(
            _bits(curves, confidence, "activation", ("activation",), {"activation": curves.activation})
        ),
        small_budget=SmallBudget(*(_float32([each] * len(TASKS)) for each in (budget.hazard, budget.kept))),
        log_ratio=np.array([task == "perplexity" for task in TASKS]),  # type: ignore[arg-type]
    )


def _bits(
    curves: QualityCurves,
    confidence: float,
    remedy: str,
    names: Sequence[str],
    tables: Mapping[str, Mapping[str, FittedBits]],
) -> BitCurve:
    """Columns of shape (task, name)."""
    fitted = [[tables[name][task] for name in names] for task in TASKS]
    keys = [[(remedy, name, task, True) for name in names] for task in TASKS]
    own = [[_narrowed(curves, *key) for key in of_task] for of_task in keys]
    factor = np.exp(_array(own, "log_factor"))
    spread, noise = _upper(curves, confidence, keys, _array(own, "remaining"))
    return BitCurve(
        scale=_float32(_array(fitted, "scale") * factor),
        slope=_float32(_array(fitted, "slope")),
        floor=_float32(_array(fitted, "floor") * factor),
        spread=_float32(spread),
        noise=_float32(noise),
    )


def _cache(curves: QualityCurves, confidence: float, traits: Sequence[Collection[str]]) -> CacheCurve:
    """Columns of shape (task, quantizer, model); the model axis has size 1 where no trait tells models apart."""
    own = _bits(curves, confidence, "quantizer", QUANTIZERS, curves.quantizer)
    families = [load_methods()["quantizer"].family(name) for name in QUANTIZERS]
    rounding = np.array(
        [[curves.rounding.get(family, 0.0) * ("llama_3" in each) for each in traits] for family in families]
    )
    outliers = np.array([[curves.outlier_keys * ("k_outliers" in each) for each in traits]])
    if len({frozenset(each) for each in traits}) == 1:
        rounding, outliers = rounding[:, :1], outliers[:, :1]

    def part(share: float, log_factor: NDArray[np.float64]) -> BitCurve:
        """Keys or values, which share the slope."""
        factor = np.exp(log_factor)
        each = {name: np.asarray(getattr(own, name), np.float64)[..., None] for name in vars(own)}
        wide = np.ones_like(factor)
        return BitCurve(
            scale=_float32(share * each["scale"] * factor),
            slope=_float32(each["slope"] * wide - rounding / ROUNDING_BITS),
            floor=_float32(each["floor"] / 2 * wide),
            spread=_float32(each["spread"] * wide),
            noise=_float32(each["noise"] / 2 * wide),
        )

    return CacheCurve(part(curves.key_share, rounding + outliers), part(1 - curves.key_share, rounding + 0 * outliers))


def _upper(
    curves: QualityCurves, confidence: float, keys: list[list[tuple[str, str, str, bool]]], left: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Spread and noise of curves, with the share of each that the user's own evidence leaves."""
    at = [[_upper_at(curves, confidence, *key) for key in of_task] for of_task in keys]
    table = np.array(at)
    return np.exp(table[..., 0] * left), table[..., 1] * left


def _upper_at(
    curves: QualityCurves, confidence: float, remedy: str, name: str, task: str, seen: bool
) -> tuple[float, float]:
    family = name if remedy == "activation" else load_methods()[remedy].family(name, question_visible=seen)
    fitted = curves.upper[remedy][family][task]
    spread, noise = (np.interp(confidence, curves.confidences, each) for each in (fitted.log_spread, fitted.noise))
    return float(spread), float(noise)


def _narrowed(curves: QualityCurves, remedy: str, name: str, task: str, seen: bool) -> Narrowed:
    return curves.narrowed.get(curve_key(remedy, name, task, seen), _UNTOUCHED)


def _squeezed(curve: BitCurve) -> BitCurve:
    return BitCurve(**{name: np.asarray(leaf)[:, 0] for name, leaf in vars(curve).items()})  # type: ignore[arg-type]


def _array(table: Sequence[Sequence[object]], field: str) -> NDArray[np.float64]:
    return np.array([[getattr(each, field) for each in row] for row in table], dtype=np.float64)


def _float32(values: object) -> Leaf:
    return np.asarray(values, dtype=np.float32)
