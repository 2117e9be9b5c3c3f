"""Results on disk: what is written is read back by name, and nothing that happens to a file makes it read wrongly."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kvwall.objectives.register import LABELS, metric_register
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.sweep import checkpoint
from kvwall.sweep.bitround import KEEP_BITS, bitround
from kvwall.sweep.results import FrontTable, Histogram, Summary
from kvwall.sweep.store import ResultsFolder, Shard, ShardPlan, open_front, open_results, open_summary, shards
from kvwall.sweep.store.attributes import attribute, axis_attributes, metric_attributes
from kvwall.sweep.store.shards import block_shape, shard_plan
from kvwall.sweep.study import Study
from tests.finished_sweeps import TWO_CHIPS, swept

TEXT = """
[study]
name = "small"
mode = "ceiling"

[space]
model = "paper/llama-3-70b"
hardware = ["paper/h100", "paper/b200", "paper/mi300x"]
batch = [1, 2, 4, 8]
context = [1000, 2000, 3000, 4000, 5000]
key_bits = [16, 8, 2]
value_bits = "key_bits"
weight_bits = ["native", 8]
question_visible = [true, false]

[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper"]

[constraints]
time_per_output_token = { max = 0.1 }

[sweep]
keep = ["tokens_per_second_per_device", "arithmetic_intensity", "phase"]
"""
SLICE = "\n[sweep.slice]\nbatch = [2, 8]\ncontext = [3000]\n"
ONE_DESIGN = """
[study]
name = "one"
mode = "ceiling"
[space]
model = "paper/llama-3-70b"
hardware = "paper/h100"
context = 1000
"""
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of at most 30 points, so that a small study has many."""
    monkeypatch.setattr(shards, "MOST_POINTS", 30)


@pytest.fixture
def study() -> Study:
    return Study.from_text(TEXT)


@pytest.fixture
def folder(tmp_path: Path, study: Study, small_shards: None) -> Iterator[ResultsFolder]:
    with ResultsFolder.create_or_resume(tmp_path / "out", study) as opened:
        yield opened


def grid_index(study: Study, plan: ShardPlan, shard: Shard) -> np.ndarray:
    """Flat grid index of every point of a shard: what the tests store, so that a misplaced block shows."""
    positions = np.ix_(*plan.grid_positions(shard).values())
    return np.ravel_multi_index(positions, study.space.shape) if positions else np.zeros((), np.int64)


def write(folder: ResultsFolder, shard: Shard) -> None:
    index = grid_index(folder.study, folder.plan, shard)
    values = {name: index % 3 if name in LABELS else index.astype(np.float32) for name in folder.study.keep}
    folder.write_shard(shard, values, np.ones(shard.shape, np.int8))


def fill(folder: ResultsFolder) -> None:
    for shard in folder.missing_shards():
        write(folder, shard)
    folder.write_view()


def flip(path: Path, place: int) -> None:
    """Flip one bit of a file."""
    stored = bytearray(path.read_bytes())
    stored[place] ^= 1 << (place % 8)
    path.write_bytes(stored)


def other_study(folder: ResultsFolder, path: Path) -> None:
    """Put a block of another study, of the same shape, in place of one of this folder's."""
    study = Study.from_text(TEXT.replace("max = 0.1", "max = 0.2"))
    with ResultsFolder.create_or_resume(folder.path.with_name("another"), study) as another:
        write(another, another.plan.shards[int(path.stem)])
        shutil.copy(another.path / "shards" / path.name, path)


# --- the plan


@given(st.lists(st.integers(1, 60), max_size=5).map(tuple), st.integers(1, 5000))
def test_blocks_are_small_enough_and_no_smaller_than_need_be(shape: tuple[int, ...], most: int) -> None:
    block = block_shape(shape, most)
    assert math.prod(block) <= most
    assert all(1 <= part <= length for part, length in zip(block, shape, strict=True))
    cut = [part < length for part, length in zip(block, shape, strict=True)]
    # Whole trailing dimensions, one cut, then single values.
    assert sum(part not in (1, length) for part, length in zip(block, shape, strict=True)) <= 1
    if any(cut):
        last = max(index for index, is_cut in enumerate(cut) if is_cut)
        assert 2 * math.prod(block) > min(most, math.prod(shape[last:])) / 2


@pytest.mark.parametrize("text", [TEXT, TEXT + SLICE, ONE_DESIGN])
def test_shards_cover_the_slice_once(text: str, small_shards: None) -> None:
    study = Study.from_text(text)
    plan = shard_plan(study)
    seen = np.zeros(plan.shape, int)
    for number, shard in enumerate(plan.shards):
        assert shard.index == number
        seen[shard.slices] += 1
    assert (seen == 1).all()
    assert plan.size == math.prod(len(study.slice.get(dim, study.space.values(dim))) for dim in study.space.dims)


def test_a_huge_slice_gets_bigger_shards_not_more(monkeypatch: pytest.MonkeyPatch, study: Study) -> None:
    monkeypatch.setattr(shards, "MOST_POINTS", 1)
    monkeypatch.setattr(shards, "MOST_SHARDS", 50)
    assert len(shard_plan(study).shards) <= 50


# --- round trip


def test_every_point_is_found_by_name(folder: ResultsFolder, study: Study) -> None:
    fill(folder)
    assert len(folder.plan.shards) > 10
    grid = open_results(folder.path)
    space = study.space
    for index in range(0, space.size, 7):
        point = space.point(index)
        chosen = {dim: "native" if point[dim] == "native" else point[dim] for dim in space.dims}
        chosen["weight_bits"] = str(chosen["weight_bits"]).removesuffix(".0")
        found = grid.sel(chosen)
        assert float(found["tokens_per_second_per_device"]) == index
        assert int(found["phase"]) == index % 3
        assert float(found["value_bits"]) == point["value_bits"]
    assert grid["status"].dtype == np.int8
    assert (grid["status"] == 1).all()
    assert grid.attrs["missing_shards"] == 0
    assert grid["model"].item() == "paper/llama-3-70b"
    assert grid["value_bits"].dims == ("key_bits",)
    assert grid["question_visible"].dtype == bool


def test_a_sliced_study_stores_the_slice(tmp_path: Path, small_shards: None) -> None:
    study = Study.from_text(TEXT + SLICE)
    with ResultsFolder.create_or_resume(tmp_path / "out", study) as folder:
        fill(folder)
    grid = open_results(tmp_path / "out")
    assert grid["batch"].values.tolist() == [2, 8]
    assert grid["context"].item() == 3000  # one value: a scalar coordinate, not a dimension
    found = grid.sel(hardware="paper/mi300x", batch=8, key_bits=2, weight_bits="8", question_visible=False)
    index = study.space.size - 1 - 2 * math.prod(study.space.shape[3:])
    assert float(found["arithmetic_intensity"]) == index


@pytest.mark.parametrize("written", [True, False])
def test_a_study_of_one_design(tmp_path: Path, written: bool) -> None:
    study = Study.from_text(ONE_DESIGN)
    with ResultsFolder.create_or_resume(tmp_path / "one", study) as folder:
        if written:
            metrics = {name: np.array(2.0) for name in study.keep}
            folder.write_shard(folder.plan.shards[0], metrics, np.array(1, np.int8))
            assert folder.missing_shards() == []
        folder.write_view()
        folder.write_front(FrontTable(np.array([0]), np.array([1]), {"max_batch": np.array([3.0])}, {}))
    if written:
        assert float(open_results(tmp_path / "one")["quality_loss_upper"]) == 2.0
    else:
        with pytest.warns(UserWarning, match="1 of 1 blocks"):
            grid = open_results(tmp_path / "one")
        assert int(grid["status"]) == 0
        assert np.isnan(grid["quality_loss_upper"])
    assert open_front(tmp_path / "one")["max_batch"].values.tolist() == [3.0]


def test_blocks_broadcast_and_metrics_without_a_source_stay_nan(folder: ResultsFolder) -> None:
    shard = folder.plan.shards[0]
    ones = tuple(1 for _ in shard.shape)
    values = {
        "tokens_per_second_per_device": np.full(ones, np.nan),
        "arithmetic_intensity": np.full(ones, np.inf),
        "phase": np.zeros(ones, np.int32),
    }
    folder.write_shard(shard, values, np.full(ones, 4, np.int8))
    with netCDF4.Dataset(folder.path / "shards" / shard.name) as file:
        assert file["tokens_per_second_per_device"].shape == folder.plan.file_shape(shard.shape)
        assert np.ma.getmaskarray(file["tokens_per_second_per_device"][:]).all()
        assert np.isposinf(file["arithmetic_intensity"][:]).all()
        assert (file["status"][:] == 4).all()


def test_a_wrong_block_is_refused(folder: ResultsFolder) -> None:
    shard = folder.plan.shards[0]
    status = np.ones(shard.shape, np.int8)
    metric = np.ones(shard.shape, np.float32)
    values = {"tokens_per_second_per_device": metric, "arithmetic_intensity": metric, "phase": metric}
    with pytest.raises(ValueError, match="codes of a label are integers"):
        folder.write_shard(shard, values, status)
    with pytest.raises(ValueError, match="lacks phase"):
        folder.write_shard(shard, {name: metric for name in values if name != "phase"}, status)
    with pytest.raises(ValueError, match="must broadcast to"):
        folder.write_shard(shard, values | {"phase": status}, np.ones((*shard.shape, 2), np.int8))
    assert list((folder.path / "shards").iterdir()) == []


def test_the_front_keeps_full_precision(folder: ResultsFolder, study: Study) -> None:
    third = np.array([1 / 3, np.nan, 2e30])
    rows = np.array([0, 17, study.space.size - 1])
    codes = {"phase": np.array([0, 1, 2], np.int8), "status": np.ones(3, np.int8)}
    folder.write_front(FrontTable(rows, np.array([1, 5, 1]), {"energy_per_token": third}, codes))
    front = open_front(folder.path)
    np.testing.assert_array_equal(front["energy_per_token"], third)
    assert front["grid_index"].values.tolist() == rows.tolist()
    assert front["multiplicity"].values.tolist() == [1, 5, 1]
    assert front["hardware"].values.tolist() == [study.space.point(int(row))["hardware"] for row in rows]
    assert front["value_bits"].values.tolist() == [study.space.point(int(row))["value_bits"] for row in rows]
    assert front["model"].item() == "paper/llama-3-70b"


def test_an_empty_front_is_a_front(folder: ResultsFolder) -> None:
    none = np.array([], np.int64)
    folder.write_front(FrontTable(none, none, {"energy_per_token": np.array([])}, {"phase": np.array([], np.int8)}))
    assert open_front(folder.path).sizes["point"] == 0


def test_the_summary_reads_back(folder: ResultsFolder, study: Study) -> None:
    name = "tokens_per_second_per_device"
    summary = Summary(
        points=study.space.size,
        feasible=5,
        admissible=3,
        rejected={str(constraint): 2 for constraint in study.constraints},
        counts={"batch": {"phase": np.arange(12).reshape(4, 3)}},
        low={"batch": {name: np.array([1, 2, np.nan, 4], np.float32)}},
        high={"batch": {name: np.array([5, 6, np.nan, 1 / 3], np.float32)}},
        totals={"phase": np.array([1, 2, 3])},
        histogram={name: Histogram(np.array([0.0, 1.0, 10.0]), np.array([4, 1]))},
    )
    folder.write_summary(summary)
    read = open_summary(folder.path)
    assert int(read["points"]) == study.space.size
    assert int(read["rejected"].sel(constraint="time_per_output_token <= 0.1")) == 2
    assert int(read["phase_count_by_batch"].sel(batch=8, phase="capacity")) == 11
    assert int(read["phase_count"].sel(phase="kv")) == 2
    np.testing.assert_array_equal(read[f"{name}_lowest_by_batch"], summary.low["batch"][name])
    np.testing.assert_array_equal(read[f"{name}_highest_by_batch"], summary.high["batch"][name])
    assert read[f"{name}_histogram_edges"].values.tolist() == [0.0, 1.0, 10.0]
    assert read[f"{name}_histogram_count"].values.tolist() == [4, 1]


# --- rounding


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)), st.integers(0, 23))
def test_rounding_errs_by_half_a_kept_bit_at_most(numbers: np.ndarray, keep_bits: int) -> None:
    rounded = bitround(numbers, keep_bits)
    wide = numbers.astype(np.float64)
    ordinary = np.isfinite(numbers)
    np.testing.assert_array_equal(rounded[~ordinary], numbers[~ordinary])
    assert np.isfinite(rounded[ordinary]).all()
    top = np.abs(wide) > 3e38  # there, cutting instead of rounding errs by a whole kept bit
    bound = np.maximum(np.abs(wide), 2.0**-126) * 2.0 ** -(keep_bits + 1) * np.where(top, 2, 1)
    assert (np.abs(rounded[ordinary].astype(np.float64) - wide[ordinary]) <= bound[ordinary]).all()
    assert (bitround(rounded, keep_bits).view(np.uint32) == rounded.view(np.uint32)).all()


