"""A netCDF-4 file built in memory, so that only whole files reach the disk and a full disk is an ordinary error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import netCDF4
import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.store.attributes import Attributes
from kvwall.sweep.store.shards import MOST_CHUNK_POINTS, block_shape
from kvwall.sweep.store.times import clear_times

_FIRST_BYTES = 1 << 20
_IN_NETCDF = threading.Lock()  # the library is not made for threads
_LEAST_DEFLATED = 1000  # elements: below, a chunk costs more than it saves


def netcdf_image(fill: Callable[[netCDF4.Dataset], None]) -> memoryview:
    """The bytes of the file that `fill` defines."""
    with _IN_NETCDF:
        file = netCDF4.Dataset("image.nc", "w", format="NETCDF4", memory=_FIRST_BYTES)
        try:
            fill(file)
        except BaseException:
            file.close()
            raise
        image = memoryview(bytearray(file.close()))
    clear_times(image)
    return image


def add_variable(
    file: netCDF4.Dataset,
    name: str,
    dims: Sequence[str],
    numbers: NDArray[Any],
    attributes: Attributes,
    *,
    may_be_missing: bool = True,
) -> None:
    """Define and write one variable of numbers. Large arrays are shuffled and deflated, as every netCDF reader knows.

    Floats that may be missing get NaN as `_FillValue`. Integers get none, since readers would turn them into floats;
    nor do coordinates, which CF forbids.
    """
    fill_value = numbers.dtype.type("nan") if numbers.dtype.kind == "f" and may_be_missing else False
    if dims and numbers.size > _LEAST_DEFLATED:
        variable = file.createVariable(
            name,
            numbers.dtype,
            tuple(dims),
            compression="zlib",
            complevel=1,
            shuffle=True,
            chunksizes=block_shape(numbers.shape, MOST_CHUNK_POINTS),
            fill_value=fill_value,
        )
    else:
        variable = file.createVariable(name, numbers.dtype, tuple(dims), fill_value=fill_value)
    variable.setncatts(attributes)
    if numbers.size:
        variable[...] = numbers


def add_words(
    file: netCDF4.Dataset, name: str, dims: Sequence[str], words: Sequence[str], attributes: Attributes
) -> None:
    """Define and write one variable of strings: a scalar without dimensions. Never compressed: netCDF cannot."""
    variable = file.createVariable(name, str, tuple(dims))
    variable.setncatts(attributes)
    if not dims:
        variable[...] = words[0]
    elif words:
        variable[:] = np.array(words, dtype=object)


def set_globals(file: netCDF4.Dataset, *groups: Mapping[str, object]) -> None:
    """Write global attributes."""
    for group in groups:
        file.setncatts(group)
