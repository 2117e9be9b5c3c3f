"""Whether a file on disk is the shard that its name says, whole and unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from kvwall.sweep.store.checksum import is_intact
from kvwall.sweep.store.shard_file import stored_dtype, stored_names
from kvwall.sweep.store.shards import Shard, ShardPlan

if TYPE_CHECKING:
    from kvwall.sweep.study import Study


def shard_fault(path: Path, study: Study, plan: ShardPlan, shard: Shard) -> str | None:
    """What is wrong with a file that should be this shard; None when it is whole and belongs here.

    Every byte is read. Safe to call from several threads.
    """
    try:
        with h5py.File(path, "r", locking=False) as file:
            if _text(file.attrs["spec_hash"]) != study.spec_hash:
                return "it belongs to another study"
            index = np.asarray(file.attrs["shard_index"]).item()
            if index != shard.index:
                return f"it is shard {index} under another name"
            expected = plan.file_shape(shard.shape)
            for name in stored_names(study):
                if file[name].shape != expected or file[name].dtype != stored_dtype(name):
                    return f"{name} has another shape or type"
            return None if is_intact(path, file) else "its bytes are not those that were written"
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError):
        return "it is truncated or damaged"


def _text(stored: Any) -> str:
    """An attribute as text: h5py gives netCDF's characters as bytes."""
    return stored.decode() if isinstance(stored, bytes) else str(stored)
