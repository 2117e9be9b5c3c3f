"""One shard as a netCDF file, valid by itself: made once without numbers, then filled block by block."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import h5py
import netCDF4
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS, metric_named
from kvwall.sweep.keeping import PROFILES
from kvwall.sweep.store.attributes import (
    NOT_COMPUTED,
    Attributes,
    attribute,
    file_id,
    label_attributes,
    metric_attributes,
    provenance,
)
from kvwall.sweep.store.checksum import add_checksum, seal
from kvwall.sweep.store.coordinates import add_axes, scalar_names, values_along
from kvwall.sweep.store.image import add_variable, netcdf_image, set_globals
from kvwall.sweep.store.memory_file import MemoryFile
from kvwall.sweep.store.packing import packed
from kvwall.sweep.store.shards import Shard, ShardPlan

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

STATUS = "status"
_ROOM = 1 << 20  # for the index of the chunks
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
    profile = PROFILES[study.profile]
    rounding: Attributes = (
        {"quantization": QUANTIZATION, "quantization_nsb": np.int32(profile.keep_bits)} if profile.rounds else {}
    )
    return {**metric_attributes(metric_named(name, study.task, study.mode), study), **rounding, **scalars}


def add_quantization(file: netCDF4.Dataset, study: Study) -> None:
    """The CF container variable about rounding, where there is any."""
    if not PROFILES[study.profile].rounds:
        return
    add_variable(
        file,
        QUANTIZATION,
        (),
        np.zeros((), np.int8),
        {
            "long_name": "how metrics were rounded before they were stored",
            "algorithm": "bitround",
            "implementation": f"kvwall version {study.spec()['version']} (to nearest, ties to even)",
        },
    )


def add_stored_variable(file: netCDF4.Dataset, study: Study, plan: ShardPlan, name: str) -> None:
    """Define a stored variable with its chunks and filters, and no numbers yet."""
    dtype = stored_dtype(name)
    layout: dict[str, Any] = {"fill_value": np.float32("nan") if dtype.kind == "f" else False}
    if plan.file_dims:
        filters = PROFILES[study.profile].filters_for(math.prod(plan.chunk))
        layout |= {**filters, "chunksizes": plan.file_shape(plan.chunk)}
    file.createVariable(name, dtype, plan.file_dims, **layout).setncatts(stored_attributes(study, plan, name))


class _OfThread(threading.local):
    """What each thread has for itself."""

    def __init__(self) -> None:
        self.file = MemoryFile()


class ShardFiles:
    """Makes the files of a study's shards. Safe to call from several threads."""

    def __init__(self, study: Study, plan: ShardPlan) -> None:
        self._study = study
        self._plan = plan
        self._profile = PROFILES[study.profile]
        self._bare: dict[tuple[int, ...], bytes] = {}
        self._making = threading.Lock()
        self._own = _OfThread()

    def image(self, shard: Shard, values: Mapping[str, NDArray[Any]], status: NDArray[np.int8]) -> memoryview:
        """The bytes of a shard's file, until the same thread asks for another; metrics as they are given.

        Raises ValueError where a kept name is missing or an array does not fit.
        """
        given = {**values, STATUS: status}
        absent = [name for name in stored_names(self._study) if name not in given]
        if absent:
            raise ValueError(f"shard {shard.index} lacks {', '.join(absent)}")
        blocks = {name: _block(name, given[name], shard) for name in stored_names(self._study)}
        file_shape, chunk = self._plan.file_shape(shard.shape), self._plan.file_shape(self._plan.chunk)
        filters = self._profile.filters_for(math.prod(chunk))
        chunks = math.prod(len(range(0, length, step)) for length, step in zip(file_shape, chunk, strict=True))
        room = chunks * math.prod(chunk) * sum(block.itemsize for block in blocks.values()) + _ROOM
        image: MemoryFile = self._own.file
        image.restart(self._without_numbers(shard), room)
        with h5py.File(image, "r+") as file:
            self._place(file, shard)
            for name, block in blocks.items():
                if not chunk:
                    file[name][()] = block.reshape(())
                    continue
                pieces = _pieces(block.reshape(file_shape), chunk)
                for corner, data in zip(_corners(file_shape, chunk), packed(filters, pieces), strict=True):
                    file[name].id.write_direct_chunk(corner, data)
        seal(image)
        return image.view

    def _without_numbers(self, shard: Shard) -> bytes:
        """A file for shards of this shape, with everything that is the same in all of them."""
        with self._making:
            if shard.shape not in self._bare:
                self._bare[shard.shape] = bytes(netcdf_image(lambda file: self._define(file, shard)))
            return self._bare[shard.shape]

    def _define(self, file: netCDF4.Dataset, shard: Shard) -> None:
        study, plan = self._study, self._plan
        add_axes(file, study.space, plan.grid_positions(shard), plan.file_dims)
        for name in stored_names(study):
            add_stored_variable(file, study, plan, name)
        add_quantization(file, study)
        add_checksum(file)
        title = f"{study.name}: one of {len(plan.shards)} shards"
        about = "One block of the swept grid: the metrics and labels kept, and the status."
        place: dict[str, object] = {
            "shard_index": shard.index,
            "shard_count": len(plan.shards),
            "shard_start": np.array(shard.start, dtype=np.int64) if shard.start else "",
            "keep_bits": self._profile.keep_bits,
        }
        set_globals(file, provenance(study, shard.name, title, about), {k: attribute(v) for k, v in place.items()})

    def _place(self, file: h5py.File, shard: Shard) -> None:
        """Write what is this shard's own: its place and its coordinates."""
        file.attrs.modify("shard_index", shard.index)
        if shard.start:
            file.attrs.modify("shard_start", np.array(shard.start, dtype=np.int64))
        file.attrs.modify("id", np.bytes_(file_id(self._study, shard.name)))
        positions = self._plan.grid_positions(shard)
        for name, coordinate in values_along(self._study.space, positions, self._plan.file_dims).items():
            file[name][...] = coordinate


def _corners(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """First position of every chunk, in grid order."""
    return itertools.product(*(range(0, length, step) for length, step in zip(shape, chunk, strict=True)))


def _pieces(block: NDArray[Any], chunk: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """The numbers of every chunk; what lies beyond the block is zero."""
    for corner in _corners(block.shape, chunk):
        piece = block[tuple(slice(start, start + length) for start, length in zip(corner, chunk, strict=True))]
        if piece.shape != chunk:
            piece = np.pad(piece, [(0, length - there) for length, there in zip(chunk, piece.shape, strict=True)])
        yield np.ascontiguousarray(piece)


def _block(name: str, numbers: NDArray[Any], shard: Shard) -> NDArray[Any]:
    try:
        block = np.broadcast_to(np.asarray(numbers), shard.shape)
    except ValueError as fault:
        raise ValueError(
            f"{name} of shard {shard.index} has shape {np.shape(numbers)}: it must broadcast to {shard.shape}"
        ) from fault
    if stored_dtype(name).kind == "i" and block.dtype.kind not in "iu":
        raise ValueError(f"{name} of shard {shard.index} holds {block.dtype}: the codes of a label are integers")
    return block.astype(stored_dtype(name), copy=False)
