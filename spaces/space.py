"""A Space: named axes with values, some tied to others; grid index <-> design."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kvwall.spaces.axes import AXES, Axis, Value, axis_named
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.values import AxisValues, axis_values


@dataclass(frozen=True)
class Space:
    """The grid: the product of its free axes' values, in the order stated (first axis slowest).

    `axes` has every axis of the register: free ones (stated), tied ones (their leader's values) and neutral ones.
    """

    axes: tuple[AxisValues, ...]
    leader: Mapping[str, str]
    """Follower -> the free axis it moves with."""

    @property
    def dimensions(self) -> tuple[AxisValues, ...]:
        """Free axes with more than one value: the grid's dimensions, slowest first."""
        return tuple(values for values in self.axes if len(values) > 1 and values.axis.name not in self.leader)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions."""
        return tuple(values.axis.name for values in self.dimensions)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return tuple(len(values) for values in self.dimensions)

    @property
    def size(self) -> int:
        """Points of the grid."""
        return math.prod(self.shape)

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of one axis."""
        return self[name].values

    def __getitem__(self, name: str) -> AxisValues:
        for values in self.axes:
            if values.axis.name == name:
                return values
        raise KeyError(name)

    def dimension_of(self, name: str) -> str | None:
        """The dimension an axis varies along: itself, its leader, or None when it is fixed."""
        name = self.leader.get(name, name)
        return name if name in self.dims else None

    def point(self, index: int) -> dict[str, Value]:
        """The design at a flat grid index: every axis's value. Raises IndexError outside the grid."""
        if not 0 <= index < self.size:
            raise IndexError(f"grid index {index} is outside 0 to {self.size - 1}")
        position = dict(zip(self.dims, np.unravel_index(index, self.shape), strict=True)) if self.dims else {}
        chosen = {}
        for entry in self.axes:
            dimension = self.dimension_of(entry.axis.name)
            chosen[entry.axis.name] = entry.values[int(position[dimension]) if dimension else 0]
        return chosen

    def index(self, chosen: Mapping[str, Value]) -> int:
        """The flat grid index of a design given at least every dimension. Raises InputError off the grid."""
        faults = Faults()
        position = []
        for entry in self.dimensions:
            value = chosen.get(entry.axis.name)
            if value not in entry.values:
                faults.add(f"{entry.axis.name} = {value!r} is not on the grid: {_shortened(entry)}")
                continue
            position.append(entry.values.index(value))
        faults.raise_if_any()
        return int(np.ravel_multi_index(position, self.shape)) if position else 0


def _shortened(entry: AxisValues) -> str:
    shown = [str(value) for value in entry.values[:8]]
    return ", ".join(shown) + (" ..." if len(entry) > 8 else "")


def make_space(stated: Mapping[str, object]) -> Space:
    """A Space from what a study or a command states; unnamed axes stay neutral. Raises InputError with every fault.

    An axis stated as another axis's name is tied to it.

    >>> wanted = {"model": "m", "hardware": "h", "context": 8, "key_bits": [16, 4, 2], "value_bits": "key_bits"}
    >>> make_space(wanted).shape
    (3,)
    """
    faults = Faults()
    found: dict[str, AxisValues] = {}
    leader: dict[str, str] = {}
    for name, what in stated.items():
        try:
            axis = axis_named(name)
            if isinstance(what, str) and what in AXES and what not in {name, axis.word}:
                leader[name] = what
            else:
                found[name] = axis_values(axis, what)
        except InputError as error:
            faults.absorb(error)
    for axis in AXES.values():
        if axis.required and axis.name not in stated:
            faults.add(f"{axis.name} is missing: state {axis.allowed} ({axis.meaning})")
    ties = _ties(leader, found, faults) if not faults else {}
    faults.raise_if_any()
    return Space(_ordered(found | ties), leader)


def _ties(leader: Mapping[str, str], found: Mapping[str, AxisValues], faults: Faults) -> dict[str, AxisValues]:
    ties = {}
    for follower, leading in leader.items():
        if leading not in found:
            faults.add(f'{follower} = "{leading}": a tied axis needs a leader that states its own values')
            continue
        try:
            ties[follower] = axis_values(AXES[follower], list(found[leading].values))
        except InputError as error:
            faults.add(f'{follower} = "{leading}": ' + "; ".join(error.faults))
    return ties


def _ordered(found: Mapping[str, AxisValues]) -> tuple[AxisValues, ...]:
    """Stated axes in their order, then the neutral ones: the order of the grid's dimensions is the study's."""
    neutral = [_neutral(axis) for axis in AXES.values() if axis.name not in found]
    return (*found.values(), *neutral)


def _neutral(axis: Axis) -> AxisValues:
    if axis.neutral is None:
        raise InputError(f"{axis.name} is missing")
    return AxisValues(axis, (axis.neutral,))
