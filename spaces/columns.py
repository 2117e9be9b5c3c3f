"""From a Space to Designs: each axis's values as numeric columns, gathered at grid positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np

from kvwall.spaces.achieved import Calibrated
from kvwall.spaces.axes import PRICE_BASES, Axis, Value
from kvwall.spaces.calibration import Calibration, calibrated_engine, load_calibration
from kvwall.spaces.confidence import Confidence
from kvwall.spaces.design import (
    Design,
    Eviction,
    KVFormat,
    Paging,
    Parallel,
    Placement,
    Precision,
    Prefix,
    SparseRead,
    Speculation,
    Workload,
)
from kvwall.spaces.engines import load_engine
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.gather import take
from kvwall.spaces.hardware import Hardware, load_hardware
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import load_model
from kvwall.spaces.modes import CEILING, ESTIMATE, check_mode
from kvwall.spaces.quality import QualityCurves, load_quality_curves
from kvwall.spaces.quality_columns import QualityParameters
from kvwall.spaces.quality_gather import QualityGather
from kvwall.spaces.quality_record_columns import quality_parameters
from kvwall.spaces.record_columns import hardware_numbers, model_numbers, price_numbers
from kvwall.spaces.space import Space
from kvwall.spaces.vetoes import NO_RULES, VetoRules, trait_names, veto_columns

Positions: TypeAlias = Mapping[str, "np.ndarray[Any, Any] | jax.Array"]
"""Dimension name -> integer positions along it; all broadcast against each other."""

_WORD = 0.0
"""What laws see of an axis's word: the checkpoint's format, the context, the engine's figure."""

_RECORDS: Mapping[str, type[Any]] = {
    "workload": Workload,
    "precision": Precision,
    "kv_format": KVFormat,
    "eviction": Eviction,
    "sparse_read": SparseRead,
    "paging": Paging,
    "prefix": Prefix,
    "placement": Placement,
    "parallel": Parallel,
    "speculation": Speculation,
}
NUMBER_FIELDS: Mapping[str, tuple[str, str]] = {
    "batch": ("workload", "batch"),
    "context": ("workload", "context"),
    "output_tokens": ("workload", "output_tokens"),
    "weight_bits": ("precision", "weight_bits"),
    "activation_bits": ("precision", "activation_bits"),
    "key_bits": ("kv_format", "key_bits"),
    "value_bits": ("kv_format", "value_bits"),
    "kv_group_size": ("kv_format", "group_size"),
    "scale_bits": ("kv_format", "scale_bits"),
    "zero_bits": ("kv_format", "zero_bits"),
    "residual_window": ("kv_format", "residual_window"),
    "outlier_fraction": ("kv_format", "outlier_fraction"),
    "retention": ("eviction", "retention"),
    "sink_tokens": ("eviction", "sink_tokens"),
    "recent_tokens": ("eviction", "recent_tokens"),
    "read_fraction": ("sparse_read", "fraction"),
    "block_size": ("paging", "block_size"),
    "max_model_length": ("paging", "max_model_length"),
    "prefix_share": ("prefix", "share"),
    "prefix_group": ("prefix", "group"),
    "prefix_hit_rate": ("prefix", "hit_rate"),
    "placement_host": ("placement", "host"),
    "placement_cxl": ("placement", "cxl"),
    "placement_nvme": ("placement", "nvme"),
    "placement_remote": ("placement", "remote"),
    "link_overlap": ("placement", "link_overlap"),
    "tensor_parallel": ("parallel", "tensor"),
    "pipeline_parallel": ("parallel", "pipeline"),
    "context_parallel": ("parallel", "context"),
    "attention_data_parallel": ("parallel", "attention_data"),
    "expert_parallel": ("parallel", "expert"),
    "expert_skew": ("workload", "expert_skew"),
    "draft_tokens": ("speculation", "draft_tokens"),
    "acceptance_rate": ("speculation", "acceptance_rate"),
}
"""Numeric axis -> record and field of a Design; `utilisation` is a field of the Design itself."""

