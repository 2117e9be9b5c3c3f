"""Results as one file to hand on: a table (CSV, Parquet) of any part, or the stored points as netCDF or Zarr."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import xarray as xr

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.sweep.keeping import DEFAULT_PROFILE, PROFILES
from kvwall.sweep.progress import Silent, Watch
from kvwall.sweep.store import STORED_DAMAGED, check_stored, open_front, open_results, open_summary
from kvwall.sweep.store.atomic import OUT, check_target, replaced_file, replaced_folder
from kvwall.sweep.store.front_file import ROW
from kvwall.sweep.store.spec_file import read_spec
from kvwall.sweep.whole import write_whole
from kvwall.sweep.zarr_folder import check_replaceable, check_zarr, write_zarr

PARTS: Final = ("front", "grid", "summary")
TABLES: Final = ("csv", "parquet")
ARRAYS: Final = ("netcdf", "zarr")
"""Forms of the stored points only: the front and the summary are netCDF files already."""
FORMATS: Final = (*TABLES, *ARRAYS)
SUFFIXES: Final = {"netcdf": "nc"}
NOT_BUILT: Final = ("xlsx", "vllm", "sglang", "trtllm")
_POINTS_AT_ONCE: Final = 500_000
_PRECISION: Final = {
    "front": "not rounded",
    "summary": "computed in single precision, not rounded",
}
_KEPT_ATTRIBUTES: Final = ("title", "source", "study_name", "spec_hash", "catalogue_sha256", "date_created", "mode")


@dataclass(frozen=True)
class Column:
    """A column: its name, unit and meaning."""

    name: str
    unit: str
    meaning: str
    evidence: str = ""


@dataclass(frozen=True)
class Rows:
    """A table in parts that fit into memory; every part has the same columns."""

    columns: tuple[Column, ...]
    about: Mapping[str, str]
    parts: Callable[[], Iterator[pa.RecordBatch]]


def export(
    folder: str | Path,
    *,
    to: str,
    what: str | None = None,
    out: str | Path | None = None,
    force: bool = False,
    watch: Watch | None = None,
) -> Path:
    """Write a part of the results as one table or array file, and return its path. Memory stays bounded.

    Args:
        folder: the results folder.
        to: "csv", "parquet", "netcdf" or "zarr".
        what: "front" (default of tables), "grid" (every stored point, with its status; default of arrays) or "summary".
        out: the file; `<folder>/<what>.<to>` by default.
        force: replace a file that exists.
        watch: follows the progress of arrays.

    Raises:
        InputError: on an unknown or unbuilt format or part, where the file exists, or cannot be written.
    """
    faults = Faults()
    if to in NOT_BUILT:
        faults.add(f"--to {to} is not built yet: use {' or '.join(FORMATS)}")
    elif to not in FORMATS:
        faults.add(f'"{to}" is no format{nearest(to, FORMATS)}: use {" or ".join(FORMATS)}')
    what = what or ("grid" if to in ARRAYS else "front")
    if what not in PARTS:
        faults.add(f'"{what}" is no part of the results{nearest(what, PARTS)}: use {", ".join(PARTS)}')
    elif to in ARRAYS and what != "grid":
        faults.add(f"--what {what}: {what}.nc in the folder is one already; --to {to} is of the stored points (grid)")
    faults.raise_if_any()
    path = Path(out) if out is not None else Path(folder) / f"{what}.{SUFFIXES.get(to, to)}"
    if to in ARRAYS:
        return _write_arrays(Path(folder), to, path, force, watch or Silent())
    check_target(path, OUT, faults)
    faults.raise_if_any()
    with _rows(folder, what) as rows:
        _refuse_existing(path, force)
        with replaced_file(path) as file:
            (_write_csv if to == "csv" else _write_parquet)(file, rows)
    return path


def _refuse_existing(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise InputError(f"{path} exists: give --force to replace it, or another file with --out")


def _write_arrays(folder: Path, to: str, path: Path, force: bool, watch: Watch) -> Path:
    """The stored points as one netCDF file, or as a folder of Zarr."""
    if to == "zarr":
        check_zarr()
    check_stored(folder)
    with open_results(folder) as stored:
        _refuse_existing(path, force)
        watch.stage(f"writing {path.name}", int(stored.attrs["shard_count"]), "blocks")
        if to == "zarr":
            check_replaceable(path)
            block = np.atleast_1d(stored.attrs["shard_shape"]).tolist() if stored.dims else []
            with replaced_folder(path) as part:
                write_zarr(part, stored, block, lambda done, blocks: watch.update(done))
            return path
    faults = Faults()
    check_target(path, OUT, faults)
    faults.raise_if_any()
    with replaced_file(path) as file:
        write_whole(file, folder, lambda done, blocks: watch.update(done))
    return path


def _write_csv(file: BinaryIO, rows: Rows) -> None:
    """Comment lines start with `#`; the last of them holds the unit of each column."""
    for name, text in rows.about.items():
        file.write(f"# {name}: {' '.join(text.split())}\n".encode())
    file.write(f"# units: {','.join(column.unit for column in rows.columns)}\n".encode())
    writer = None
    for part in rows.parts():
        if writer is None:
            writer = pa.csv.CSVWriter(file, part.schema)
        writer.write_batch(part)
    if writer is not None:
        writer.close()


def _write_parquet(file: BinaryIO, rows: Rows) -> None:
    writer = None
    for part in rows.parts():
        if writer is None:
            fields = [
                field.with_metadata({"units": column.unit, "long_name": column.meaning, "evidence": column.evidence})
                for field, column in zip(part.schema, rows.columns, strict=True)
            ]
            schema = pa.schema(fields, metadata=dict(rows.about))
            writer = pa.parquet.ParquetWriter(file, schema, compression="zstd")
        writer.write_batch(pa.RecordBatch.from_arrays(part.columns, schema=writer.schema))
    if writer is not None:
        writer.close()


@contextmanager
def _rows(folder: str | Path, what: str) -> Iterator[Rows]:
    """The table of a part; its file is open meanwhile."""
    match what:
        case "front":
            front = open_front(folder)
            names = [*_ordered_axes(front, folder), *map(str, front.data_vars)]
            yield Rows(_columns(front, names), _about(front, what), lambda: iter([_front_batch(front, names)]))
        case "grid":
            check_stored(folder)
            with open_results(folder) as stored:
                axes = _ordered_axes(stored, folder)
                names = [*(name for name in axes if stored[name].dims), *map(str, stored.data_vars)]
                fixed = {name: str(stored[name].values) for name in axes if not stored[name].dims}
                about = _about(stored, what) | {"fixed": ", ".join(f"{name}={value}" for name, value in fixed.items())}
                yield Rows(_columns(stored, names), about, lambda: _grid_batches(stored, names))
        case _:
            summary = open_summary(folder)
            yield Rows(_SUMMARY, _about(summary, what), lambda: iter([_summary_batch(summary)]))


def _about(dataset: xr.Dataset, what: str) -> dict[str, str]:
    """What a part is and where it comes from, with how exact its numbers are."""
    kept = {name: str(dataset.attrs[name]) for name in _KEPT_ATTRIBUTES if name in dataset.attrs}
    return kept | {"precision": _PRECISION.get(what) or _precision_stored(dataset)}


def _precision_stored(grid: xr.Dataset) -> str:
    profile = PROFILES[grid.attrs.get("profile", DEFAULT_PROFILE)]
    return f"{profile.precision}; the front and the summary are not rounded"


def _ordered_axes(dataset: xr.Dataset, folder: str | Path) -> list[str]:
    """Axes: the grid's dimensions first, in its order; then those that move with one; fixed ones last."""
    dims = list(read_spec(Path(folder))["dims"])
    others = [str(name) for name in dataset.coords if name not in dims]
    return [*(dim for dim in dims if dim in dataset.coords), *sorted(others, key=lambda name: not dataset[name].dims)]


