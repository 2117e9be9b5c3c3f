"""Holding an axis at one of its stored values: the part of a dataset of points where it has that value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvwall.spaces.axes import Value, axis_named
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.readable import number_text
from kvwall.sweep.study import Study

Where = Mapping[str, Value]
"""Axis -> the value it is held at."""
_MOST_SHOWN: Final = 4
_SAME: Final = 1e-12
"""Relative difference up to which two real values of an axis are the same."""


def held(dataset: xr.Dataset, where: Where, study: Study) -> xr.Dataset:
    """The dataset's points with these values; its dimensions stay. Raises InputError with every fault."""
    faults = Faults()
    kept: dict[Any, NDArray[np.bool_]] = {}
    for name, wanted in where.items():
        try:
            dim, there = _positions(dataset, name, wanted, study)
        except InputError as error:
            faults.absorb(error)
            continue
        if dim is not None:
            kept[dim] = kept.get(dim, np.True_) & there
    faults.raise_if_any()
    for dim, there in kept.items():
        if not there.any():
            told = where_text({name: value for name, value in where.items() if dim in dataset[name].dims})
            raise InputError(f"no stored point has {told}: these axes move together")
    return dataset.isel({dim: np.flatnonzero(there) for dim, there in kept.items()})


def where_text(where: Where) -> str:
    """The values in words.

    >>> where_text({"context": 131072, "hardware": "h100-sxm"})
    'context = 131,072 and hardware = h100-sxm'
    """
    return " and ".join(f"{name} = {number_text(value)}" for name, value in where.items())


def _positions(dataset: xr.Dataset, name: str, wanted: Value, study: Study) -> tuple[Any, NDArray[np.bool_]]:
    """The dimension an axis varies along, None where it is fixed, and where along it the value stands."""
    value = axis_named(name).check(wanted)
    if name not in dataset.coords:
        raise InputError(f"the dataset has lost its coordinate {name}: select from it without dropping coordinates")
    coordinate = dataset[name]
    stored = np.atleast_1d(coordinate.values).tolist()
    there = np.array([_same(one, value) for one in stored], dtype=bool)
    if not there.any():
        on_grid = any(_same(one, value) for one in study.space.values(name))
        more = "; it is on the study's grid: add it to [sweep.slice] and run `kvwall sweep`" if on_grid else ""
        raise InputError(f"{name} = {number_text(value)} is not stored: choose {_closest(stored, value)}{more}")
    return (coordinate.dims[0] if coordinate.dims else None), there


def _closest(stored: list[Any], value: Value) -> str:
    """Stored values in words, of numbers the closest."""
    known = list(dict.fromkeys(stored))
    if isinstance(value, int | float) and all(isinstance(one, int | float) for one in known):
        known.sort(key=lambda one: abs(one - value))
    return " or ".join(map(number_text, known[:_MOST_SHOWN])) + (" or ..." if len(known) > _MOST_SHOWN else "")


def _same(one: Value, other: Value) -> bool:
    """Whether two values of an axis are one, as files keep them."""
    if isinstance(one, str) or isinstance(other, str):
        return str(one) == str(other)
    return abs(float(one) - float(other)) <= _SAME * abs(float(other))
