"""`kvwall export`: the same numbers as the results, with units, written whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.export import export
from kvwall.sweep.run import run_sweep
from kvwall.sweep.store import open_front, open_results, open_summary, shards
from kvwall.sweep.study import Study
from tests.finished_sweeps import NOTHING, ONE_DESIGN, TWO_CHIPS, TWO_MODELS, swept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(TWO_CHIPS, tmp_path_factory.mktemp("export") / "two-chips")


def read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, comment="#")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_front_is_exported_unrounded(folder: Path, tmp_path: Path, form: str) -> None:
    table = read(export(folder, to=form, out=tmp_path / f"front.{form}"))
    front = open_front(folder)
    assert len(table) == front.sizes["point"]
    for name in ("tokens_per_second_per_device", "quality_loss_upper", "energy_per_token", "context", "grid_index"):
        np.testing.assert_array_equal(table[name], front[name].values)
    assert list(table["hardware"]) == list(front["hardware"].values)
    assert set(table["status"]) == {"ok"}
    assert set(table["engine"]) == {"ideal"}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_every_stored_point_is_exported_with_its_axes(folder: Path, tmp_path: Path, form: str) -> None:
    table = read(export(folder, to=form, what="grid", out=tmp_path / f"grid.{form}"))
    with open_results(folder) as stored:
        assert len(table) == stored["status"].size
        words = str(stored["status"].attrs["flag_meanings"]).split()
        for row in (0, 17, len(table) - 1):
            line = table.iloc[row]
            axes = {name: line[name] for name in stored["status"].dims}
            point = stored.sel(axes)
            assert np.float32(line["time_per_output_token"]) == float(point["time_per_output_token"])
            assert line["status"] == words[int(point["status"])]
            assert line["value_bits"] == line["key_bits"]


def test_parts_do_not_change_what_is_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = export(folder, to="csv", what="grid", out=tmp_path / "whole.csv")
    monkeypatch.setattr("kvwall.sweep.export._POINTS_AT_ONCE", 40)
    parts = export(folder, to="csv", what="grid", out=tmp_path / "parts.csv")
    assert parts.read_bytes() == whole.read_bytes()


def test_a_number_without_a_source_is_empty(tmp_path: Path) -> None:
    results = swept(TWO_MODELS, tmp_path / "two-models")
    table = read(export(results, to="parquet", what="grid"))
    unsourced = table[table["status"] == "unsourced_input"]
    assert len(unsourced) > 0
    assert unsourced["time_per_output_token"].isna().all()


def test_csv_states_units_and_origin_in_comments(folder: Path, tmp_path: Path) -> None:
    lines = export(folder, to="csv", out=tmp_path / "front.csv").read_text().splitlines()
    comments = [line for line in lines if line.startswith("#")]
    header = lines[len(comments)].replace('"', "").split(",")
    units = dict(zip(header, comments[-1].removeprefix("# units: ").split(","), strict=True))
    assert units["time_per_output_token"] == "s"
    assert units["cost_per_million_tokens"] == "USD"
    assert units["context"] == "token"
    assert units["hardware"] == units["status"] == ""
    assert any(open_front(folder).attrs["spec_hash"] in line for line in comments)
    assert header[:2] == ["hardware", "batch"]


def test_parquet_states_units_and_origin_in_its_metadata(folder: Path, tmp_path: Path) -> None:
    schema = pyarrow.parquet.read_schema(export(folder, to="parquet", out=tmp_path / "front.parquet"))
    assert schema.metadata[b"spec_hash"].decode() == open_front(folder).attrs["spec_hash"]
    assert schema.field("memory_margin").metadata[b"units"] == b"byte"
    assert schema.field("quality_loss_upper").metadata[b"evidence"] == b"calibrated"


def test_the_summary_is_one_number_a_row(folder: Path, tmp_path: Path) -> None:
    table = read(export(folder, to="parquet", what="summary", out=tmp_path / "summary.parquet"))
    summary = open_summary(folder)
    feasible = table[table["quantity"] == "feasible"]
    assert feasible["value"].tolist() == [int(summary["feasible"])]
    name = "tokens_per_second_per_device_highest_by_hardware"
    best = table[(table["quantity"] == name) & (table["axis_value"] == "b200-sxm")]
    assert best["value"].tolist() == [float(summary[name].sel(hardware="b200-sxm"))]
    assert best["unit"].tolist() == ["s-1"]
    phases = table[(table["quantity"] == "phase_count_by_batch") & (table["axis_value"] == "64")]
    assert phases["category"].tolist() == ["weight", "kv", "capacity"]
    assert phases["value"].sum() == int(summary["points"]) / 3


def test_an_empty_front_is_a_table_without_rows(tmp_path: Path) -> None:
    results = swept(NOTHING, tmp_path / "nothing")
    for form in ("csv", "parquet"):
        table = read(export(results, to=form))
        assert len(table) == 0
        assert "tokens_per_second_per_device" in table


def test_an_existing_file_is_kept_unless_forced(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "front.csv"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists: give --force"):
        export(folder, to="csv", out=path)
    assert path.read_text() == "mine"
    export(folder, to="csv", out=path, force=True)
    assert path.read_text().startswith("#")


def test_a_fault_while_writing_leaves_the_old_file_and_nothing_else(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "front.csv"
    path.write_text("mine")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvwall.sweep.store.atomic.os.fsync", full)
    with pytest.raises(InputError, match="No space left"):
        export(folder, to="csv", out=path, force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["front.csv"]
    assert path.read_text() == "mine"


def test_unbuilt_and_unknown_forms_and_parts_are_told_together(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        export(folder, to="xlsx", what="frnt")
    assert len(caught.value.faults) == 2
    assert "not built yet" in caught.value.faults[0]
    assert "did you mean front" in caught.value.faults[1]
    with pytest.raises(InputError, match="no format"):
        export(folder, to="cvs")


def test_the_command_prints_the_path(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.parquet"
    assert run(["export", str(folder), "--to", "parquet", "--out", str(path)]) == 0
    assert capsys.readouterr().out.strip() == str(path)
    assert path.exists()
    assert run(["export", str(folder), "--to", "xlsx"]) == 2
    assert "not built yet" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "nowhere"), "--to", "csv"]) == 2


def test_how_exact_the_numbers_are_is_said(folder: Path, tmp_path: Path) -> None:
    told = {}
    for what in ("front", "grid", "summary"):
        text = export(folder, to="csv", what=what, out=tmp_path / f"{what}.csv").read_text().splitlines()
        told[what] = next(line for line in text if line.startswith("# precision: "))
        path = export(folder, to="parquet", what=what, out=tmp_path / f"{what}.parquet")
        assert pyarrow.parquet.read_schema(path).metadata[b"precision"].decode() in told[what]
    assert "12 explicit mantissa bits: the relative error is at most 0.00012" in told["grid"]
    assert "not rounded" in told["front"]
    assert "not rounded" in told["summary"]
    grid, front = read(tmp_path / "grid.parquet"), read(tmp_path / "front.parquet")
    axes = ["hardware", "batch", "context", "key_bits", "retention", "placement_host", "tensor_parallel"]
    both = front.merge(grid, on=axes, suffixes=("", "_stored"))
    assert len(both) == len(front)
    off = abs(both["time_per_output_token_stored"] / both["time_per_output_token"] - 1)
    assert 0 < off.max() <= 2.0**-13 * 1.01


def test_one_netcdf_file_has_the_very_chunks_of_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shards, "MOST_POINTS", 300)
    monkeypatch.setattr(shards, "MOST_CHUNK_POINTS", 50)
    folder = tmp_path / "many"
    run_sweep(Study.from_text(TWO_CHIPS), folder)  # in pieces of its own
    path = export(folder, to="netcdf")
    assert path == folder / "grid.nc"
    with open_results(folder) as stored, xr.open_dataset(path) as whole:
        xr.testing.assert_equal(whole.load().drop_vars("quantization_info"), stored.load())
        assert whole["time_per_output_token"].attrs == stored["time_per_output_token"].attrs
        assert whole.attrs["spec_hash"] == stored.attrs["spec_hash"]
    copied: dict[tuple[str, bytes], int] = {}
    with h5py.File(path) as whole:
        for name in ("time_per_output_token", "phase"):
            for chunk in chunks_of(whole[name]):
                copied[name, chunk] = copied.get((name, chunk), 0) + 1
    for shard in folder.glob("shards/*.nc"):
        with h5py.File(shard) as file:
            for name in ("time_per_output_token", "phase"):
                for chunk in chunks_of(file[name]):
                    copied[name, chunk] -= 1
    assert len(copied) > 20
    assert set(copied.values()) == {0}
    flipped = next(folder.glob("shards/*.nc"))
    flipped.write_bytes(flipped.read_bytes()[:-9] + b"scribble!")
    for change, said in ((lambda: None, "not those that were written"), (flipped.unlink, "blocks are missing")):
        change()
        for to in ("netcdf", "csv", "parquet"):
            out = str(tmp_path / f"again.{to}")
            assert run(["export", str(folder), "--to", to, "--what", "grid", "--out", out]) == 2
            assert said in capsys.readouterr().err
        assert not list(tmp_path.glob("*again*")), "nothing is left behind"


def chunks_of(stored: h5py.Dataset) -> list[bytes]:
    places = [stored.id.get_chunk_info(number).chunk_offset for number in range(stored.id.get_num_chunks())]
    return [stored.id.read_direct_chunk(place)[1] for place in places]


def test_zarr_holds_the_stored_points(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    path = export(folder, to="zarr", out=tmp_path / "grid.zarr")
    with open_results(folder) as stored, xr.open_zarr(path) as found:
        xr.testing.assert_equal(found.load(), stored.load())
        assert found["memory_margin"].attrs["units"] == "byte"
        assert found["status"].dtype == np.int8
        assert found.attrs["spec_hash"] == stored.attrs["spec_hash"]
    with pytest.raises(InputError, match="exists: give --force"):
        export(folder, to="zarr", out=path)
    (path / "stale").write_text("")
    export(folder, to="zarr", out=path, force=True)
    assert not (path / "stale").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["grid.zarr"]


@pytest.mark.parametrize("one_dimension", [True, False])
def test_long_axes_come_whole_into_one_file(
    one_dimension: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinates that are packed themselves are no numbers of points."""
    axes = 'context = { linear = [4096, 65536, 1500] }\nmax_model_length = "context"'
    text = ONE_DESIGN.replace("context = 128000", axes if one_dimension else axes + "\nbatch = [1, 2]")
    monkeypatch.setattr(shards, "MOST_POINTS", 400)
    results = swept(text, tmp_path / "results")
    path = export(results, to="netcdf")
    with open_results(results) as stored, xr.open_dataset(path) as found:
        assert stored.attrs["shard_count"] > 3
        xr.testing.assert_equal(found.drop_vars("quantization_info").load(), stored.load())