def _columns(dataset: xr.Dataset, names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(_column(name, dataset[name]) for name in names)


def _column(name: str, array: xr.DataArray) -> Column:
    attributes = array.attrs
    words = "flag_meanings" in attributes or array.dtype.kind in "UOb"
    unit = "" if words else str(attributes.get("display_units", attributes.get("units", "1")))
    return Column(name, unit, str(attributes.get("long_name", "")), str(attributes.get("evidence", "")))


def _front_batch(front: xr.Dataset, names: Sequence[str]) -> pa.RecordBatch:
    rows = front.sizes[ROW]
    return pa.RecordBatch.from_arrays(
        [_arrow(front[name], np.broadcast_to(front[name].values, rows)) for name in names], names=list(names)
    )


def _arrow(array: xr.DataArray, values: np.ndarray[Any, Any]) -> pa.Array:
    """Labels in words, text as text, numbers with NaN as null."""
    if "flag_meanings" in array.attrs and array.dtype.kind != "b":
        words = str(array.attrs["flag_meanings"]).split()
        codes = np.atleast_1d(array.attrs["flag_values"]).tolist()
        place = np.searchsorted(np.array(codes), values.astype(np.int64))
        return pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), pa.array(words)).cast(pa.string())
    if values.dtype.kind in "UO":
        return pa.array([str(value) for value in values], pa.string())
    return pa.array(np.ascontiguousarray(values), from_pandas=values.dtype.kind == "f")