FLAG_FIELDS: Mapping[str, tuple[str, str, Value]] = {
    "serving_mode": ("workload", "continuous", "continuous"),
    "reservation": ("paging", "contiguous", "contiguous"),
    "prefix_aware_attention": ("prefix", "aware", True),
    "access": ("placement", "parked", "parked"),
    "die_placement": ("placement", "pinned", "pinned"),
}
"""Axis of two values -> record, field, and the value at which the field is true."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Catalogue:
    """The records that a Space's names stand for, the quality curves, and what decides which vetoes are imposed."""

    models: tuple[Model, ...]
    hardware: tuple[Hardware, ...]
    quality: QualityParameters
    """Columns of `curves` at the confidence asked for."""
    curves: QualityCurves
    calibration: Calibration | None = None
    """Of estimates; None in ceiling mode."""
    vetoes: VetoRules = NO_RULES

    @property
    def mode(self) -> str:
        """What its designs are evaluated as."""
        return CEILING if self.calibration is None else ESTIMATE


def load_catalogue(
    space: Space,
    assume: Mapping[str, Mapping[str, str]] | None = None,
    confidence: Confidence = 0.9,
    mode: str = CEILING,
    calibration: str = "",
    vetoes: VetoRules = NO_RULES,
    quality_curves: str = "",
) -> Catalogue:
    """Load every model and chip a Space names. Raises InputError with every fault of all of them.

    Args:
        space: whose names are loaded.
        assume: chip name -> figure -> quantity, for figures the catalogue has no source for.
        confidence: of the upper quality curves, of all or by task.
        mode: ceiling or estimate.
        calibration: path of a record of estimates; "" = the shipped one.
        vetoes: those the user allows, and whether hard retrieval is in the workload.
        quality_curves: path of a record of quality; "" = the shipped one.
    """
    faults = Faults()
    assumed = dict(assume or {})
    for name in sorted(assumed.keys() - set(map(str, space.values("hardware")))):
        faults.add(f'[assume] names "{name}", which is not on the hardware axis: add it there or drop the assumption')
    models = _loaded(space.values("model"), load_model, faults)
    hardware = _loaded(space.values("hardware"), lambda name: load_hardware(name, assumed.get(name, {})), faults)
    faults.raise_if_any()
    curves = curves_of(quality_curves)
    quality = quality_parameters(curves, confidence, [trait_names(model) for model in models])
    return Catalogue(tuple(models), tuple(hardware), quality, curves, calibration_of(mode, calibration), vetoes)


def curves_of(path: str = "") -> QualityCurves:
    """The record of quality at `path`, or the shipped one. Raises InputError for one that cannot be read."""
    return load_quality_curves(Path(path)) if path else load_quality_curves()


def calibration_of(mode: str, path: str = "") -> Calibration | None:
    """The record at `path`, or the shipped one, in estimate mode; None in ceiling mode.

    Raises InputError for another mode, for a record that cannot be read, and for one in ceiling mode.
    """
    if check_mode(mode) == ESTIMATE:
        return load_calibration(Path(path)) if path else load_calibration()
    if path:
        raise InputError(f'calibration = "{path}": a ceiling has none; leave it out, or use mode {ESTIMATE}')
    return None


def _loaded(names: Sequence[Any], load: Callable[[str], _T], faults: Faults) -> list[_T]:
    found = []
    for name in names:
        try:
            found.append(load(str(name)))
        except InputError as error:
            faults.absorb(error)
    return found


