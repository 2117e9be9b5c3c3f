"""Opening results: the grid, the front and the summary as xarray datasets."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep.crew import in_order
from kvwall.sweep.keeping import DEFAULT_PROFILE, FULL, PROFILES, REDUCED
from kvwall.sweep.store.checksum import NAME as CHECKSUM
from kvwall.sweep.store.checksum import damage
from kvwall.sweep.store.front_file import ROW
from kvwall.sweep.store.packing import check_filters
from kvwall.sweep.store.shard_file import QUANTIZATION
from kvwall.sweep.store.shards import shard_name
from kvwall.sweep.store.spec_file import stated_store
from kvwall.sweep.store.view import SHARD_BYTES

STORED_DAMAGED = (
    "a stored block cannot be read ({fault}): run `kvwall sweep` again, which computes only what is damaged or missing"
)
"""What HDF5 makes of a damaged shard, in words."""
_WRITTEN_BY = "run `kvwall sweep` on its study to write it"


def open_results(path: str | Path) -> xr.Dataset:
    """The stored slice of a results folder, read from the disk only where it is used.

    Close it (or use it as a context manager) before the folder is moved: HDF5 does not survive that.

    Where a block is missing, metrics are NaN and the status is 0 (not computed); a warning and the attribute
    `missing_shards` say so. With dask installed the arrays are chunked like the shards. Raises InputError where there
    are no results, or they are damaged.

    Args:
        path: the results folder (`outputs/<name>`) or its `view.nc`.
    """
    view = _file(path, "view.nc")
    opened = _opened(view, SHARD_BYTES)
    try:
        dataset = _checked(opened, view)
    except BaseException:
        opened.close()
        raise
    # A dataset derived from an opened one never closes the file, and HDF5 may crash where one is open twice.
    dataset.set_close(opened.close)
    return dataset


def _checked(opened: xr.Dataset, view: Path) -> xr.Dataset:
    """What a view holds for its user, with missing blocks reported."""
    check_filters(PROFILES[opened.attrs.get("profile", DEFAULT_PROFILE)], f"{view.parent} was written with")
    for name in opened.coords:
        opened.variables[name].load()
    recorded = np.atleast_1d(opened[SHARD_BYTES].values)
    shape = opened.attrs["shard_shape"]
    dataset = opened.drop_vars([SHARD_BYTES, QUANTIZATION, CHECKSUM], errors="ignore")
    missing = _missing(view.parent / "shards", recorded, dataset.attrs["spec_hash"])
    if missing:
        listed = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
        warnings.warn(
            f"{view.parent}: {len(missing)} of {len(recorded)} blocks are missing ({listed}); there the "
            "metrics are NaN and the status is 0 (not computed). Run `kvwall sweep` again: it computes only these",
            stacklevel=3,
        )
    dataset.attrs["missing_shards"] = len(missing)
    if dataset.dims and importlib.util.find_spec("dask") is not None:
        chunks = dict(zip(dataset["status"].dims, np.atleast_1d(shape).tolist(), strict=True))
        dataset = dataset.assign({name: array.variable.chunk(chunks) for name, array in dataset.items()})
    return dataset


def open_front(path: str | Path) -> xr.Dataset:
    """The exact front of a results folder: one row per design along `point`. Raises InputError as `open_results`."""
    return _loaded(_file(path, "front.nc"), ROW)


def open_summary(path: str | Path) -> xr.Dataset:
    """The summary of a results folder. Raises InputError as `open_results`."""
    return _loaded(_file(path, "summary.nc"), "admissible")


def _file(path: str | Path, name: str) -> Path:
    path = Path(path)
    folder = path.parent if path.name == name and path.is_file() else path
    if not folder.is_dir():
        raise InputError(f"{path}: there is no such folder of results; `kvwall sweep` makes one")
    if not (folder / name).is_file():
        raise InputError(_why_absent(folder, name))
    return folder / name


def _why_absent(folder: Path, name: str) -> str:
    store = stated_store(folder)
    if store is not None and name == "view.nc" and not store.points:
        return (
            f'{folder} holds no {name}, because store = "{store.name}" keeps {store.about}: for stored points, write '
            f'store = "{FULL}" in the study and run `kvwall sweep` into another folder'
        )
    if store is not None and name == "summary.nc" and not store.summary:
        return (
            f'{folder} holds no {name}, because store = "{store.name}" finds the front without evaluating every '
            f'point: for a summary, write store = "{REDUCED}" in the study and run `kvwall sweep` into another folder'
        )
    return f"{folder} holds no {name}: {_WRITTEN_BY}"


def _opened(path: Path, holds: str) -> xr.Dataset:
    """A sealed file that is whole, and has what files of its name hold."""
    fault = damage(path)
    if fault is not None:
        raise InputError(f"{path} cannot be read ({fault}): delete it, and {_WRITTEN_BY}")
    dataset = xr.open_dataset(path, engine="netcdf4", decode_timedelta=False)
    if holds not in dataset.variables and holds not in dataset.dims:
        dataset.close()
        raise InputError(f"{path} cannot be read (it is another file under this name): delete it, and {_WRITTEN_BY}")
    return dataset


def _loaded(path: Path, holds: str) -> xr.Dataset:
    with _opened(path, holds) as dataset:
        return dataset.load().drop_vars(CHECKSUM)


def check_stored(path: str | Path) -> None:
    """Raise InputError where a block of the stored slice is missing or damaged: every byte of all is read."""
    view = _file(path, "view.nc")
    with _opened(view, SHARD_BYTES) as opened:
        shards = [view.parent / "shards" / shard_name(index) for index in range(opened.sizes["shard"])]
    absent = [path for path in shards if not path.is_file()]
    if absent:
        raise InputError(
            f"{absent[0]} and so {len(absent)} of {len(shards)} blocks are missing: run `kvwall sweep` again, which "
            "computes only these"
        )
    for path, fault in zip(shards, in_order(damage, shards), strict=True):
        if fault is not None:
            raise InputError(
                f"{path} cannot be read ({fault}): run `kvwall sweep` again, which computes only what is damaged"
            )


def _missing(shards: Path, recorded: np.ndarray[Any, Any], spec_hash: str) -> list[str]:
    """Names of the shards that are not there. Raises InputError where one is damaged, or HDF5 would be misled."""
    missing, damaged = [], []
    for index, size in enumerate(recorded.tolist()):
        path = shards / shard_name(index)
        if not path.is_file():
            missing.append(path.name)
        elif path.stat().st_size != size and not _belongs(path, spec_hash, index):
            damaged.append(path.name)
    if damaged:
        others = f" and {len(damaged) - 1} others are" if len(damaged) > 1 else " is"
        raise InputError(
            f"{shards / damaged[0]}{others} truncated or of another study: run `kvwall sweep` again, which "
            "computes only what is damaged or missing"
        )
    # HDF5 looks for a source first beside the view, then in the working directory: another study's there would be read.
    if missing and Path.cwd() != shards.parent.resolve() and any((Path("shards") / name).exists() for name in missing):
        raise InputError(
            f"{shards.parent} lacks {len(missing)} blocks, and the working directory holds others of the same names, "
            "which would be read in their place: change to another directory"
        )
    return missing


def _belongs(path: Path, spec_hash: str, index: int) -> bool:
    """Whether a file that has not the recorded size is a shard of the study: the view may be the older one."""
    try:
        with netCDF4.Dataset(path) as file:
            return bool(file.spec_hash == spec_hash and file.shard_index == index)
    except (OSError, RuntimeError, AttributeError):
        return False
