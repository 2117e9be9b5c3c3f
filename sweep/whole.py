"""The stored slice as one netCDF file: the chunks of all shards as they are, neither unpacked nor packed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import netCDF4
import numpy as np

from kvwall.spaces.errors import InputError
from kvwall.sweep.keeping import DEFAULT_PROFILE, PROFILES
from kvwall.sweep.store.checksum import NAME as CHECKSUM
from kvwall.sweep.store.image import add_variable, add_words, netcdf_image, set_globals
from kvwall.sweep.store.shards import shard_name
from kvwall.sweep.store.view import SHARD_BYTES

_ABOUT_SHARDS = {"shard_count", "shard_shape"}


def write_whole(file: BinaryIO, folder: Path, follow: Callable[[int, int], None]) -> None:
    """Write the slice of a results folder into an empty file; `follow` is told how many of how many shards are in.

    `check_stored` has found every shard whole. Raises InputError where one has been damaged since, OSError where the
    disk refuses.
    """
    with netCDF4.Dataset(folder / "view.nc") as view:
        count = int(view.shard_count)
        shards = [folder / "shards" / shard_name(index) for index in range(count)]
        stored = [name for name, variable in view.variables.items() if _is_stored(variable)]
        file.write(netcdf_image(lambda whole: _define(whole, view, stored, shards[0])))
    file.flush()
    with h5py.File(file.name, "r+", locking=False) as whole:
        places = _places(whole)
        for done, path in enumerate(shards, 1):
            _copy(path, whole, stored, places)
            follow(done, count)


def _define(whole: netCDF4.Dataset, view: netCDF4.Dataset, stored: Sequence[str], shard: Path) -> None:
    """Everything but the stored numbers."""
    for name, dim in view.dimensions.items():
        if name != "shard":
            whole.createDimension(name, len(dim))
    with h5py.File(shard, "r", locking=False) as first:
        chunks = {name: first[name].chunks for name in stored}
    profile = PROFILES[getattr(view, "profile", DEFAULT_PROFILE)]
    for name, variable in view.variables.items():
        about = {key: variable.getncattr(key) for key in variable.ncattrs() if key != "_FillValue"}
        if chunks.get(name):
            layout: dict[str, Any] = {**profile.filters_for(math.prod(chunks[name])), "chunksizes": chunks[name]}
            fill = np.float32("nan") if variable.dtype.kind == "f" else False
            whole.createVariable(name, variable.dtype, variable.dimensions, fill_value=fill, **layout).setncatts(about)
        elif variable.dtype is str:
            add_words(whole, name, variable.dimensions, np.atleast_1d(variable[...]).tolist(), about)
        elif name not in {SHARD_BYTES, CHECKSUM}:
            numbers = np.ma.getdata(variable[...])
            add_variable(whole, name, variable.dimensions, numbers, about, may_be_missing=name in chunks)
    kept = {key: view.getncattr(key) for key in view.ncattrs() if key not in _ABOUT_SHARDS}
    set_globals(whole, {**kept, "summary": "The stored slice of the swept grid, in one file."})


def _is_stored(variable: netCDF4.Variable[Any]) -> bool:
    """Whether it has a number for every point: metrics and labels say what they rest on, coordinates need not."""
    return "evidence" in variable.ncattrs()


def _places(whole: h5py.File) -> list[tuple[str, dict[Any, int]]]:
    """Each dimension of the stored variables: its name, and the position of each of its values."""
    status = whole["status"]
    dims = [status.dims[place][0].name.lstrip("/") for place in range(status.ndim)]
    return [(dim, {value: place for place, value in enumerate(whole[dim][...].tolist())}) for dim in dims]


def _copy(
    path: Path,
    whole: h5py.File,
    stored: Sequence[str],
    places: list[tuple[str, dict[Any, int]]],
) -> None:
    """Copy the chunks of a shard to their place."""
    try:
        with h5py.File(path, "r", locking=False) as shard:
            start = [places_of[shard[dim][...].tolist()[0]] for dim, places_of in places]
            chunks = [
                (name, corner, shard[name].id.read_direct_chunk(corner))
                for name in stored
                if shard[name].chunks
                for corner in _corners(shard[name])
            ]
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError) as fault:
        raise InputError(
            f"{path} is damaged ({fault}): run `kvwall sweep` again, which computes only what is damaged or missing"
        ) from fault
    for name, corner, (mask, packed) in chunks:
        place = tuple(first + own for first, own in zip(start, corner, strict=True))
        whole[name].id.write_direct_chunk(place, packed, mask)


def _corners(stored: h5py.Dataset) -> Iterator[tuple[int, ...]]:
    """First position of every chunk that a file holds."""
    return (stored.id.get_chunk_info(place).chunk_offset for place in range(stored.id.get_num_chunks()))
