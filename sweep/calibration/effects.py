"""One number for each chip, engine and format, pooled: what many cells share, and what is a cell's own.

The number of a cell is mean[format] + architecture + engine + pair (architecture and format) + its own,
all but the mean normal about 0. How far the
members of a level spread is found with them (expectation and maximization), so a level with few or noisy members is
drawn to 0 and lends little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.kernel_record import Effect, EffectTable, Spread

Floats: TypeAlias = NDArray[np.float64]

_LEVELS: Final = ("mean", "architecture", "engine", "pair", "cell")
_MEAN_SD: Final = 3.0
"""Nothing is known of a mean beforehand."""
_GUESS: Final = 0.1
"""Spread of a level beforehand, with the weight of one member: keeps a level of few members from 0."""
_LEAST_SD: Final = 0.02
"""No cell is known better: another run of the same benchmark differs by as much."""
_ROUNDS: Final = 200


@dataclass(frozen=True)
class CellNumber:
    """The logarithm of one number, fitted to the rows of one chip, engine and format."""

    chip: str
    architecture: str
    engine: str
    format: str
    value: float
    sd: float
    rows: int
    sources: tuple[str, ...]
    alone: bool = False
    """Whether it tells others nothing: a fallback kernel."""

    @property
    def name(self) -> str:
        """Of the cell."""
        return f"{self.chip}/{self.engine}/{self.format}"

    def member(self, level: str) -> str:
        """Name of its effect on a level."""
        return {
            "mean": self.format,
            "architecture": self.architecture,
            "engine": self.engine,
            "pair": f"{self.architecture}/{self.format}",
            "cell": self.name,
        }[level]


def fit_effects(cells: Sequence[CellNumber], unit: str) -> EffectTable:
    """The effects that explain these cells."""
    pooled = [cell for cell in cells if not cell.alone]
    names = [(level, name) for level in _LEVELS for name in sorted({cell.member(level) for cell in pooled})]
    column = {name: place for place, name in enumerate(names)}
    design = np.zeros((len(pooled), len(names)))
    for row, cell in enumerate(pooled):
        design[row, [column[level, cell.member(level)] for level in _LEVELS]] = 1.0
    level_of = np.array([level for level, _ in names])
    mean, covariance, spread = _pool(design, pooled, level_of)
    sd = np.sqrt(np.diag(covariance))
    total_sd = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design))
    found: dict[str, dict[str, Effect]] = {level: {} for level in _LEVELS}
    for (level, name), value, each in zip(names, mean, sd, strict=True):
        members = [cell for cell in pooled if cell.member(level) == name]
        found[level][name] = _effect(float(value), float(each), members)
    for cell, each in zip(pooled, total_sd, strict=True):
        found["cell"][cell.name] = _effect(found["cell"][cell.name].value, float(each), [cell])
    for cell in cells:
        if cell.alone:
            found["cell"][cell.name] = _effect(cell.value - _lent(cell, found), max(cell.sd, _LEAST_SD), [cell])
    return EffectTable(unit=unit, **{level: dict(sorted(found[level].items())) for level in _LEVELS}, spread=spread)


def _pool(design: Floats, cells: Sequence[CellNumber], level_of: NDArray[np.str_]) -> tuple[Floats, Floats, Spread]:
    """Mean and covariance of all effects, and the spread of each level."""
    value = np.array([cell.value for cell in cells])
    middle = float(np.mean(value))
    is_mean = level_of == "mean"
    weight = 1 / np.maximum([cell.sd for cell in cells], _LEAST_SD) ** 2
    spread = {level: _GUESS for level in _LEVELS[1:]}
    information = design.T @ (weight[:, None] * design)
    mean, covariance = np.zeros(len(level_of)), np.eye(len(level_of))
    for _ in range(_ROUNDS):
        prior = np.array([1 / (spread.get(level, _MEAN_SD) ** 2) for level in level_of])
        covariance = np.linalg.inv(information + np.diag(prior))
        mean = covariance @ (design.T @ (weight * (value - middle)))
        for level in spread:
            here = level_of == level
            square = np.sum(mean[here] ** 2 + np.diag(covariance)[here])
            spread[level] = float(np.sqrt((square + _GUESS**2) / (np.sum(here) + 1)))
    return mean + middle * is_mean, covariance, Spread(**spread)


def _lent(cell: CellNumber, found: Mapping[str, Mapping[str, Effect]]) -> float:
    """What the levels give a cell; a format that only it has gets the mean 0."""
    known = [found[level].get(cell.member(level)) for level in _LEVELS[:-1]]
    return sum(effect.value for effect in known if effect)


def _effect(value: float, sd: float, cells: Sequence[CellNumber]) -> Effect:
    sources = sorted({source for cell in cells for source in cell.sources})
    return Effect(value, sd, sum(cell.rows for cell in cells), tuple(sources))


def mapped(table: EffectTable, change: Callable[[float], float]) -> EffectTable:
    """The table with every number changed, as by rounding."""

    def each(effects: Mapping[str, Effect]) -> dict[str, Effect]:
        return {
            name: Effect(change(effect.value), change(effect.sd), effect.rows, effect.sources)
            for name, effect in effects.items()
        }

    spread = Spread(**{level: change(getattr(table.spread, level)) for level in _LEVELS[1:]})
    levels = {level: each(getattr(table, level)) for level in _LEVELS}
    return EffectTable(unit=table.unit, **levels, spread=spread)
