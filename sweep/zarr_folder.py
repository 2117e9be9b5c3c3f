"""The stored slice as a folder in the Zarr format, version 2: what cloud and array tools read."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep.store import STORED_DAMAGED


def check_zarr() -> None:
    """Raise InputError where the package is not installed."""
    if importlib.util.find_spec("zarr") is None:
        raise InputError("--to zarr needs the package zarr: pip install 'kvwall[zarr]'; netcdf and parquet need none")


def check_replaceable(path: Path) -> None:
    """Raise InputError where something has this name that is no folder of Zarr: replacing removes what is in it."""
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or not (path / ".zgroup").is_file()):
        raise InputError(f"{path} is no folder in the Zarr format, and --force replaces no other: give another --out")


def write_zarr(path: Path, stored: xr.Dataset, block: Sequence[int], follow: Callable[[int, int], None]) -> None:
    """Write a stored slice into a new folder, block by block; `follow` is told how many of how many are in."""
    import zarr

    dims, shape = stored["status"].dims, stored["status"].shape
    chunks = tuple(block) if dims else ()
    coordinates = stored.coords.to_dataset().assign_attrs(_plain(stored.attrs))
    for name in coordinates.variables:
        coordinates[name].attrs = _plain(coordinates[name].attrs)
    coordinates.to_zarr(path, mode="w-", zarr_format=2, consolidated=False)
    arrays = {
        name: zarr.create_array(
            path,
            name=str(name),
            shape=shape,
            chunks=chunks,
            dtype=array.dtype,
            fill_value=float("nan") if array.dtype.kind == "f" else None,
            attributes={"_ARRAY_DIMENSIONS": [str(dim) for dim in dims], **_plain(array.attrs)},
            zarr_format=2,
        )
        for name, array in stored.data_vars.items()
    }
    blocks = [*_blocks(shape, chunks)]
    for done, cut in enumerate(blocks, 1):
        part = stored.isel(dict(zip(dims, cut, strict=True)))
        for name, array in arrays.items():
            array[cut] = _read(part[name])
        follow(done, len(blocks))
    zarr.consolidate_metadata(path, zarr_format=2)


def _read(part: xr.DataArray) -> np.ndarray[Any, Any]:
    try:
        return part.values
    except (OSError, RuntimeError) as fault:  # what HDF5 makes of a damaged shard
        raise InputError(STORED_DAMAGED.format(fault=fault)) from fault


def _blocks(shape: Sequence[int], block: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Every block, in grid order."""
    return itertools.product(
        *(
            [slice(start, start + step) for start in range(0, length, step)]
            for length, step in zip(shape, block, strict=True)
        )
    )


def _plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Attributes as JSON has them."""
    return {
        str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for key, value in attributes.items()
    }