def test_rounding_leaves_only_the_kept_bits() -> None:
    numbers = np.random.default_rng(0).random(1000, np.float32)
    assert (bitround(numbers).view(np.uint32) & ((1 << (23 - KEEP_BITS)) - 1) == 0).all()


def test_a_nan_with_every_mantissa_bit_stays_nan() -> None:
    assert np.isnan(bitround(np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32))).all()


# --- what happens to files


def test_resuming_finds_only_what_is_missing(folder: ResultsFolder) -> None:
    every = list(folder.plan.shards)
    assert folder.missing_shards() == every
    for shard in every[:3]:
        write(folder, shard)
    told: list[tuple[int, int]] = []
    assert folder.missing_shards(lambda done, files: told.append((done, files))) == every[3:]
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert folder.notices == []


def test_damaged_and_foreign_shards_are_reported_and_redone(folder: ResultsFolder) -> None:
    fill(folder)
    plan, home = folder.plan, folder.path / "shards"
    cut, other, moved, empty, flipped, clean = (home / plan.shards[index].name for index in range(6))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    other_study(folder, other)
    shutil.copy(clean, moved)
    empty.write_bytes(b"")
    flip(flipped, flipped.stat().st_size - 3)
    whole = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in home.iterdir() if path.stem > "000004"}
    (home / f".{clean.name}.0123.part").write_bytes(b"half a shard")
    assert folder.missing_shards() == list(plan.shards[:5])
    said = "\n".join(folder.notices)
    for word in (
        "truncated or damaged",
        "belongs to another study",
        "shard 5 under another name",
        "1 unfinished",
        "not those",
    ):
        assert word in said
    assert list(home.glob(".*")) == []
    events = [json.loads(line)["event"] for line in (folder.path / "log.jsonl").read_text().splitlines()]
    assert events.count("shard_rejected") == 5
    fill(folder)
    assert folder.missing_shards() == []
    assert whole == {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in whole}, "whole ones stay"


