"""A thousand random designs over the whole catalogue and every axis, shared by several test files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvwall.spaces.axes import AXES, PRICE_BASES, Value
from kvwall.spaces.columns import Catalogue, Columns, load_catalogue
from kvwall.spaces.design import Design
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import loadable_model_names
from kvwall.spaces.quality import EVICTORS, QUANTIZERS
from kvwall.spaces.space import Space, make_space

POINTS = 1000
SEED = 20260701


@dataclass(frozen=True)
class Designs:
    """Designs drawn from a grid, one per position: `space.values(axis)[positions[axis][i]]` is design i's."""

    space: Space
    catalogue: Catalogue
    positions: Mapping[str, np.ndarray]

    def axes(self, index: int) -> dict[str, Value]:
        """The named values of one design."""
        names = (entry.axis.name for entry in self.space.axes)
        return {name: self.space.values(name)[self._position(name, index)] for name in names}

    def _position(self, axis: str, index: int) -> int:
        return int(self.positions[axis][index]) if axis in self.positions else 0

    def design(self) -> Design:
        """All of them as one Design whose arrays have one dimension."""
        return Columns(self.space, self.catalogue).design(self.positions)


def pool(axis: str, numbers: Sequence[float]) -> list[Value]:
    """The values of an axis as its kind wants them, neutral first, without repeats."""
    kind, neutral = AXES[axis].kind, AXES[axis].neutral
    values = [float(round(number)) if kind == "int" else float(number) for number in numbers]
    first = [] if neutral is None else [neutral]
    return list(dict.fromkeys([*first, *values]))


def number_pools(random: np.random.Generator) -> dict[str, list[Value]]:
    """Round and odd values of every numeric axis, most of each axis's range."""
    bits = [1.0, 1.58, 2.0, 3.0, 4.0, 4.5, 8.0, 12.0, 15.9, *random.uniform(1, 16, 8)]
    numbers: dict[str, Sequence[float]] = {
        "batch": 10 ** random.uniform(0, 4.5, 30),
        "context": [1, 128_000, *10 ** random.uniform(0.5, 7.5, 60)],
        "output_tokens": [1, *10 ** random.uniform(1, 6, 20)],
        "weight_bits": [1.58, 4.0, 4.25, 8.0, 16.0, 32.0, *random.uniform(1, 20, 6)],
        "activation_bits": [4.0, 8.0, *random.uniform(1, 16, 6)],
        "key_bits": bits,
        "value_bits": bits[::-1],
        "kv_group_size": [1, 2, 32, 64, 128],
        "scale_bits": [0.0, 8.0, 32.0, *random.uniform(0, 64, 3)],
        "zero_bits": [0.0, 2.0, 8.0, *random.uniform(0, 64, 3)],
        "residual_window": [1, 32, 128, 4096, 1_000_000],
        "outlier_fraction": [0.001, 0.01, 0.1, 0.6],
        "retention": [0.01, 0.05, 0.5, 0.9, *random.uniform(0.02, 1, 10)],
        "sink_tokens": [1, 4, 64, 1000],
        "recent_tokens": [1, 64, 1024, 32_768],
        "placement_host": [0.5, 1.0, *random.uniform(0, 1, 10)],
        "tensor_parallel": [2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 72],
        "utilisation": [0.5, 0.9, *random.uniform(0.1, 1, 4)],
    }
    return {axis: pool(axis, values) for axis, values in numbers.items()}


def draw_designs() -> Designs:
    """Each axis is neutral in about a third of the designs."""
    random = np.random.default_rng(SEED)
    names: dict[str, Sequence[Value]] = {
        "model": loadable_model_names(),
        "hardware": hardware_names(),
        "price_basis": PRICE_BASES,
        "quantizer": QUANTIZERS,
        "evictor": EVICTORS,
        "question_visible": [True, False],
    }
    space = make_space({axis: list(values) for axis, values in (names | number_pools(random)).items()})
    positions = {}
    for axis, length in zip(space.dims, space.shape, strict=True):
        drawn = random.integers(0, length, POINTS)
        neutral = random.random(POINTS) < 0.35
        has_neutral = AXES[axis].neutral is not None
        positions[axis] = np.where(neutral & has_neutral, 0, drawn).astype(np.int32)
    return Designs(space, load_catalogue(space), positions)
