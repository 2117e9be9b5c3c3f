"""Writing a file so that its final name only ever holds a whole one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from pathlib import Path
from typing import TypeAlias

from kvwall.spaces.errors import InputError

Payload: TypeAlias = bytes | memoryview


def write_atomically(path: Path, payload: Payload) -> None:
    """Write under a hidden name in the same folder, flush to the disk, then rename.

    A kill or a power cut leaves the old file, or none, and perhaps a hidden `.part`. Raises InputError where the disk
    is full or the folder cannot be written to; nothing is left behind then.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _flush_folder(path.parent)
    except BaseException as fault:  # an interrupt too leaves no part behind
        with contextlib.suppress(OSError):  # a read-only disk refuses this as well
            part.unlink(missing_ok=True)
        if isinstance(fault, OSError):
            raise refused(path, fault) from fault
        raise


def remove_parts(folder: Path) -> int:
    """Remove what a killed writer left in a folder; the number of files removed."""
    parts = list(folder.glob(".*.part"))
    for part in parts:
        part.unlink(missing_ok=True)
    return len(parts)


def refused(path: Path, fault: OSError) -> InputError:
    """The fault of writing to `path`, in words with the remedy."""
    reason = fault.strerror or str(fault)
    if fault.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return InputError(
            f"{path} could not be written ({reason}; {free_bytes(path) / 1e9:.3g} GB free): free some space, or choose "
            "another folder with --out; what is finished is kept, and the same command goes on from there"
        )
    return InputError(f"{path} cannot be written ({reason}): choose a folder that you may write to with --out")


def free_bytes(path: Path) -> int:
    """Bytes a user may still write on the file system of `path`, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