def test_any_flipped_bit_of_a_shard_is_noticed(folder: ResultsFolder) -> None:
    fill(folder)
    shard = folder.plan.shards[2]
    path = folder.path / "shards" / shard.name
    whole = path.read_bytes()
    for place in np.random.default_rng(5).integers(0, len(whole), 150):
        flip(path, int(place))
        assert folder.missing_shards() == [shard], f"byte {place}"
        path.write_bytes(whole)
    assert folder.missing_shards() == []


def test_a_missing_block_is_reported_and_never_read_as_numbers(folder: ResultsFolder, study: Study) -> None:
    fill(folder)
    gone = [folder.plan.shards[index] for index in (2, 5)]
    for shard in gone:
        (folder.path / "shards" / shard.name).unlink()
    with pytest.warns(UserWarning, match=r"2 of \d+ blocks .*000002\.nc, 000005\.nc"):
        grid = open_results(folder.path)
    assert grid.attrs["missing_shards"] == 2
    for shard in gone:
        assert (grid["status"].values[shard.slices] == 0).all()
        assert (grid["phase"].values[shard.slices] == -1).all()
        assert np.isnan(grid["arithmetic_intensity"].values[shard.slices]).all()
    assert int((grid["status"] == 0).sum()) == sum(shard.size for shard in gone)
    assert grid["phase"].attrs["flag_meanings"].split()[0] == "not_computed"


