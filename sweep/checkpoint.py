"""Where a streamed grid stands, on disk: an interrupted stream goes on from there."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvwall.sweep.store.atomic import write_atomically

NAME = ".stream.npz"
_HASH = "spec_hash"
_SECONDS_BETWEEN = 10.0


def save(folder: Path, spec_hash: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write the arrays atomically. Raises InputError where the disk refuses."""
    image = io.BytesIO()
    named: dict[str, Any] = {_HASH: np.array([spec_hash, *arrays]), **arrays}
    np.savez(image, **named)
    write_atomically(folder / NAME, image.getvalue())


def load(folder: Path, spec_hash: str) -> dict[str, np.ndarray[Any, Any]] | None:
    """The arrays, or None where there are none of this study; a damaged file counts as none."""
    try:
        with (folder / NAME).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception:  # whatever a reader of zip makes of bytes that it did not write
        return None
    return found if found.pop(_HASH, np.array([])).tolist() == [spec_hash, *found] else None


class Keeper:
    """Keeps the state of a long search in its folder, every ten seconds."""

    def __init__(self, folder: Path, spec_hash: str) -> None:
        self._folder, self._spec_hash = folder, spec_hash
        self._kept = time.monotonic()

    def last(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        """The last state of this very study, if there is one."""
        return load(self._folder, self._spec_hash)

    def offer(self, arrays: Callable[[], dict[str, np.ndarray[Any, Any]]], complete: bool = False) -> None:
        """Write the state, but not before ten seconds after the last unless it is complete."""
        if complete or time.monotonic() - self._kept >= _SECONDS_BETWEEN:
            save(self._folder, self._spec_hash, arrays())
            self._kept = time.monotonic()


def remove(folder: Path) -> None:
    """The stream is complete."""
    (folder / NAME).unlink(missing_ok=True)
