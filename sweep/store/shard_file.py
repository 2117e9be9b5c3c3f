"""One shard as a netCDF file, valid by itself; and whether a file on disk is that shard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS, metric_named
from kvwall.sweep.bitround import KEEP_BITS, bitround
from kvwall.sweep.store.attributes import (
    NOT_COMPUTED,
    Attributes,
    attribute,
    label_attributes,
    metric_attributes,
    provenance,
)
from kvwall.sweep.store.coordinates import add_axes, scalar_names
from kvwall.sweep.store.image import add_variable, netcdf_image, set_globals
from kvwall.sweep.store.shards import Shard, ShardPlan

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

STATUS = "status"
QUANTIZATION = "quantization_info"
"""CF container variable that says how metrics were rounded."""


def stored_names(study: Study) -> tuple[str, ...]:
    """Variables of a shard: what the study keeps, and the status."""
    return tuple(dict.fromkeys([*study.keep, STATUS]))


def stored_dtype(name: str) -> np.dtype[Any]:
    """Type of a stored variable: float32 for a metric, int8 for a label."""
    return np.dtype(np.int8 if name in LABELS else np.float32)


def fill_value(name: str) -> float | int:
    """What a variable holds where its shard is missing: NaN, or the code for not computed."""
    if name not in LABELS:
        return float("nan")
    return 0 if name == STATUS else NOT_COMPUTED


def stored_attributes(study: Study, plan: ShardPlan, name: str) -> Attributes:
    """Attributes of a stored variable."""
    scalars = {"coordinates": scalar_names(study.space, plan.file_dims)}
    if name in LABELS:
        return {**label_attributes(LABELS[name]), **scalars}
    rounding: Attributes = {"quantization": QUANTIZATION, "quantization_nsb": np.int32(KEEP_BITS)}
    return {**metric_attributes(metric_named(name, study.task, study.mode), study), **rounding, **scalars}


def add_quantization(file: netCDF4.Dataset, study: Study) -> None:
    """The CF container variable about rounding."""
    add_variable(
        file,
        QUANTIZATION,
        (),
        np.zeros((), np.int8),
        {
            "long_name": "how metrics were rounded before they were stored",
            "algorithm": "bitround",
            "implementation": f"kvwall version {study.spec()['version']} (NumPy, to nearest, ties to even)",
        },
    )


def shard_image(
    study: Study, plan: ShardPlan, shard: Shard, values: Mapping[str, NDArray[Any]], status: NDArray[np.int8]
) -> memoryview:
    """The bytes of a shard's file. Raises ValueError where a kept name is missing or an array does not fit."""
    blocks = {**values, STATUS: status}
    absent = [name for name in stored_names(study) if name not in blocks]
    if absent:
        raise ValueError(f"shard {shard.index} lacks {', '.join(absent)}")
    title = f"{study.name}: shard {shard.index} of {len(plan.shards)}"
    place: dict[str, object] = {
        "shard_index": shard.index,
        "shard_count": len(plan.shards),
        "shard_start": np.array(shard.start, dtype=np.int64) if shard.start else "",
        "keep_bits": KEEP_BITS,
    }

    def fill(file: netCDF4.Dataset) -> None:
        add_axes(file, study.space, plan.grid_positions(shard), plan.file_dims)
        for name in stored_names(study):
            block = _block(name, blocks[name], shard).reshape(plan.file_shape(shard.shape))
            add_variable(file, name, plan.file_dims, block, stored_attributes(study, plan, name))
        add_quantization(file, study)
        about = "One block of the swept grid: the metrics and labels kept, and the status."
        set_globals(file, provenance(study, shard.name, title, about), {k: attribute(v) for k, v in place.items()})

    return netcdf_image(fill)


def _block(name: str, numbers: NDArray[Any], shard: Shard) -> NDArray[Any]:
    try:
        block = np.broadcast_to(np.asarray(numbers), shard.shape)
    except ValueError as fault:
        raise ValueError(
            f"{name} of shard {shard.index} has shape {np.shape(numbers)}: it must broadcast to {shard.shape}"
        ) from fault
    if stored_dtype(name).kind == "f":
        return bitround(block)
    if block.dtype.kind not in "iu":
        raise ValueError(f"{name} of shard {shard.index} holds {block.dtype}: the codes of a label are integers")
    return np.ascontiguousarray(block, dtype=np.int8)


def shard_fault(path: Path, study: Study, plan: ShardPlan, shard: Shard) -> str | None:
    """What is wrong with a file that should be this shard; None when it is whole and belongs here.

    The header tells: a truncated file does not open, and a damaged block fails its own checksum when it is read.
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
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError):
        return "it is truncated or damaged"
    return None


def _text(stored: Any) -> str:
    """An attribute as text: h5py gives netCDF's characters as bytes."""
    return stored.decode() if isinstance(stored, bytes) else str(stored)