@pytest.mark.parametrize("damage", ["cut", "other study"])
def test_a_damaged_block_is_refused_on_opening(folder: ResultsFolder, damage: str) -> None:
    fill(folder)
    path = folder.path / "shards" / folder.plan.shards[3].name
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        other_study(folder, path)
        path.write_bytes(path.read_bytes() + b"longer")
    with pytest.raises(InputError, match=r"000003\.nc is truncated or of another study"):
        open_results(folder.path)
    fill(folder)
    assert (open_results(folder.path)["status"] == 1).all()


def test_blocks_that_came_after_the_view_are_read(folder: ResultsFolder) -> None:
    write(folder, folder.plan.shards[0])
    folder.write_view()
    for shard in folder.missing_shards():
        write(folder, shard)
    assert (open_results(folder.path)["status"] == 1).all()


def test_another_studys_block_is_not_read_in_place_of_a_missing_one(
    folder: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder)
    name = folder.plan.shards[0].name
    (tmp_path / "other" / "shards").mkdir(parents=True)
    (folder.path / "shards" / name).rename(tmp_path / "other" / "shards" / name)
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(InputError, match="change to another directory"):
        open_results(folder.path)


def test_results_may_move_and_be_read_from_anywhere(
    folder: ResultsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder)
    with open_results(folder.path) as opened:
        before = opened.load()
    folder.close()
    moved = tmp_path / "elsewhere" / "renamed"
    moved.parent.mkdir()
    shutil.move(folder.path, moved)
    for directory, path in ((tmp_path / "elsewhere", Path("renamed")), (moved, Path("view.nc")), (ROOT, moved)):
        monkeypatch.chdir(directory)
        with open_results(path) as opened:
            assert opened.load().identical(before)