def test_zarr_replaces_nothing_but_zarr(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = sorted(path for path in folder.rglob("*"))
    for out in (tmp_path / "mine", tmp_path / "file", folder, folder.parent):
        with pytest.raises(InputError, match="--force replaces no other"):
            export(folder, to="zarr", out=out, force=True)
    assert (tmp_path / "mine" / "precious.txt").read_text() == (tmp_path / "file").read_text() == "mine"
    assert before == sorted(path for path in folder.rglob("*"))


def test_what_a_killed_export_left_is_removed_by_the_next_sweep(folder: Path, tmp_path: Path) -> None:
    results = shutil.copytree(folder, tmp_path / "results")
    (results / ".grid.zarr.0.part" / "deep").mkdir(parents=True)
    (results / ".grid.zarr.0.part" / "deep" / "0.0").write_text("half")
    run_sweep(Study.load(str(results / "study.toml")), results)
    assert not list(results.glob(".*.part"))


def test_zarr_that_is_not_installed_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvwall.sweep.zarr_folder.importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'kvwall\[zarr\]'"):
        export(folder, to="zarr", out=tmp_path / "grid.zarr")


@pytest.mark.parametrize("to", ["netcdf", "zarr"])
def test_arrays_are_of_stored_points_only(folder: Path, to: str) -> None:
    with pytest.raises(InputError, match=r"front\.nc in the folder is one already"):
        export(folder, to=to, what="front")
