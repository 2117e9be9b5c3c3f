"""Chunks of numbers as files hold them: what the filters of a profile undo on reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import h5py
import netCDF4
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from kvwall.spaces.errors import InputError
from kvwall.sweep.keeping import Profile
from kvwall.sweep.store.image import netcdf_image

_LEVEL: Final = 1


def packed(filters: Mapping[str, object], pieces: Iterator[NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """Each chunk as a file with these filters holds it; chunks of one variable, all of one shape and type."""
    match filters.get("compression"):
        case None:
            yield from (piece.data for piece in pieces)
        case "zlib":  # ISA-L writes what zlib reads, at five times zlib's speed
            yield from (isal_zlib.compress(_shuffled(piece), _LEVEL) for piece in pieces)
        case _:
            yield from _through_netcdf(pieces, filters)


def check_filters(profile: Profile, doing: str) -> None:
    """Raise InputError where this installation lacks a filter of the profile; `doing` begins the sentence."""
    if profile.needs_plugin and not _blosc_is_there():
        raise InputError(
            f'{doing} profile = "{profile.name}", and this installation of netCDF lacks its filter (blosc): point '
            "HDF5_PLUGIN_PATH at the folder of the plugin, install netCDF4 from PyPI, which brings it, or write the "
            'results with profile = "portable"'
        )


@cache
def _blosc_is_there() -> bool:
    found = []
    netcdf_image(lambda file: found.append(file.has_blosc_filter()))
    return bool(found[0])


def _shuffled(piece: NDArray[Any]) -> NDArray[np.uint8]:
    """First the first bytes of all numbers, then the second ones: HDF5's shuffle filter."""
    return np.ascontiguousarray(piece.reshape(-1, 1).view(np.uint8).T)


def _through_netcdf(pieces: Iterator[NDArray[Any]], filters: Mapping[str, object]) -> Iterator[bytes]:
    """Packed by netCDF's own filter, in a file in memory with a chunk for each piece."""
    whole = np.stack(list(pieces))

    def fill(file: netCDF4.Dataset) -> None:
        dims = tuple(f"d{place}" for place in range(whole.ndim))
        for dim, length in zip(dims, whole.shape, strict=True):
            file.createDimension(dim, length)
        options: dict[str, Any] = {**filters, "chunksizes": (1, *whole.shape[1:]), "fill_value": False}
        file.createVariable("packed", whole.dtype, dims, **options)[...] = whole

    with h5py.File.in_memory(netcdf_image(fill)) as file:
        stored = file["packed"].id
        for place in range(len(whole)):
            yield stored.read_direct_chunk((place, *(0 for _ in whole.shape[1:])))[1]
