"""Writing a file so that its final name only ever holds a whole one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from kvwall.spaces.errors import Faults, InputError

Payload: TypeAlias = bytes | memoryview
OUT: Final = "--out"


def write_atomically(path: Path, payload: Payload, option: str = OUT) -> None:
    """Write under a hidden name in the same folder, flush to the disk, then rename.

    A kill or a power cut leaves the old file, or none, and perhaps a hidden `.part`. Raises InputError where the disk
    is full, the folder cannot be written to, or the name is that of a folder or a device; nothing is left behind then.
    `option` is the one that chooses the place, for the message.
    """
    faults = Faults()
    check_target(path, option, faults)
    faults.raise_if_any()
    with replaced_file(path, option) as file:
        file.write(payload)


@contextlib.contextmanager
def replaced_file(path: Path, option: str = OUT) -> Iterator[BinaryIO]:
    """A new file to fill that takes its name, in the place of what has it, only when it is whole and on the disk."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _flush(path.parent)
    except BaseException as fault:  # an interrupt too leaves no part behind
        with contextlib.suppress(OSError):  # a read-only disk refuses this as well
            part.unlink(missing_ok=True)
        if isinstance(fault, OSError | RuntimeError):  # RuntimeError: what HDF5 makes of a full disk at times
            raise refused(path, fault, option) from fault
        raise


@contextlib.contextmanager
def replaced_folder(path: Path, option: str = OUT) -> Iterator[Path]:
    """A new folder to fill that takes its name only when it is whole and on the disk.

    What has the name keeps it until then. Raises InputError where the disk refuses; the old folder is there then.
    """
    part, old = (path.with_name(f".{path.name}.{uuid.uuid4().hex}.part") for _ in range(2))
    try:
        yield part
        for place in (part, *part.rglob("*")):
            _flush(place)
        if os.path.lexists(path):
            path.replace(old)
        part.replace(path)
        _flush(path.parent)
    except BaseException as fault:
        _remove(part)
        if os.path.lexists(old) and not os.path.lexists(path):
            old.replace(path)
        if isinstance(fault, OSError):
            raise refused(path, fault, option) from fault
        raise
    _remove(old)


def check_target(path: Path, option: str, faults: Faults) -> None:
    """Record a name that something has which is no regular file: a rename would put a file in its place."""
    try:
        if path.is_dir():
            faults.add(f"{option} {path} is a folder: give a file's name")
        elif path.exists() and not path.is_file():
            faults.add(f"{option} {path} is a device or a pipe, not a file: give another name")
    except OSError as fault:  # a name too long, a folder that may not be read
        faults.absorb(refused(path, fault, option))


def remove_parts(folder: Path) -> int:
    """Remove what a killed writer left in a folder; the number of files and folders removed."""
    parts = list(folder.glob(".*.part"))
    for part in parts:
        _remove(part)
    return len(parts)


def _remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def refused(path: Path, fault: OSError | RuntimeError, option: str = OUT) -> InputError:
    """The fault of writing to `path`, in words with the remedy."""
    code = getattr(fault, "errno", None)
    reason = getattr(fault, "strerror", None) or str(fault)
    if code in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return InputError(
            f"{path} could not be written ({reason}; {free_bytes(path) / 1e9:.3g} GB free): free some space, or choose "
            f"another folder with {option}; what is finished is kept, and the same command goes on from there"
        )
    return InputError(f"{path} cannot be written ({reason}): choose a folder that you may write to with {option}")


def free_bytes(path: Path) -> int:
    """Bytes a user may still write on the file system of `path`, which need not exist yet."""
    return shutil.disk_usage(nearest_existing(path)).free


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    while not os.path.lexists(path):  # False too where a name is too long
        path = path.parent
    return path


def _flush(path: Path) -> None:
    """See that a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
