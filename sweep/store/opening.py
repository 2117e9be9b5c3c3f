"""Opening results: the grid, the front and the summary as xarray datasets."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep.store.shard_file import QUANTIZATION
from kvwall.sweep.store.view import ABSENT, SHARD_BYTES

_WRITTEN_BY = "run `kvwall sweep` on its study to write it"


def open_results(path: str | Path) -> xr.Dataset:
    """The stored slice of a results folder, read from the disk only where it is used.

    Where a block is missing, metrics are NaN and the status is 0 (not computed); a warning and the attribute
    `missing_shards` say so. With dask installed the arrays are chunked like the shards. Raises InputError where there
    are no results, or they cannot be read.

    Args:
        path: the results folder (`outputs/<name>`) or its `view.nc`.
    """
    view = _file(path, "view.nc")
    dataset = _opened(view)
    recorded = np.atleast_1d(dataset[SHARD_BYTES].values)
    shape = dataset.attrs["shard_shape"]
    dataset = dataset.drop_vars([SHARD_BYTES, QUANTIZATION])
    missing = _missing(view.parent / "shards", recorded)
    if missing:
        listed = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
        warnings.warn(
            f"{view.parent}: {len(missing)} of {len(recorded)} blocks are missing or damaged ({listed}); there the "
            "metrics are NaN and the status is 0 (not computed). Run `kvwall sweep` again: it computes only these",
            stacklevel=2,
        )
    dataset.attrs["missing_shards"] = len(missing)
    if dataset.dims and importlib.util.find_spec("dask") is not None:
        main = dataset["status"].dims
        dataset = dataset.chunk(dict(zip(main, np.atleast_1d(shape).tolist(), strict=True)))
    return dataset


def open_front(path: str | Path) -> xr.Dataset:
    """The exact front of a results folder: one row per design along `point`. Raises InputError as `open_results`."""
    return _loaded(_file(path, "front.nc"))


def open_summary(path: str | Path) -> xr.Dataset:
    """The summary of a results folder. Raises InputError as `open_results`."""
    return _loaded(_file(path, "summary.nc"))


def _file(path: str | Path, name: str) -> Path:
    path = Path(path)
    folder = path.parent if path.name == name and path.is_file() else path
    if not folder.is_dir():
        raise InputError(f"{path}: there is no such folder of results; `kvwall sweep` makes one")
    if not (folder / name).is_file():
        raise InputError(f"{folder} holds no {name}: {_WRITTEN_BY}")
    return folder / name


def _opened(path: Path, **options: Any) -> xr.Dataset:
    try:
        return xr.open_dataset(path, engine="netcdf4", decode_timedelta=False, **options)
    except (OSError, ValueError, RuntimeError) as fault:
        raise InputError(f"{path} cannot be read ({fault}): delete it, and {_WRITTEN_BY}") from fault


def _loaded(path: Path) -> xr.Dataset:
    with _opened(path) as dataset:
        return dataset.load()


def _missing(shards: Path, recorded: np.ndarray[Any, Any]) -> list[str]:
    """Shards that are not there, or not of the size they had. Raises InputError where HDF5 would be misled."""
    missing = []
    for index, size in enumerate(recorded.tolist()):
        path = shards / f"{index:06d}.nc"
        there = path.stat().st_size if path.is_file() else ABSENT
        if there != size or size == ABSENT:
            missing.append(path.name)
    # HDF5 looks for a source first beside the view, then in the working directory: another study's there would be read.
    if missing and Path.cwd() != shards.parent.resolve() and any((Path("shards") / name).exists() for name in missing):
        raise InputError(
            f"{shards.parent} lacks {len(missing)} blocks, and the working directory holds others of the same names, "
            "which would be read in their place: change to another directory"
        )
    return missing
