"""A sweep by workers: the same numbers as a local one, whatever happens to the workers."""

import json
import logging
import os
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

from kvwall.sweep import dry_run, parts
from kvwall.sweep import run as sweep_run
from kvwall.sweep.cli import run
from kvwall.sweep.progress import Silent
from kvwall.sweep.run import run_sweep
from kvwall.sweep.study import Study
from kvwall.sweep.tasks import TASKS, Kernels, Workplace
from tests.compiled_once import compiled_once  # noqa: F401 - a fixture
from tests.dask_processes import dask_process, wait_until
from tests.finished_sweeps import SMALL as STUDY
from tests.worker_traps import SIZES

pytest.importorskip("distributed")
from kvwall.sweep.cluster import agreement, cluster_asked, connect, window  # noqa: E402 - after the skip

pytestmark = [pytest.mark.made_fast, pytest.mark.usefixtures("compiled_once")]
PRELOAD = str(Path(__file__).parent / "worker_traps.py")


@pytest.fixture(scope="module", autouse=True)
def _small_pieces():
    with pytest.MonkeyPatch.context() as patch, jax.debug_nans(False):  # which workers do not look for: another kernel
        patch.setenv("XLA_FLAGS", "")  # of workers: what this process asks of kernels that are tested is XLA's default
        for (module, name), value in SIZES.items():
            patch.setattr(module, name, value)
        yield


@pytest.fixture(scope="module")
def traps(tmp_path_factory):
    return tmp_path_factory.mktemp("traps")


@pytest.fixture(scope="module")
def address(traps):
    """The scheduler of two workers, which gives a task up as soon as a worker has died under it."""
    import dask.config
    from distributed import LocalCluster

    trapped = {"KVWALL_TRAPS": str(traps), "PYTHONPATH": str(Path(__file__).parent.parent)}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
            silence_logs=logging.CRITICAL,
            env={"NPROC": "1"} | trapped,
            preload=[PRELOAD],
        ) as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def finished(tmp_path_factory, compiled_once):  # noqa: F811 - the fixture
    """A local run."""
    folder = tmp_path_factory.mktemp("results") / "local"
    return folder, run_sweep(Study.from_text(STUDY), folder)


@pytest.fixture
def study_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return str(path)


def assert_same_numbers(folder, other):
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.nc"))
    assert names == sorted(path.relative_to(other) for path in other.rglob("*.nc"))
    assert len(names) >= 8
    for name in names:
        with xr.open_dataset(folder / name) as one, xr.open_dataset(other / name) as two:
            own = {"errors": "ignore"}  # a checksum covers the time of writing too
            first, second = one.drop_vars("checksum", **own), two.drop_vars("checksum", **own)
            xr.testing.assert_identical(first.drop_attrs(), second.drop_attrs())
            assert one.attrs["id"] == two.attrs["id"]


def events(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class InProcess:
    """Does tasks here, one after another, as if by so many at once."""

    compile_seconds = 0.0

    def __init__(self, place, parallel):
        self.parallel = parallel
        self._place = place

    def start(self):
        """Nothing to do."""

    def run(self, kind, items):
        self._place.kernels.make_ready(kind)
        for item in items:
            yield item, TASKS[kind].work(self._place, item)


def test_parts_of_passes_add_up_to_the_whole(tmp_path):
    study = Study.from_text(STUDY)
    place = Workplace(study, tmp_path, Kernels(study))
    place.kernels.stream = stream = sweep_run.Stream(sweep_run.problem_of(study))
    whole = stream.run()
    assert whole.rows > 10
    for parallel in (1, 3, 50):
        found = stream.run(passes=parts.PassesInParts(stream, InProcess(place, parallel)))
        for name, array in whole.front.arrays().items():
            np.testing.assert_array_equal(found.front.arrays()[name], array)
        assert repr(found.summary) == repr(whole.summary)


def test_workers_of_this_machine_give_what_a_local_run_gives(traps, tmp_path, study_file, monkeypatch, capsys):
    import dask.config

    monkeypatch.setenv("KVWALL_TRAPS", str(traps))
    with dask.config.set({"distributed.worker.preload": [PRELOAD]}):
        assert run(["sweep", study_file, "--out", str(tmp_path / "local"), "--json"]) == 0
        assert run(["sweep", study_file, "--out", str(tmp_path / "by"), "--workers", "2", "--json"]) == 0
    captured = capsys.readouterr()
    local, by = map(json.loads, captured.out.splitlines())
    assert "100 %" in captured.err
    assert "2 workers" in captured.err
    for name in ("points", "feasible", "admissible", "front_size", "stored_points", "statuses"):
        assert by[name] == local[name]
    assert_same_numbers(tmp_path / "local", tmp_path / "by")


class Stops(Silent):
    """Stops a run in a stage, at its second report."""

    def __init__(self, stage):
        self._stage, self._here, self._reports = stage, False, 0

    def stage(self, name, total, unit, done=0):
        self._here = self._stage in name

    def update(self, done):
        self._reports += self._here
        if self._reports == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "kills",  # on ranges that are always there: how later ones are cut depends on how many workers are there
    [
        {"shard-3": "shard 000003.nc", "rows-0": "the first pass over rows 0 to"},
        pytest.param({"columns-0": "the second pass over rows 0 to"}, marks=pytest.mark.long),
    ],
)
def test_a_killed_worker_loses_nothing_and_doubles_nothing(kills, finished, traps, address, tmp_path):
    for trap in kills:
        (traps / f"once-kill-{trap}").touch()
    result = run_sweep(Study.from_text(STUDY), tmp_path / "out", cluster=cluster_asked(None, address))
    assert list(traps.iterdir()) == []
    assert_same_numbers(finished[0], tmp_path / "out")
    assert (result.points, result.front_size) == (finished[1].points, finished[1].front_size)
    failed = [event["task"] for event in events(tmp_path / "out") if event["event"] == "task_failed"]
    for name in kills.values():
        assert any(task.startswith(name) for task in failed)
    assert sum(event["event"] == "worker_lost" for event in events(tmp_path / "out")) >= 1
    assert not list((tmp_path / "out").rglob("*.part"))
    assert not (tmp_path / "out" / agreement.PROBE).exists()