class Columns:
    """A Space's axes as numbers: `design(positions)` is the Design at those grid positions.

    Tables are NumPy float64 and stay concrete along fixed axes, so that a compiler can fold them.
    """

    def __init__(self, space: Space, catalogue: Catalogue) -> None:
        self.space = space
        self.mode = catalogue.mode
        self._numbers = {
            entry.axis.name: np.array([_number(entry.axis, value) for value in entry.values], dtype=np.float64)
            for entry in space.axes
            if entry.axis.kind in {"int", "real"}
        }
        most_groups = max(len(model.groups) for model in catalogue.models)
        self._model = _stack([model_numbers(model, most_groups) for model in catalogue.models])
        self._hardware = _stack([hardware_numbers(chip) for chip in catalogue.hardware])
        prices = [[price_numbers(chip, basis) for chip in catalogue.hardware] for basis in PRICE_BASES]
        self._price = _stack([_stack(of_chips) for of_chips in prices])
        self._flags = {
            axis: np.array([value == true for value in space.values(axis)])
            for axis, (_, _, true) in FLAG_FIELDS.items()
        }
        self._engine = _stack([load_engine(str(name)).columns for name in space.values("engine")])
        self._calibrated = _calibrated_table(space, catalogue)
        veto = veto_columns(space, catalogue.models, catalogue.vetoes)
        self._quality = QualityGather(space, catalogue.quality, veto)
        self._price_codes = np.array([PRICE_BASES.index(str(value)) for value in space.values("price_basis")])

    def design(self, positions: Positions) -> Design:
        """The Design at these positions, one array per dimension of the space, broadcasting (shape () if none)."""
        rank = max((np.ndim(where) for where in positions.values()), default=0)

        def at(axis: str) -> Any:
            dimension = self.space.dimension_of(axis)
            return positions[dimension] if dimension else np.zeros((1,) * rank, dtype=np.int64)

        def number(axis: str) -> Any:
            return take(self._numbers[axis], at(axis))

        def fields_of(record: str) -> dict[str, Any]:
            numbers = {field: number(axis) for axis, (name, field) in NUMBER_FIELDS.items() if name == record}
            flags = {field: axis for axis, (name, field, _) in FLAG_FIELDS.items() if name == record}
            return numbers | {field: take(self._flags[axis], at(axis)) for field, axis in flags.items()}

        return Design(
            model=jax.tree.map(lambda leaf: take(leaf, at("model")), self._model),
            hardware=jax.tree.map(lambda leaf: take(leaf, at("hardware")), self._hardware),
            **{name: kind(**fields_of(name)) for name, kind in _RECORDS.items()},
            engine=jax.tree.map(lambda leaf: take(leaf, at("engine")), self._engine),
            utilisation=number("utilisation"),
            usd_per_second=jax.tree.map(
                lambda leaf: take(leaf, at("hardware"), take(self._price_codes, at("price_basis"))),
                self._price,
            ),
            quality=self._quality.curves(at, rank),
            veto=self._quality.veto(at),
            calibrated=jax.tree.map(lambda leaf: take(leaf, at("hardware"), at("engine")), self._calibrated),
        )


def _calibrated_table(space: Space, catalogue: Catalogue) -> Calibrated | None:
    """What every engine achieves on every chip: the last two axes are the chip's and the engine's."""
    record = catalogue.calibration
    if record is None:
        return None
    engines = [str(name) for name in space.values("engine")]
    table = [[calibrated_engine(record, engine, chip) for chip in catalogue.hardware] for engine in engines]
    return _stack([_stack(of_chips) for of_chips in table])


def with_number(design: Design, axis: str, number: Any) -> Design:
    """The design with one numeric axis at these numbers."""
    if axis not in NUMBER_FIELDS:
        return replace(design, **{axis: number})
    record, field = NUMBER_FIELDS[axis]
    return replace(design, **{record: replace(getattr(design, record), **{field: number})})


def _stack(records: Sequence[_T]) -> _T:
    """Records of equal structure as one record with a new last axis."""
    stacked: _T = jax.tree.map(lambda *leaves: np.stack(leaves, axis=-1), *records)
    return stacked


def _number(axis: Axis, value: Value) -> float:
    return _WORD if axis.word and value == axis.word else float(value)