KILLED = """
import sys
from pathlib import Path
from kvwall.sweep.store import ResultsFolder, shards
from kvwall.sweep.study import Study
from tests.finished_sweeps import TWO_CHIPS, swept
from tests.test_store import TEXT, write
shards.MOST_POINTS = 30
folder = ResultsFolder.create_or_resume(Path(sys.argv[1]), Study.from_text(TEXT))
print("ready", flush=True)
while True:
    for shard in folder.plan.shards[:6]:
        write(folder, shard)
"""


def run(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def test_one_writer_at_a_time_and_a_killed_one_leaves_whole_shards(
    tmp_path: Path, study: Study, small_shards: None
) -> None:
    out = tmp_path / "out"
    writer = run(KILLED, str(out))
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with pytest.raises(InputError, match=rf"written by process {writer.pid} on {socket.gethostname()}: .*--out"):
            ResultsFolder.create_or_resume(out, study)
        while not (out / "shards" / "000003.nc").exists():
            assert writer.poll() is None
            time.sleep(0.005)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    with ResultsFolder.create_or_resume(out, study) as folder:
        missing = folder.missing_shards()
        assert not any("computed again" in notice for notice in folder.notices)
        assert len(folder.plan.shards) - 6 <= len(missing) <= len(folder.plan.shards) - 4
        fill(folder)
    values = open_results(out)["arithmetic_intensity"].values
    np.testing.assert_array_equal(values.ravel(), np.arange(study.space.size))


def test_the_folder_is_free_after_closing(tmp_path: Path, study: Study) -> None:
    with ResultsFolder.create_or_resume(tmp_path / "out", study), pytest.raises(InputError, match="is being written"):
        ResultsFolder.create_or_resume(tmp_path / "out", study)
    ResultsFolder.create_or_resume(tmp_path / "out", study).close()


def test_a_full_disk_keeps_what_is_finished(folder: ResultsFolder) -> None:
    first, second = folder.plan.shards[:2]
    write(folder, first)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(InputError, match=r"000001\.nc could not be written .*free some space"):
            write(folder, second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in (folder.path / "shards").iterdir()] == [first.name]
    assert folder.missing_shards()[0] == second


def test_a_disk_that_fills_on_the_last_flush_leaves_the_old_file(
    folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = folder.plan.shards[0]
    write(folder, shard)
    before = (folder.path / "shards" / shard.name).read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write(folder, shard)
    assert (folder.path / "shards" / shard.name).read_bytes() == before
    assert len(list((folder.path / "shards").iterdir())) == 1


# --- what is refused


def test_another_study_in_the_folder_is_refused_naming_what_changed(tmp_path: Path, study: Study) -> None:
    ResultsFolder.create_or_resume(tmp_path / "out", study).close()
    changed = TEXT.replace("[1, 2, 4, 8]", "[1, 2, 4]").replace("max = 0.1", "max = 0.2")
    with pytest.raises(InputError) as caught:
        ResultsFolder.create_or_resume(tmp_path / "out", Study.from_text(changed))
    said = str(caught.value)
    assert "axes.batch: [1, 2, 4, 8] -> [1, 2, 4]" in said
    assert "constraints" in said
    assert "0.2" in said
    assert "task" not in said
    assert "--out" in said
    # The refusal lets go of the folder.
    ResultsFolder.create_or_resume(tmp_path / "out", study).close()


def test_the_spec_file_is_what_the_hash_is_of(tmp_path: Path, study: Study) -> None:
    ResultsFolder.create_or_resume(tmp_path / "out", study).close()
    assert hashlib.sha256((tmp_path / "out" / "spec.json").read_bytes()).hexdigest() == study.spec_hash
    assert Study.from_text((tmp_path / "out" / "study.toml").read_text()).spec_hash == study.spec_hash


def test_unusable_folders_are_refused_with_a_remedy(tmp_path: Path, study: Study) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "spec.json").write_text('{"axes": ')
    for name, said in (
        ("file", "is a file"),
        ("file/below", "below a file"),
        ("thesis", r"chapter\.tex"),
        ("torn", "cannot be read"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            ResultsFolder.create_or_resume(tmp_path / name, study)
        assert "--out" in str(caught.value)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_folder_without_leave_to_write_is_refused(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=f"{os.strerror(code)}.*--out"):
        ResultsFolder.create_or_resume(tmp_path / "out", study)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path, study: Study) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(InputError, match=r"Permission denied.*--out"):
        ResultsFolder.create_or_resume(tmp_path / "out", study)


def test_what_would_not_fit_is_refused_before_it_starts(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvwall.sweep.store.folder.free_bytes", lambda _: 1000)
    with pytest.raises(InputError, match="are free"):
        ResultsFolder.create_or_resume(tmp_path / "out", study)
    assert not (tmp_path / "out").exists()


def test_the_estimate_bounds_what_incompressible_results_take(tmp_path: Path) -> None:
    text = TEXT.replace("[1, 2, 4, 8]", "{range = [1, 400, 1]}")
    study = Study.from_text(text)
    random = np.random.default_rng(2)
    with ResultsFolder.create_or_resume(tmp_path / "out", study) as folder:
        estimate = folder.plan.required_bytes(tuple(folder.missing_shards()))
        for shard in folder.missing_shards():
            bits = random.integers(0, 2**31 - 2**24, shard.shape, dtype=np.uint32)
            values = dict.fromkeys(study.keep, bits.view(np.float32))
            folder.write_shard(
                shard, values | {"phase": random.integers(0, 3, shard.shape)}, np.ones(shard.shape, np.int8)
            )
        folder.write_view()
        taken = sum(path.stat().st_size for path in folder.path.rglob("*.nc"))
        assert folder.plan.required_bytes(tuple(folder.missing_shards())) < estimate / 2
    assert estimate / 3 < taken <= estimate


def test_opening_what_is_not_there_says_what_to_do(tmp_path: Path, folder: ResultsFolder) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_results(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no front\.nc"):
        open_front(folder.path)
    (folder.path / "view.nc").write_bytes(b"not netCDF")
    with pytest.raises(InputError, match="cannot be read"):
        open_results(folder.path)


# --- attributes


@pytest.mark.parametrize("value", [None, True, {"a": [1]}, Path("/a"), [1, "b"], ("x",), 3, 2.5, "text", np.float32(1)])
def test_attributes_are_of_types_that_netcdf_takes(value: object) -> None:
    stored = attribute(value)
    file = netCDF4.Dataset("memory.nc", "w", diskless=True)
    try:
        file.setncattr("stored", stored)
    finally:
        file.close()
    assert isinstance(stored, str) == (not isinstance(value, int | float | np.generic) or isinstance(value, bool))


def test_units_are_words_that_udunits_knows(study: Study) -> None:
    known = {"1", "byte", "bit", "s", "J"}
    written = [metric_attributes(metric, study) for metric in metric_register("aggregate", "ceiling").values()]
    written += [axis_attributes(axis) for axis in AXES.values() if axis.kind in ("int", "real")]
    for attributes in written:
        words = {word.rstrip("-0123456789") or word for word in str(attributes["units"]).split()}
        assert words <= known, attributes
        assert attributes["long_name"]


def test_files_carry_their_provenance(folder: ResultsFolder, study: Study) -> None:
    fill(folder)
    with (
        netCDF4.Dataset(folder.path / "shards" / "000001.nc") as shard,
        netCDF4.Dataset(folder.path / "view.nc") as view,
    ):
        for file in (shard, view):
            assert file.spec_hash == study.spec_hash
            assert file.study_toml == TEXT
            assert file.Conventions.startswith("CF-1.12")
            assert json.loads(file.argv) == sys.argv
            assert len(file.catalogue_sha256) == 64
            assert {"title", "summary", "source", "history", "date_created", "id", "platform"} <= set(file.ncattrs())
            status = file["status"]
            assert status.flag_values.dtype == np.int8
            assert len(status.flag_values) == len(status.flag_meanings.split())
            assert "_FillValue" not in status.ncattrs()
            assert "_FillValue" not in file["retention"].ncattrs()
            assert file["arithmetic_intensity"].evidence == "derived"
        assert int(shard.shard_index) == 1
        assert shard["arithmetic_intensity"].filters()["shuffle"] == shard["arithmetic_intensity"].filters()["zlib"]


def test_large_variables_are_shuffled_and_deflated(tmp_path: Path, study: Study) -> None:
    larger = Study.from_text(TEXT.replace("[1, 2, 4, 8]", "{range = [1, 40, 1]}"))
    with ResultsFolder.create_or_resume(tmp_path / "out", larger) as folder:
        fill(folder)
    with netCDF4.Dataset(tmp_path / "out" / "shards" / "000000.nc") as file:
        filters = file["arithmetic_intensity"].filters()
    assert (filters["zlib"], filters["complevel"], filters["shuffle"]) == (True, 1, True)


@pytest.mark.skipif(shutil.which("ncdump") is None, reason="needs the netCDF programs (Debian: netcdf-bin)")
def test_stock_ncdump_reads_the_view(folder: ResultsFolder) -> None:
    fill(folder)
    command = ["ncdump", "-v", "hardware,phase,tokens_per_second_per_device", str(folder.path / "view.nc")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'hardware = "paper/h100", "paper/b200", "paper/mi300x"' in printed
    assert printed.rstrip().endswith(f"{folder.study.space.size - 1} ;\n}}")


def test_with_dask_the_chunks_are_the_shards(folder: ResultsFolder) -> None:
    pytest.importorskip("dask")
    fill(folder)
    grid = open_results(folder.path)
    assert [sizes[0] for sizes in grid["status"].chunks] == list(folder.plan.block)


# --- the log


def test_the_log_is_strict_json_a_line_even_after_a_torn_one(folder: ResultsFolder) -> None:
    folder.log("started", points=np.int64(3), rate=float("nan"), where=Path("/a"), axes={"batch": (1, np.float32(2))})
    with (folder.path / "log.jsonl").open("a") as file:
        file.write('{"torn": ')
    folder.log("ended")
    first, torn, last = (folder.path / "log.jsonl").read_text().splitlines()
    started = json.loads(first)
    assert started["points"] == 3
    assert started["rate"] is None
    assert started["where"] == "/a"
    assert started["axes"] == {"batch": [1, 2.0]}
    assert torn == '{"torn": '
    assert json.loads(last)["event"] == "ended"


@pytest.mark.parametrize("name", ["front.nc", "summary.nc", "view.nc"])
def test_a_bit_that_has_flipped_is_noticed_and_mended(name: str, tmp_path: Path) -> None:
    results = swept(TWO_CHIPS, tmp_path / "results")
    path, opened = results / name, {"front.nc": open_front, "summary.nc": open_summary, "view.nc": open_results}[name]
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 40).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            opened(results)
    for stump in (b"", whole[:-1]):
        path.write_bytes(stump)
        with pytest.raises(InputError, match=f"{name} cannot be read"):
            opened(results)


@pytest.mark.parametrize(
    ("name", "other"), [("front.nc", "summary.nc"), ("summary.nc", "view.nc"), ("view.nc", "front.nc")]
)
def test_a_file_under_anothers_name_is_noticed(name: str, other: str, tmp_path: Path) -> None:
    results = swept(TWO_CHIPS, tmp_path / "results")
    shutil.copy(results / other, results / name)
    with pytest.raises(InputError, match="another file under this name"):
        {"front.nc": open_front, "summary.nc": open_summary, "view.nc": open_results}[name](results)


def test_a_damaged_checkpoint_counts_as_none(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, "hash", {"one": np.arange(50), "two": np.ones(3)})
    path = tmp_path / checkpoint.NAME
    assert checkpoint.load(tmp_path, "hash").keys() == {"one", "two"}
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 8]) + whole[place + 1 :])
        found = checkpoint.load(tmp_path, "hash")
        assert found is None or found.keys() == {"one", "two"}
