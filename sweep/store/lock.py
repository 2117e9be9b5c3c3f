"""One writer per results folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

from kvwall.spaces.errors import InputError
from kvwall.sweep.store.atomic import refused


class FolderLock:
    """Holds `.lock` of a folder until released; the system releases it when the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Take it. Raises InputError naming the process that holds it."""
        path = folder / ".lock"
        try:
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as fault:
            raise refused(path, fault) from fault
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
        except OSError as fault:
            holder = os.pread(self._handle, 300, 0).decode(errors="replace")
            self.release()
            raise _fault(folder, fault, holder) from fault

    def release(self) -> None:
        """Let the next writer in; harmless when done already."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _fault(folder: Path, fault: OSError, holder: str) -> InputError:
    if fault.errno in {errno.EWOULDBLOCK, errno.EACCES}:
        return InputError(
            f"{folder} is being written by process {holder or '(unknown)'}: wait for it, end it, or choose another "
            "folder with --out"
        )
    if fault.errno in {errno.ENOSPC, errno.EDQUOT}:
        return refused(folder / ".lock", fault)
    return InputError(
        f"{folder} cannot be locked ({fault.strerror}): its file system has no file locks; choose a local disk "
        "with --out"
    )
