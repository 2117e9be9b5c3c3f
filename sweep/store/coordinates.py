"""The axes of a study as coordinates of a file: on their dimension, on their leader's, or as scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.spaces.values import AxisValues
from kvwall.sweep.store.attributes import axis_attributes
from kvwall.sweep.store.image import add_variable, add_words

if TYPE_CHECKING:
    from kvwall.spaces.space import Space

Positions = Mapping[str, NDArray[np.integer[Any]]]
"""Dimension of the space -> positions along it."""


def add_axes(file: netCDF4.Dataset, space: Space, positions: Positions, dims: Sequence[str]) -> None:
    """Define a dimension for each of `dims`, and every axis of the space as a coordinate at the given positions.

    An axis that moves with one of `dims` lies along it; every other one is a scalar: its value, or the value at the one
    position given for its dimension.
    """
    for dim in dims:
        file.createDimension(dim, len(positions[dim]))
    for entry in space.axes:
        along = space.dimension_of(entry.axis.name)
        _add_axis(file, entry, positions[along] if along else [0], (along,) if along and along in dims else ())


def add_axes_by_row(file: netCDF4.Dataset, space: Space, positions: Positions, row: str) -> None:
    """Every axis at given positions row by row: those that vary lie along the dimension `row`, others are scalars."""
    for entry in space.axes:
        along = space.dimension_of(entry.axis.name)
        _add_axis(file, entry, positions[along] if along else [0], (row,) if along else ())


def values_along(space: Space, positions: Positions, dims: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Axis -> what its coordinate holds, of the axes that `add_axes` lays along `dims`."""
    placed = [(entry, space.dimension_of(entry.axis.name)) for entry in space.axes]
    return {
        entry.axis.name: _stored_values(entry, positions[dim])
        for entry, dim in placed
        if dim is not None and dim in dims
    }


def scalar_names(space: Space, dims: Sequence[str]) -> str:
    """For the CF attribute `coordinates`: the axes that are not themselves dimensions, blank-separated."""
    return " ".join(entry.axis.name for entry in space.axes if entry.axis.name not in dims)


def _add_axis(
    file: netCDF4.Dataset, entry: AxisValues, positions: Sequence[int] | NDArray[Any], dims: Sequence[str]
) -> None:
    values = _stored_values(entry, positions)
    attributes = axis_attributes(entry.axis)
    if values.dtype == object:
        attributes = {"long_name": attributes["long_name"]}
        add_words(file, entry.axis.name, dims, values.tolist(), attributes)
    else:
        add_variable(file, entry.axis.name, dims, values if dims else values[0], attributes, may_be_missing=False)


def _stored_values(entry: AxisValues, positions: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
    """Values at some positions along an axis: text as objects."""
    values = [entry.values[int(position)] for position in positions]
    if any(isinstance(value, str) for value in entry.values):
        return np.array([_word(value) for value in values], dtype=object)
    return np.array(values, dtype={"int": np.int64, "flag": np.int8}.get(entry.axis.kind, np.float64))


def _word(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"
