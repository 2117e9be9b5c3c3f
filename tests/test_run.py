"""`kvwall sweep` as a whole: files, exit codes, resuming, a run killed at any instant."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.run import run_sweep, why_nothing
from kvwall.sweep.store import open_front, open_results, open_summary
from kvwall.sweep.study import Study
from tests.compiled_once import compiled_once  # noqa: F401 - a fixture
from tests.finished_sweeps import SMALL as STUDY

pytestmark = pytest.mark.usefixtures("compiled_once")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "small"
    study = Study.from_text(STUDY)
    return study, folder, run_sweep(study, folder)


def test_every_file_of_the_contract_is_there(finished):
    study, folder, result = finished
    assert {path.name for path in folder.iterdir() if not path.name.startswith(".")} == {
        "study.toml", "spec.json", "shards", "view.nc", "front.nc", "summary.nc", "log.jsonl",
    }  # fmt: skip
    assert result.points == study.space.size == 144
    assert result.admissible == int(open_summary(folder)["admissible"]) > 0
    assert result.front_size == open_front(folder).sizes["point"]


def test_the_view_holds_every_point(finished):
    study, folder, _ = finished
    grid = open_results(folder)
    assert grid["status"].shape == study.space.shape
    assert np.all(grid["status"] != 0)
    one = grid.sel(hardware="mi300x", batch=16, context=65536, key_bits=8, retention=0.5, tensor_parallel=1)
    report = json.loads(evaluated("--hardware", "mi300x", "--batch", "16", "--context", "65536", "--key-bits", "8",
                                  "--value-bits", "8", "--retention", "0.5"))  # fmt: skip
    expected = report["metrics"]["tokens_per_second_per_device"]
    assert float(one["tokens_per_second_per_device"]) == pytest.approx(expected, rel=2e-4)


def evaluated(*arguments):
    command = [
        sys.executable,
        "-c",
        "from kvwall.sweep.cli import main; main()",
        "evaluate",
        "--mode",
        "ceiling",
        "--json",
    ]
    model = ["--model", "meta-llama/Meta-Llama-3-8B"]
    return subprocess.run([*command, *model, *arguments], capture_output=True, text=True, check=True).stdout


def test_front_designs_are_admissible_and_not_dominated_by_any_stored_point(finished):
    _, folder, _ = finished
    front = open_front(folder)
    assert np.all(front["time_per_output_token"] <= 0.1)
    speed, loss = front["tokens_per_second_per_device"].values, front["quality_loss_upper"].values
    order = np.argsort(-speed)
    assert np.all(np.diff(loss[order]) < 0)


def test_a_second_run_finds_everything_done_and_changes_nothing(finished):
    study, folder, first = finished
    before = {path: path.stat().st_mtime_ns for path in [*folder.glob("shards/*"), folder / "front.nc"]}
    again = run_sweep(study, folder)
    assert again.points_per_second is None
    assert (again.feasible, again.admissible, again.front_size) == (first.feasible, first.admissible, first.front_size)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_block_that_cannot_be_read_is_no_traceback(finished, tmp_path, capsys, monkeypatch):
    def broken(dataset):
        raise RuntimeError("NetCDF: HDF error")  # what the library makes of flipped bytes in a shard

    monkeypatch.setattr(xr.Dataset, "load", broken)
    out = str(tmp_path / "grid.parquet")
    assert run(["export", str(finished[1]), "--to", "parquet", "--what", "grid", "--out", out]) == 2
    assert "a stored block cannot be read (NetCDF: HDF error)" in capsys.readouterr().err


def test_a_folder_whose_spec_says_nothing_is_refused(finished, tmp_path, capsys):
    folder = tmp_path / "bare"
    shutil.copytree(finished[1], folder)
    (folder / "spec.json").write_text('{"a": 1}')
    for command in (["export", str(folder), "--to", "csv", "--what", "grid"], ["report", str(folder)]):
        assert run(command) == 2, command
        assert "holds no spec" in capsys.readouterr().err


def test_a_changed_study_is_refused_with_the_difference(finished):
    _, folder, _ = finished
    with pytest.raises(InputError, match="batch"):
        run_sweep(Study.from_text(STUDY.replace("[1, 16, 128]", "[1, 16]")), folder)


def test_contradictory_constraints_say_which_kills_how_many(tmp_path):
    text = STUDY.replace("[constraints]", "[constraints]\ntokens_per_second = { min = 1e9 }")
    assert run_sweep(Study.from_text(text), tmp_path / "none").admissible == 0
    said = " ".join(why_nothing(Study.from_text(text), tmp_path / "none"))
    feasible = int(open_summary(tmp_path / "none")["feasible"])
    assert f"tokens_per_second >= 1e+09 alone rejects {feasible:,} of the {feasible:,} feasible points" in said
    assert open_front(tmp_path / "none").sizes["point"] == 0


def test_command_prints_one_json_object_and_exit_codes(tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    assert run(["sweep", str(path), "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {
        "points",
        "feasible",
        "admissible",
        "seconds",
        "points_per_second",
        "compile_seconds",
        "front_size",
        "out",
    } <= set(found)
    path.write_text(STUDY.replace("[1, 16, 128]", "[1, -16, 1]").replace("mi300x", "mi300"))
    assert run(["sweep", str(path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "-16" in said
    assert "mi300x" in said


def test_nothing_admissible_prints_its_result_and_exits_with_3(tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(STUDY.replace("[constraints]", "[constraints]\ntokens_per_second = { min = 1e9 }"))
    assert run(["sweep", str(path), "--out", str(tmp_path / "out"), "--json"]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out)["admissible"] == 0
    assert "alone rejects" in printed.err


def test_dry_run_writes_nothing(tmp_path, capsys):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    assert run(["sweep", str(path), "--out", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points"] == 144
    assert found["seconds_expected"] > 0
    assert not (tmp_path / "out").exists()


def test_a_design_that_meets_a_bound_exactly_is_admissible(tmp_path):
    space = 'model = "meta-llama/Meta-Llama-3-8B"\nhardware = "h100-sxm"\ncontext = [8192, 16384]\nbatch = [2, 4]\n'
    arguments = ("--hardware", "h100-sxm", "--context", "8192", "--batch", "2")
    exact = json.loads(evaluated(*arguments))["metrics"]["time_per_output_token"]
    bound = f"[constraints]\ntime_per_output_token = {{ max = {exact!r} }}\n"
    study = Study.from_text(f'[study]\nname = "tie"\nmode = "ceiling"\n[space]\n{space}{bound}')
    assert run_sweep(study, tmp_path / "tie").admissible == 1


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_a_sweep_says_how_to_go_on(tmp_path, asked):
    path = tmp_path / "big.toml"
    path.write_text(BIG)
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from kvwall.sweep.cli import main; main()", "sweep", str(path), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not (out / "spec.json").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(asked)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "stopping at the next safe point" in said
    assert "the same command goes on from there" in said


@pytest.mark.parametrize("stated", ["context = 4096", "context = [4096, 8192]"])
def test_studies_of_one_point_and_of_one_axis(tmp_path, stated):
    space = f'[space]\nmodel = "meta-llama/Meta-Llama-3-8B"\nhardware = "h100-sxm"\n{stated}\n'
    text = f'[study]\nname = "few"\nmode = "ceiling"\n{space}'
    result = run_sweep(Study.from_text(text), tmp_path / "few")
    assert result.points == result.admissible == stated.count(",") + 1
    with open_results(tmp_path / "few") as grid:
        assert np.all(grid["status"] == 1)


BIG = STUDY.replace("batch = [1, 16, 128]", "batch = { range = [1, 2100, 1] }").replace(
    "context = [4096, 65536]", "context = { range = [1000, 400000, 1000] }"
)
"""20e6 points: six shards."""


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_results(tmp_path):
    path = tmp_path / "big.toml"
    path.write_text(BIG)
    command = [sys.executable, "-c", "from kvwall.sweep.cli import main; main()", "sweep", str(path), "--out", "out"]
    same = {"env": os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "PYTHONPATH": str(ROOT)}}
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole, killed = tmp_path / "whole" / "out", tmp_path / "killed" / "out"
    subprocess.run(command, check=True, capture_output=True, cwd=whole.parent, **same)
    silent = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=killed.parent, **silent, **same)
    while not list(killed.glob("shards/*.nc")):
        time.sleep(0.01)
        assert process.poll() is None, "finished before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {shard: (shard.stat().st_mtime_ns, shard.stat().st_ino) for shard in killed.glob("shards/*.nc")}
    assert len(kept) < len(list(whole.glob("shards/*.nc")))
    subprocess.run(command, check=True, capture_output=True, cwd=killed.parent, **same)
    assert kept == {shard: (shard.stat().st_mtime_ns, shard.stat().st_ino) for shard in kept}
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.nc"))
    assert len(files) == 9
    for name in files:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


class Deaf:
    """A stream whose reader has gone."""

    def write(self, text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError

    def isatty(self):
        return False


@pytest.mark.parametrize("stream", [None, Deaf()])
def test_progress_that_nobody_hears_stops_nothing(stream, tmp_path, monkeypatch):
    file = study_file(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        code = run(["sweep", file, "--out", str(tmp_path / "out")])
    assert code == 0
    assert (tmp_path / "out" / "front.nc").exists()


def test_a_name_that_is_no_text_is_refused(tmp_path, capsys):
    assert run(["sweep", study_file(tmp_path), "--out", str(tmp_path / "a\udcff")]) == 2
    assert "is no text in UTF-8" in capsys.readouterr().err
    assert run(["sweep", study_file(tmp_path), "--out", str(tmp_path / ("long" * 200))]) == 2
    assert "cannot be written (File name too long)" in capsys.readouterr().err


def study_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return str(path)


def test_where_nothing_fits_no_source_is_blamed(tmp_path):
    text = STUDY.replace("[4096, 65536]", "[1000000, 1040000]").replace("[1, 16, 128]", "[512, 1024]")
    result = run_sweep(Study.from_text(text), tmp_path / "out")
    said = " ".join(why_nothing(Study.from_text(text), result.out))
    assert result.feasible == 0
    assert "memory" in said
    assert "has no source" not in said
