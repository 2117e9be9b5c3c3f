"""A sweep by workers: the same numbers as a local one, whatever happens to the workers."""

import dataclasses
import json
import logging
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

from kvwall.spaces.errors import InputError
from kvwall.sweep import parts
from kvwall.sweep.cli import run
from kvwall.sweep.progress import Silent
from kvwall.sweep.run import run_sweep
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study
from kvwall.sweep.tasks import TASKS, Workplace
from tests.test_run import STUDY
from tests.worker_traps import SIZES, USUAL

pytest.importorskip("distributed")
from kvwall.sweep.cluster import cluster_asked, connect, worker  # noqa: E402 - after the skip

pytestmark = pytest.mark.xdist_group("cluster")


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
            env=worker.ONE_THREAD | trapped,
            preload=[str(Path(__file__).parent / "worker_traps.py")],
        ) as cluster,
    ):
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A local run."""
    folder = tmp_path_factory.mktemp("results") / "local"
    return folder, run_sweep(Study.from_text(STUDY), folder)


@pytest.fixture
def study_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return str(path)


def assert_same_numbers(folder, other, least=8):
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.nc"))
    assert names == sorted(path.relative_to(other) for path in other.rglob("*.nc"))
    assert len(names) >= least
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
        self._place.make_ready(kind)
        for item in items:
            yield item, TASKS[kind].work(self._place, item)


def test_parts_of_passes_add_up_to_the_whole(tmp_path):
    place = Workplace(Study.from_text(STUDY), tmp_path)
    place.stream = Stream(place.problem, points_per_call=6)
    whole = place.stream.run()
    assert whole.rows > 10
    for parallel in (1, 3, 50):
        found = place.stream.run(passes=parts.PassesInParts(place.stream, InProcess(place, parallel)))
        for name, array in whole.front.arrays().items():
            np.testing.assert_array_equal(found.front.arrays()[name], array)
        assert repr(found.summary) == repr(whole.summary)


def test_workers_of_this_machine_give_what_a_local_run_gives(tmp_path, study_file, capsys):
    with pytest.MonkeyPatch.context() as patch:  # these workers know nothing of small pieces
        for (module, name), value in USUAL.items():
            patch.setattr(module, name, value)
        assert run(["sweep", study_file, "--out", str(tmp_path / "local"), "--json"]) == 0
        assert run(["sweep", study_file, "--out", str(tmp_path / "by"), "--workers", "2", "--json"]) == 0
    captured = capsys.readouterr()
    local, by = map(json.loads, captured.out.splitlines())
    assert "100 %" in captured.err
    assert "2 workers" in captured.err
    for name in ("points", "feasible", "admissible", "front_size", "stored_points", "statuses"):
        assert by[name] == local[name]
    assert_same_numbers(tmp_path / "local", tmp_path / "by", least=4)


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


def test_a_killed_worker_loses_nothing_and_doubles_nothing(finished, traps, address, tmp_path):
    (traps / "once-kill-shard-3").touch()
    (traps / "once-kill-rows-0").touch()  # how later ranges are cut depends on how many workers are there
    (traps / "once-kill-columns-0").touch()
    result = run_sweep(Study.from_text(STUDY), tmp_path / "out", cluster=cluster_asked(None, address))
    assert list(traps.iterdir()) == []
    assert_same_numbers(finished[0], tmp_path / "out")
    assert (result.points, result.front_size) == (finished[1].points, finished[1].front_size)
    failed = [event["task"] for event in events(tmp_path / "out") if event["event"] == "task_failed"]
    assert "shard 000003.nc" in failed
    assert sum(event["event"] == "worker_lost" for event in events(tmp_path / "out")) >= 1
    assert not list((tmp_path / "out").rglob("*.part"))
    assert not (tmp_path / "out" / worker.PROBE).exists()


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
    trap, words, finished, traps, address, study_file, tmp_path, capsys
):
    (traps / f"{trap}-shard-2").touch()
    assert run(["sweep", study_file, "--out", str(tmp_path / "out"), "--dask", address]) == 2
    (traps / f"{trap}-shard-2").unlink()
    said = capsys.readouterr().err
    assert f"shard 000002.nc {words}" in said
    assert "what is finished is kept" in said
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "shards").glob("*.nc")}
    assert "000000.nc" in {path.name for path in kept}
    run_sweep(Study.from_text(STUDY), tmp_path / "out")
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    assert_same_numbers(finished[0], tmp_path / "out")


def test_a_finished_run_needs_no_workers(finished, monkeypatch):
    monkeypatch.setattr(connect, "_local", None)
    again = run_sweep(Study.from_text(STUDY), finished[0], cluster=cluster_asked(2, None))
    assert again.front_size == finished[1].front_size


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2", "--dask", "tcp://127.0.0.1:1"], "give one of them"),
        (["--workers", "0"], "at least one"),
        (["--dask", "tcp://127.0.0.1:1"], "no scheduler answers at tcp://127.0.0.1:1"),
        (["--dask", "none.json"], "give an address such as tcp://scheduler:8786"),
        (["--dask", "nonsense://127.0.0.1:1"], "no scheduler answers at nonsense://127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_refused(options, words, study_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(connect, "_SECONDS_TO_REACH", 1)
    assert run(["sweep", study_file, "--out", str(tmp_path / "out"), *options]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "shards").exists() or not list((tmp_path / "out" / "shards").iterdir())


def test_a_search_by_bounds_has_no_workers(tmp_path):
    study = Study.from_text(STUDY.split("[sweep]")[0] + '[sweep]\nstore = "pareto"')
    with pytest.raises(InputError, match="leave --workers and --dask out"):
        run_sweep(study, tmp_path / "out", cluster=cluster_asked(2, None))


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'kvwall\[dask\]'"):
        cluster_asked(2, None)


@pytest.fixture
def ticket(tmp_path):
    study = Study.from_text(STUDY)
    (tmp_path / worker.PROBE).write_text("this run")
    return worker.Ticket("this run", Study.from_text(STUDY), study.spec(), study.spec_hash, tmp_path, ())


def test_a_worker_that_agrees_says_nothing(ticket):
    assert worker.disagreements(ticket) == []


def test_a_worker_with_other_records_says_which(ticket):
    spec = json.loads(json.dumps(ticket.spec))
    spec["catalogue"]["hardware"]["mi300x"] = "another"
    (said,) = worker.disagreements(dataclasses.replace(ticket, spec=spec, spec_hash="another"))
    assert 'catalogue.hardware.mi300x: "another" -> ' in said


def test_a_worker_without_the_folder_says_so(ticket, monkeypatch):
    monkeypatch.setattr(worker, "_SECONDS_FOR_PROBE", 0.0)
    (said,) = worker.disagreements(dataclasses.replace(ticket, run="another run"))
    assert "does not see" in said
    assert "--out" in said


def test_a_worker_that_cannot_read_the_study_says_so(ticket, tmp_path):
    chip = tmp_path / "chip.toml"
    chip.write_text((Path(__file__).parent.parent / "spaces/catalog/hardware/h100-sxm.toml").read_text())
    study = Study.from_text(STUDY.replace('"h100-sxm"', f'"{chip}"', 1))
    chip.unlink()
    (said,) = worker.disagreements(dataclasses.replace(ticket, study=study))
    assert "cannot read the study" in said
