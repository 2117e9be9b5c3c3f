"""A file's own checksum: the CRC-32 of all its bytes, kept in a variable of four bytes that count as zero."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import h5py
import netCDF4
import numpy as np
from isal import isal_zlib

from kvwall.sweep.store.image import add_variable
from kvwall.sweep.store.memory_file import MemoryFile
from kvwall.sweep.store.times import clear_root_times

NAME: Final = "checksum"
_DTYPE: Final = np.dtype("<u4")
_AT_ONCE: Final = 1 << 22  # bytes


def add_checksum(file: netCDF4.Dataset) -> None:
    """Define the variable; `seal` fills it when all else is written."""
    about = {"long_name": "CRC-32 (zlib's) of this file, with the four bytes of this number taken as zero"}
    add_variable(file, NAME, (), np.zeros((), _DTYPE), about)


def seal(image: MemoryFile) -> None:
    """Write the checksum into a finished file in memory, whose own is still zero."""
    with h5py.File(image, "r") as file:
        place = file[NAME].id.get_offset()
    stored = image.view
    clear_root_times(stored)
    stored[place : place + _DTYPE.itemsize] = _DTYPE.type(isal_zlib.crc32(stored)).tobytes()


def sealed(image: bytes | memoryview) -> memoryview:
    """A finished file with its checksum; its own is still zero."""
    file = MemoryFile()
    file.restart(image, 0)
    seal(file)
    return file.view


def damage(path: Path) -> str | None:
    """What is wrong with a sealed file; None where it is whole. Every byte is read."""
    try:
        with h5py.File(path, "r", locking=False) as file:
            return None if is_intact(path, file) else "its bytes are not those that were written"
    except Exception as fault:  # whatever HDF5 makes of bytes that it did not write
        return f"it is truncated or damaged: {fault}"


def is_intact(path: Path, file: h5py.File) -> bool:
    """Whether the file at `path`, open as `file`, has the bytes it was sealed with.

    Raises KeyError where it was never sealed, OSError where it cannot be read.
    """
    place, expected = file[NAME].id.get_offset(), int(file[NAME][()])
    found, start = 0, 0
    buffer = memoryview(bytearray(_AT_ONCE))
    with path.open("rb", buffering=0) as stored:
        while count := stored.readinto(buffer):
            for own in range(max(place, start), min(place + _DTYPE.itemsize, start + count)):
                buffer[own - start] = 0
            found = isal_zlib.crc32(buffer[:count], found)
            start += count
    return found == expected
