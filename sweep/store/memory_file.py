"""A file in memory that HDF5 writes into, made to be used again: a system takes its time over new memory."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


class MemoryFile(io.RawIOBase):
    """What h5py's driver for file objects asks of a file, over one NumPy array, which gets huge pages."""

    def __init__(self) -> None:
        super().__init__()
        self._array = np.empty(0, np.uint8)
        self._at = self._end = 0

    def restart(self, start: bytes | memoryview, room: int) -> None:
        """Hold the bytes `start` and no others; `room` is what it may grow by without being moved."""
        if len(self._array) < len(start) + room:
            self._array = np.empty(len(start) + room, np.uint8)
        self._at = self._end = 0
        self.write(start)

    @property
    def view(self) -> memoryview:
        """All bytes, to be read or changed in place until the next restart."""
        return self._array[: self._end].data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        """The present place."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the present place on, as far as there is something."""
        wanted = memoryview(buffer)
        count = max(0, min(len(wanted), self._end - self._at))
        wanted[:count] = self._array[self._at : self._at + count].data
        self._at += count
        return count

    def write(self, data: Any) -> int:
        """Write at the present place."""
        stop = self._at + len(data)
        self._reach(stop)
        self._array[self._at : stop] = np.frombuffer(data, np.uint8)
        self._at = stop
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """End at this size; bytes that were never written are zero."""
        size = self._at = self._at if size is None else size
        self._reach(size)
        self._end = size
        return size

    def _reach(self, stop: int) -> None:
        if stop > len(self._array):
            grown = np.empty(2 * stop, np.uint8)
            grown[: self._end] = self._array[: self._end]
            self._array = grown
        if stop > self._end:
            self._array[self._end : max(self._end, self._at)] = 0
            self._end = stop