@pytest.mark.parametrize(
    ("stage", "workers_first"),
    [("storing", True), pytest.param("streaming", False, marks=pytest.mark.long), ("streaming", True)],
)
def test_a_run_begun_one_way_is_finished_the_other(stage, workers_first, finished, address, tmp_path):
    study, cluster = Study.from_text(STUDY), cluster_asked(None, address)
    first, second = (cluster, None) if workers_first else (None, cluster)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(study, tmp_path / "out", Stops(stage), first)
    assert not (tmp_path / "out" / "front.nc").exists()
    run_sweep(study, tmp_path / "out", cluster=second)
    assert_same_numbers(finished[0], tmp_path / "out")


@pytest.mark.parametrize(
    ("trap", "words"),
    [("fail", "failed 3 times (RuntimeError: a trap)"), pytest.param("kill", "killed", marks=pytest.mark.long)],
)
def test_a_task_that_never_works_is_named_and_the_rest_is_kept(
    trap, words, finished, traps, address, study_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(window, "PER_THREAD", 1)  # two are under way: this one is sent when others are stored
    (traps / f"{trap}-shard-4").touch()
    assert run(["sweep", study_file, "--out", str(tmp_path / "out"), "--dask", address]) == 2
    (traps / f"{trap}-shard-4").unlink()
    said = capsys.readouterr().err
    assert f"shard 000004.nc {words}" in said
    assert "what is finished is kept" in said
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "shards").glob("*.nc")}
    assert kept
    run_sweep(Study.from_text(STUDY), tmp_path / "out")
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert_same_numbers(finished[0], tmp_path / "out")


def test_a_finished_run_needs_no_workers(finished, monkeypatch):
    monkeypatch.setattr(connect, "_local", None)
    again = run_sweep(Study.from_text(STUDY), finished[0], cluster=cluster_asked(2, None))
    assert again.front_size == finished[1].front_size


def shards_of(folder):
    found = []
    for path in sorted((folder / "shards").glob("*.nc")):
        with xr.open_dataset(path) as shard:
            found.append(shard.attrs)
    return found


def test_shards_say_which_run_made_them_though_workers_are_used_again(address, tmp_path, monkeypatch):
    cluster = cluster_asked(None, address)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    run_sweep(Study.from_text(STUDY), tmp_path / "first", cluster=cluster)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setattr("sys.argv", ["another", "command"])
    renamed = Study.from_text(STUDY.replace('name = "', 'name = "renamed-'))
    run_sweep(renamed, tmp_path / "second", cluster=cluster)
    first, second = shards_of(tmp_path / "first"), shards_of(tmp_path / "second")
    assert {shard["date_created"] for shard in first} == {"1970-01-02T00:00:00+00:00"}
    assert not any(shard["date_created"].startswith("1970") for shard in second)
    assert {shard["history"].partition(" ")[2] for shard in second} == {"another command"}
    assert {shard["study_name"] for shard in second} == {renamed.name}
    assert {shard["spec_hash"] for shard in first} == {shard["spec_hash"] for shard in second}


def test_a_late_worker_that_disagrees_is_left_out_and_one_of_more_threads_is_not(finished, traps, address, tmp_path):
    (tmp_path / "kvwall").mkdir()  # a kvwall without what is needed
    (tmp_path / "kvwall" / "__init__.py").touch()
    cluster, worker = cluster_asked(None, address), ("worker", address, "--nthreads", "1", "--no-nanny")
    cut_small = {"KVWALL_TRAPS": str(traps), "NPROC": "3"}
    with dask_process(*worker, PYTHONPATH=str(tmp_path)), dask_process(*worker, "--preload", PRELOAD, **cut_small):
        wait_until(lambda: cluster.size().workers == 4)
        result = run_sweep(Study.from_text(STUDY), tmp_path / "out", cluster=cluster)
    assert_same_numbers(finished[0], tmp_path / "out")
    said = " ".join(result.notices)
    assert "cannot import kvwall (No module named 'kvwall.sweep')" in said
    refused = [event for event in events(tmp_path / "out") if event["event"] == "worker_refused"]
    assert len(refused) == 1
    wait_until(lambda: cluster.size().workers == 2)


def test_a_dry_run_counts_what_there_is(address, study_file, tmp_path, monkeypatch, capsys):
    assert cluster_asked(None, address).size() == (2, 1, min(2, os.cpu_count()))
    monkeypatch.setattr(dry_run, "_trial", lambda problem, *, evaluates_all: (1.0, 100.0, None, None))
    monkeypatch.setattr(dry_run, "_storing", lambda study, problem, plan: ((), 0.0, 0.0))
    for asked in (["--workers", "2"], ["--dask", address]):
        assert run(["sweep", study_file, "--out", str(tmp_path / "out"), "--dry-run", "--json", *asked]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["processes"] == 2
        assert plan["streaming_seconds"] == 100.0 * os.cpu_count() / min(2, os.cpu_count())