def _grid_batches(stored: xr.Dataset, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Every stored point, last dimension fastest, the axes repeated."""
    dims, shape = stored["status"].dims, stored["status"].shape
    outer = next(n for n in range(len(dims) + 1) if math.prod(shape[n:]) <= _POINTS_AT_ONCE)
    for corner in np.ndindex(shape[:outer]):
        try:
            block = stored.isel(dict(zip(dims[:outer], corner, strict=True))).load()
        except (OSError, RuntimeError) as fault:  # what HDF5 makes of a damaged shard
            raise InputError(STORED_DAMAGED.format(fault=fault)) from fault
        inner = dims[outer:]
        columns = [_arrow(stored[name], _spread(block[name], inner, shape[outer:])) for name in names]
        yield pa.RecordBatch.from_arrays(columns, names=list(names))


def _spread(array: xr.DataArray, dims: Sequence[Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    """Values at every point of these dimensions, flat."""
    own = array.transpose(*(dim for dim in dims if dim in array.dims))
    size = [length if dim in own.dims else 1 for dim, length in zip(dims, shape, strict=True)]
    return np.broadcast_to(own.values.reshape(size), tuple(shape)).ravel()


_SUMMARY: Final = (
    Column("quantity", "", "variable of summary.nc"),
    Column("axis", "", "axis along which it is told; empty for the whole grid"),
    Column("axis_value", "", "value of that axis"),
    Column("category", "", "category of a label, or constraint"),
    Column("value", "", "number, in the unit of its row"),
    Column("unit", "", "unit of the row"),
)


def _summary_batch(summary: xr.Dataset) -> pa.RecordBatch:
    """One number a row."""
    rows: list[tuple[str, str, str, str, float, str]] = []
    for name in map(str, summary.data_vars):
        rows += [*_summary_rows(name, summary[name])]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, from_pandas=about.name == "value") for values, about in zip(columns, _SUMMARY, strict=True)],
        names=[column.name for column in _SUMMARY],
    )


def _summary_rows(name: str, array: xr.DataArray) -> Iterator[tuple[str, str, str, str, float, str]]:
    categories = [dim for dim in array.dims if dim in {"phase", "regime", "status", "bound_by", "constraint"}]
    axes = [dim for dim in array.dims if dim not in categories]
    unit = _column(name, array).unit
    for place in np.ndindex(array.shape):
        at = dict(zip(array.dims, place, strict=True))
        axis = axes[0] if axes else ""
        told = [_told(array, dim, at[dim]) for dim in (*axes[:1], *categories[:1])]
        value, category = (told[0] if axes else ""), (told[-1] if categories else "")
        yield name, str(axis), value, category, float(array.values[place]), unit


def _told(array: xr.DataArray, dim: Any, place: int) -> str:
    return str(array[dim].values[place]) if dim in array.coords else str(place)
