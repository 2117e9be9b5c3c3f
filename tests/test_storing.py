"""What a study stores, and how: profiles, stores without points, and what is said of files that are not there."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.bitround import bitround
from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.cli import run
from kvwall.sweep.crew import in_order
from kvwall.sweep.keeping import PROFILES
from kvwall.sweep.run import problem_of, run_sweep
from kvwall.sweep.store import ResultsFolder, open_front, open_results, open_summary, packing, shard_plan, shards
from kvwall.sweep.study import Study
from tests.compiled_once import compiled_once  # noqa: F401 - a fixture
from tests.finished_sweeps import TWO_CHIPS

pytestmark = [pytest.mark.made_fast, pytest.mark.usefixtures("compiled_once")]

ROOT = Path(__file__).resolve().parents[1]
MANY = TWO_CHIPS.replace("batch = [1, 8, 64]", "batch = { range = [1, 150, 1] }")
"""64,800 points."""
REDUCED = re.sub(r"\[sweep\]\n.*", '[sweep]\nstore = "reduced"\n', TWO_CHIPS, flags=re.DOTALL)


def stored(folder: Path, name: str = "time_per_output_token") -> np.ndarray:
    with open_results(folder) as grid:
        return grid[name].values


@pytest.fixture(scope="module")
def computed() -> dict[str, np.ndarray]:
    """The whole grid of the study, neither rounded nor stored."""
    study = Study.from_text(MANY)
    shape = dict(zip(study.space.dims, study.space.shape, strict=True))
    everything = {dim: np.arange(length) for dim, length in shape.items()}
    return BlockEvaluator(problem_of(study), shape, (*study.keep, "status"))(everything)


@pytest.fixture(scope="module", params=PROFILES)
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """The results of a study in many shards of several chunks, the last of them shorter, in each profile."""
    study = replace(Study.from_text(MANY), profile=request.param)
    folder = tmp_path_factory.mktemp(request.param) / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "MOST_POINTS", 5000)
        patch.setattr(shards, "MOST_CHUNK_POINTS", 1800)
        run_sweep(study, folder)
    return study, folder


def test_every_profile_stores_what_was_computed(swept: tuple[Study, Path], computed: dict[str, np.ndarray]) -> None:
    study, folder = swept
    rounds = PROFILES[study.profile].rounds
    for name in study.keep:
        expected = bitround(computed[name]) if rounds and computed[name].dtype == np.float32 else computed[name]
        found = stored(folder, name)
        near = {"rtol": 2.0**-11 if rounds else 1e-5, "atol": 1e5 if name == "memory_margin" else 0.0}
        np.testing.assert_allclose(found, expected, **near, err_msg=name)
        most = 0.999 if rounds else 0.5  # blocks of another shape may round a last bit differently
        assert (found == expected).mean() > most, name
    assert rounds == (stored(folder) != computed["time_per_output_token"]).any()
    np.testing.assert_allclose(stored(folder), computed["time_per_output_token"], rtol=2.0**-13)


def test_files_say_how_their_numbers_were_stored(swept: tuple[Study, Path]) -> None:
    study, folder = swept
    profile = PROFILES[study.profile]
    assert len(list((folder / "shards").iterdir())) > 10
    for path in (folder / "view.nc", folder / "shards" / "000003.nc"):
        with netCDF4.Dataset(path) as file:
            assert (file.profile, file.store, int(file.keep_bits)) == (study.profile, "full", profile.keep_bits)
            assert ("quantization_info" in file.variables) == profile.rounds
            assert ("quantization" in file["time_per_output_token"].ncattrs()) == profile.rounds
    with netCDF4.Dataset(folder / "shards" / "000003.nc") as file:
        filters = file["time_per_output_token"].filters()
    assert (filters["zlib"], filters["shuffle"]) == (
        (True, True) if "zlib" in profile.filters.values() else (False,) * 2
    )
    assert bool(filters["blosc"]) == profile.needs_plugin


@pytest.mark.skipif(shutil.which("ncdump") is None, reason="needs the netCDF programs (Debian: netcdf-bin)")
def test_stock_ncdump_reads_every_profile_that_needs_no_plugin(swept: tuple[Study, Path]) -> None:
    study, folder = swept
    if PROFILES[study.profile].needs_plugin:
        pytest.skip("has its own filter")
    for path, values in ((folder / "view.nc", stored(folder)), (folder / "shards" / "000000.nc", None)):
        command = ["ncdump", "-p", "9,17", "-v", "time_per_output_token", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        numbers = text.rpartition("time_per_output_token =")[2].strip(" ;\n}").replace("_", "nan").split(",")
        if values is not None:
            np.testing.assert_array_equal(np.array(numbers, np.float32), values.ravel())
        else:
            np.testing.assert_array_equal(np.array(numbers, np.float32), stored(folder).ravel()[: len(numbers)])


def test_a_filter_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = replace(Study.from_text(TWO_CHIPS), profile="fast")
    with ResultsFolder.create_or_resume(tmp_path / "out", study) as folder:
        folder.write_shard(
            folder.plan.shards[0], dict.fromkeys(study.keep, np.zeros((), np.int8)), np.ones((), np.int8)
        )
        folder.write_view()
    monkeypatch.setattr(packing, "_blosc_is_there", lambda: False)
    with pytest.raises(InputError, match=r'was written with profile = "fast".*HDF5_PLUGIN_PATH.*"portable"'):
        open_results(tmp_path / "out")
    with pytest.raises(InputError, match="is to be written with"):
        ResultsFolder.create_or_resume(tmp_path / "new", study)
    assert not (tmp_path / "new").exists()


def test_netcdf_says_whether_the_filter_is_there() -> None:
    code = "from kvwall.sweep.store import packing; print(packing._blosc_is_there())"
    for folder, expected in ((None, "True"), ("/nowhere", "False")):
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"HDF5_PLUGIN_PATH": folder} if folder else {})
        found = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == expected


def test_unknown_and_idle_keys_are_told_with_a_remedy() -> None:
    text = TWO_CHIPS.replace("[sweep]\n", '[sweep]\nprofile = "fsat"\nstore = "all"\n')
    with pytest.raises(InputError) as caught:
        Study.from_text(text)
    assert 'profile = "fsat" is not known (did you mean fast' in caught.value.faults[0]  # in the order of the file
    assert 'store = "all" is not known' in caught.value.faults[1]
    idle = REDUCED + 'profile = "exact"\nkeep = ["phase"]\n[sweep.slice]\nbatch = [1]\n'
    with pytest.raises(InputError) as caught:
        Study.from_text(idle)
    assert len(caught.value.faults) == 3
    for key, fault in zip(("profile", "keep", "slice"), caught.value.faults, strict=True):
        assert f'leave {key} out, or write store = "full"' in fault


def test_what_decides_storage_is_part_of_the_spec_and_reads_back() -> None:
    plain = Study.from_text(TWO_CHIPS)
    for other in (replace(plain, profile="exact"), Study.from_text(REDUCED)):
        assert other.spec_hash != plain.spec_hash
        again = Study.from_text(other.resolved())
        assert (again.spec_hash, again.store, again.profile) == (other.spec_hash, other.store, other.profile)


def test_a_reduced_sweep_keeps_front_and_summary_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study, folder = Study.from_text(REDUCED), tmp_path / "out"
    result = run_sweep(study, folder)
    assert result.stored_points == 0
    assert not (folder / "shards").exists()
    assert not (folder / "view.nc").exists()
    full = run_sweep(Study.from_text(TWO_CHIPS), tmp_path / "full")
    assert (result.front_size, result.admissible) == (full.front_size, full.admissible)
    np.testing.assert_array_equal(open_front(folder)["grid_index"], open_front(tmp_path / "full")["grid_index"])
    assert int(open_summary(folder)["points"]) == study.space.size
    assert run_sweep(study, folder).points_per_second is None, "a second run finds it finished"
    with pytest.raises(InputError, match=r'store = "reduced" keeps the front and the summary, and no points'):
        open_results(folder)
    for command in (
        ["export", str(folder), "--to", "csv", "--what", "grid"],
        ["pareto", str(folder), "--where", "batch=1"],
    ):
        assert run(command) == 2
        assert 'store = "full"' in capsys.readouterr().err
    assert run(["report", str(folder)]) == 0
    assert run(["export", str(folder), "--to", "csv"]) == 0


SITES = ("spec.json", "study.toml", "000001.nc", "view.nc", ".stream.npz", "summary.nc", "front.nc")


@pytest.mark.parametrize("site", SITES)
def test_a_disk_full_at_any_file_loses_nothing_that_is_finished(
    tmp_path: Path, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = Study.from_text(TWO_CHIPS), tmp_path / "out"
    monkeypatch.setattr(shards, "MOST_POINTS", 100)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    flush = os.fsync

    def full(handle: int) -> None:
        if site in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            InputError, match=rf"{re.escape(site)} could not be written \(No space left.*the same command"
        ):
            run_sweep(study, folder)
    assert not list(folder.rglob("*.part"))
    assert not list(folder.rglob(f"*{site}"))
    done = {path: path.stat().st_mtime_ns for path in folder.glob("shards/*.nc")}
    if site in SITES[3:]:
        assert len(done) == len(shard_plan(study).shards)
    run_sweep(study, folder)
    assert done == {path: path.stat().st_mtime_ns for path in done}
    run_sweep(study, tmp_path / "whole")
    for path in (tmp_path / "whole").rglob("*.nc"):
        assert (folder / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()


def test_work_is_in_order_bounded_and_finished_once_begun() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def work(thing: int) -> int:
        begun.append(thing)
        if thing == 20:
            raise InputError("the disk is full")
        ended.append(thing)
        return thing

    given: list[int] = []
    results = in_order(work, (given.append(thing) or thing for thing in range(1000)))
    assert [next(results) for _ in range(20)] == list(range(20))
    assert len(given) < 40, "no more is taken than is in flight"
    with pytest.raises(InputError, match="full"):
        list(results)
    assert sorted(ended) == sorted(thing for thing in begun if thing != 20)
