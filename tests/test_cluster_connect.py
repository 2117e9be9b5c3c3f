"""What is said where workers cannot be had."""

from __future__ import annotations

import logging

import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.progress import Silent
from kvwall.sweep.run import run_sweep
from kvwall.sweep.study import Study
from tests.dask_processes import scheduler
from tests.finished_sweeps import SMALL as STUDY

pytest.importorskip("distributed")
from kvwall.sweep.cluster import agreement, cluster_asked, connect  # noqa: E402 - after the skip


@pytest.fixture
def study_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return str(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2", "--dask", "tcp://127.0.0.1:1"], "give one of them"),
        (["--workers", "0"], "from 1 to 512"),
        (["--workers", "513"], "from 1 to 512"),
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


class Kills(Silent):
    """Kills a process as soon as workers are waited for."""

    def __init__(self, process):
        self._process = process

    def update(self, done):
        self._process.kill()


def test_a_scheduler_that_dies_is_said_to_be_gone(tmp_path):
    where = tmp_path / "scheduler.json"
    with scheduler(where) as process, pytest.raises(InputError, match="the scheduler is gone"):
        run_sweep(Study.from_text(STUDY), tmp_path / "out", Kills(process), cluster_asked(None, str(where)))
    assert not (tmp_path / "out" / agreement.PROBE).exists()


def test_dask_prints_no_logs_while_a_run_uses_it():
    names = ("distributed", "distributed.client", "distributed.protocol.core", "tornado.application")
    before = [logging.getLogger(name).level for name in names]
    with connect._silent():
        assert not any(logging.getLogger(name).isEnabledFor(logging.CRITICAL) for name in names)
    assert [logging.getLogger(name).level for name in names] == before


def test_a_dry_run_needs_workers_to_count(study_file, tmp_path, capsys):
    where = tmp_path / "scheduler.json"
    with scheduler(where):
        assert run(["sweep", study_file, "--dry-run", "--dask", str(where)]) == 2
    assert "no worker is there yet" in capsys.readouterr().err


def test_workers_that_cannot_be_started_are_no_traceback(study_file, tmp_path, monkeypatch, capsys):
    def refused(**asked):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster", refused)
    assert run(["sweep", study_file, "--out", str(tmp_path / "out"), "--workers", "2"]) == 2
    assert "--workers 2: they could not be started on this machine (Nanny failed to start.)" in capsys.readouterr().err


class Stuck:
    """A local cluster that cannot be reached, nor closed."""

    def __init__(self, **asked):
        pass

    def close(self):
        raise TimeoutError


def test_workers_that_do_not_answer_are_no_traceback(monkeypatch):
    def silent(where, **how):
        raise OSError("timed out")

    monkeypatch.setattr("distributed.LocalCluster", Stuck)
    monkeypatch.setattr("distributed.Client", silent)
    with pytest.raises(InputError, match=r"the workers of this machine do not answer within 15 s \(timed out\): give"):
        cluster_asked(2, None).connected().__enter__()
