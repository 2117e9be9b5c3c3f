"""`view.nc`: the whole stored slice as one file, an HDF5 virtual dataset over the shards."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np

from kvwall.sweep.keeping import PROFILES
from kvwall.sweep.store.attributes import Attribute, provenance
from kvwall.sweep.store.checksum import add_checksum, sealed
from kvwall.sweep.store.coordinates import add_axes
from kvwall.sweep.store.image import add_variable, netcdf_image, set_globals
from kvwall.sweep.store.shard_file import (
    add_quantization,
    fill_value,
    stored_attributes,
    stored_dtype,
    stored_names,
)
from kvwall.sweep.store.shards import ShardPlan
from kvwall.sweep.store.times import clear_times

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

SHARD_BYTES = "shard_bytes"
"""Variable with the size of each shard's file, so that a missing or cut one is noticed without opening it."""
ABSENT = -1
_LIBVER = ("v108", "v110")  # the oldest format with virtual datasets: HDF5 1.10 still opens it


def view_image(study: Study, plan: ShardPlan, shards: Path) -> memoryview:
    """The bytes of the view over the shards in this folder; names are relative, so the results may move.

    Where a shard is missing a reader sees NaN, and status 0.
    """
    image = io.BytesIO(netcdf_image(lambda file: _fill(file, study, plan, shards)))
    with h5py.File(image, "r+", libver=_LIBVER) as file:
        for name in stored_names(study):
            variable = _virtual(file, name, plan, shards) if plan.file_dims else _copied(file, name, shards)
            for position, dim in enumerate(plan.file_dims):
                variable.dims[position].attach_scale(file[dim])
            for key, value in stored_attributes(study, plan, name).items():
                variable.attrs[key] = _h5_attribute(value)
            if stored_dtype(name).kind == "f":
                variable.attrs["_FillValue"] = np.array([fill_value(name)], stored_dtype(name))
    clear_times(image.getbuffer())
    return sealed(image.getbuffer())


def _fill(file: netCDF4.Dataset, study: Study, plan: ShardPlan, shards: Path) -> None:
    add_axes(file, study.space, plan.positions, plan.file_dims)
    file.createDimension("shard", len(plan.shards))
    paths = [shards / shard.name for shard in plan.shards]
    sizes = np.array([path.stat().st_size if path.exists() else ABSENT for path in paths], dtype=np.int64)
    about = {"long_name": "size of each shard's file, -1 where it is missing", "units": "byte"}
    add_variable(file, SHARD_BYTES, ("shard",), sizes, about)
    add_quantization(file, study)
    add_checksum(file)
    summary = "The stored slice of the swept grid, block by block in the folder shards; status 0 = not computed."
    layout = {"shard_count": len(plan.shards), "keep_bits": PROFILES[study.profile].keep_bits}
    shape = np.array(plan.file_shape(plan.block), dtype=np.int64) if plan.file_dims else ""
    set_globals(file, provenance(study, "view.nc", study.name, summary), layout, {"shard_shape": shape})


def _virtual(file: h5py.File, name: str, plan: ShardPlan, shards: Path) -> h5py.Dataset:
    layout = h5py.VirtualLayout(plan.file_shape(plan.shape), stored_dtype(name))
    for shard in plan.shards:
        where = f"{shards.name}/{shard.name}"
        source = h5py.VirtualSource(where, name, plan.file_shape(shard.shape), stored_dtype(name))
        layout[tuple(cut for dim, cut in zip(plan.dims, shard.slices, strict=True) if dim in plan.file_dims)] = source
    return file.create_virtual_dataset(name, layout, fillvalue=fill_value(name))


def _copied(file: h5py.File, name: str, shards: Path) -> h5py.Dataset:
    """A study of one design has nothing to lay out: its numbers are copied."""
    value: Any = fill_value(name)
    path = shards / "000000.nc"
    if path.exists():
        with h5py.File(path, "r", locking=False) as shard:
            value = shard[name][()]
    return file.create_dataset(name, data=np.array(value, stored_dtype(name)))


def _h5_attribute(value: Attribute) -> Any:
    # Fixed-length text is what netCDF's own tools write and print plainly.
    return np.bytes_(value) if isinstance(value, str) and value.isascii() else value
