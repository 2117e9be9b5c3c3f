"""Optuna parameters of a study: one per grid dimension, and the way back from a trial to the design's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from kvwall.spaces.axes import Value
from kvwall.spaces.space import Space
from kvwall.spaces.values import AxisValues

Params: TypeAlias = Mapping[str, Any]
"""What Optuna suggests: parameter name -> index, number or name."""

_WORD_RANKS_AS = {"weight_bits": 16.0, "utilisation": 1.0, "max_model_length": 0.0}
"""Where an axis's word stands among its numbers: `native` next to the format most checkpoints are published in."""


@dataclass(frozen=True)
class Parameters:
    """The search space of a study.

    A numeric dimension is an ordered index over its sorted values, so that distance means something; a name or flag
    is categorical. With `continuous`, real dimensions become floats between their ends and integer ones whole numbers
    between theirs. Tied axes follow their leaders, fixed axes are no parameters.
    """

    space: Space
    continuous: bool = False

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Parameter name -> distribution, in the order of the grid's dimensions."""
        return {entry.axis.name: self._distribution(entry) for entry in self.space.dimensions}

    @cached_property
    def free(self) -> tuple[str, ...]:
        """Dimensions that leave the grid: numeric ones of a continuous search."""
        return tuple(entry.axis.name for entry in self.space.dimensions if self.continuous and _is_interval(entry))

    @cached_property
    def size(self) -> int | None:
        """Number of different designs, None when there is no end of them."""
        return None if self.free else self.space.size

    def _distribution(self, entry: AxisValues) -> BaseDistribution:
        if entry.axis.name in self.free:
            low, high = min(map(float, entry.values)), max(map(float, entry.values))
            if entry.axis.kind == "int":
                return IntDistribution(int(low), int(high))
            return FloatDistribution(float(low), float(high))
        if entry.axis.kind in {"int", "real"}:
            return IntDistribution(0, len(entry) - 1)
        return CategoricalDistribution([_choice(value) for value in entry.values])

    @cached_property
    def _ordered(self) -> dict[str, list[int]]:
        """Per numeric dimension, the grid positions in order of their values."""
        numeric = (entry for entry in self.space.dimensions if entry.axis.kind in {"int", "real"})
        return {
            entry.axis.name: sorted(range(len(entry)), key=lambda i, entry=entry: _rank(entry, i))  # type: ignore[misc]
            for entry in numeric
        }

    def position(self, params: Params) -> dict[str, int]:
        """Grid position along each dimension; 0 along dimensions that leave the grid."""
        found = {}
        for entry in self.space.dimensions:
            name = entry.axis.name
            if name in self.free:
                found[name] = 0
            elif name in self._ordered:
                found[name] = self._ordered[name][int(params[name])]
            else:
                found[name] = [_choice(value) for value in entry.values].index(params[name])
        return found

    def positions(self, batch: Sequence[Params]) -> dict[str, np.ndarray[Any, np.dtype[np.int32]]]:
        """Grid positions of many trials, one int32 array per dimension."""
        rows = [self.position(params) for params in batch]
        return {name: np.array([row[name] for row in rows], dtype=np.int32) for name in self.space.dims}

    def numbers(self, batch: Sequence[Params]) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
        """Values of the dimensions that leave the grid."""
        return {name: np.array([params[name] for params in batch], dtype=np.float32) for name in self.free}

    def params(self, grid_index: int) -> dict[str, Any]:
        """The trial parameters of a grid point."""
        point = self.space.point(grid_index)
        found: dict[str, Any] = {}
        for entry in self.space.dimensions:
            name = entry.axis.name
            if name in self.free:
                found[name] = point[name]
            elif name in self._ordered:
                found[name] = self._ordered[name].index(entry.values.index(point[name]))
            else:
                found[name] = _choice(point[name])
        return found

    def chosen(self, params: Params) -> dict[str, Value]:
        """Every axis's value in the design of a trial."""
        position = self.position(params)
        axes: dict[str, Value] = {}
        for entry in self.space.axes:
            dimension = self.space.dimension_of(entry.axis.name)
            if dimension in self.free:
                axes[entry.axis.name] = params[dimension]
            else:
                axes[entry.axis.name] = entry.values[position[dimension] if dimension else 0]
        return axes


def key(params: Params) -> tuple[Any, ...]:
    """Two trials of one study are the same design exactly when their keys are equal."""
    return tuple(params[name] for name in sorted(params))


def _is_interval(entry: AxisValues) -> bool:
    return entry.axis.kind in {"int", "real"} and (not entry.axis.word or entry.axis.word not in entry.values)


def _rank(entry: AxisValues, place: int) -> float:
    value = entry.values[place]
    return _WORD_RANKS_AS[entry.axis.name] if value == entry.axis.word else float(value)


def _choice(value: Value) -> str | bool:
    """A category as Optuna stores it."""
    return value if isinstance(value, bool) else str(value)
