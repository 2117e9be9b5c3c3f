"""What a run does when workers, tasks or the scheduler fail, on a cluster that only pretends."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.progress import Silent

pytest.importorskip("distributed")
from distributed.client import ClosedClientError  # noqa: E402 - after the skip

from kvwall.sweep.cluster import roster as roster_module  # noqa: E402
from kvwall.sweep.cluster import window as window_module  # noqa: E402
from kvwall.sweep.cluster.agreement import Machine, Ticket  # noqa: E402
from kvwall.sweep.cluster.roster import Roster  # noqa: E402
from kvwall.sweep.cluster.window import Window  # noqa: E402
from kvwall.sweep.cluster.worker import Disagreement, Done  # noqa: E402

DONE = Done("result", 0.0, 0.0, "")


class Landed:
    """A task that has ended: with a result, or with an error."""

    def __init__(self, key, end):
        self.key = key
        self._end = end

    def add_done_callback(self, call):
        if self._end is not None:
            call(self)

    def result(self, timeout):
        if isinstance(self._end, Exception):
            raise self._end
        return self._end

    def done(self):
        return self._end is not None


class Cluster:
    """A client whose tasks end one after the other as `ends` says; None is a task that never does."""

    status = "running"

    def __init__(self, workers, ends=()):
        self.workers = dict.fromkeys(workers, 1)
        self.ends = list(ends)
        self.allowed = []
        self.cancelled = []

    def nthreads(self):
        return dict(self.workers)

    def submit(self, function, payload, *, key, workers, **how):
        assert function is pickle.loads
        self.allowed.append(workers)
        return Landed(key, self.ends.pop(0))

    def processing(self):
        return {"a": [f"kvwall-shard-run-{number}" for number in range(1, len(self.allowed) + 1)], "b": []}

    def cancel(self, futures, force):
        self.cancelled += futures

    def run(self, function, payload, on_error):
        return {worker: ModuleNotFoundError("No module named 'kvwall'") for worker in self.workers if worker == "a"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    for module in (roster_module, window_module):
        monkeypatch.setattr(module, "SECONDS_BETWEEN_LOOKS", 0.001)


@pytest.fixture
def folder():
    events = []
    return SimpleNamespace(events=events, notices=[], log=lambda event, **facts: events.append((event, facts)))


@pytest.fixture
def ticket(tmp_path):
    return Ticket("run", Machine.here(), b"", {}, "", tmp_path, (), {})


@pytest.fixture
def results(folder, ticket):
    def over(cluster, items=(3,)):
        roster = Roster(cluster, folder, Silent(), own=False)
        roster.wait()
        return [item for item, _ in Window(roster, folder.log, ticket, "shard").results(items)]

    return over


def named(folder, event):
    return [facts for name, facts in folder.events if name == event]


def test_a_task_that_takes_too_long_is_sent_to_another_worker_too(results, folder, monkeypatch):
    monkeypatch.setattr(window_module, "_PATIENCE", 0.0)
    cluster = Cluster("ab", [None, DONE])
    assert results(cluster) == [3]
    assert cluster.allowed == [None, ["b"]]
    assert [facts["worker"] for facts in named(folder, "task_sent_again")] == ["a"]
    assert [future.key for future in cluster.cancelled] == ["kvwall-shard-run-1"]


def test_a_worker_that_disagrees_gets_no_more_tasks(results, folder):
    cluster = Cluster("ab", [Disagreement("a", ("worker 1 has jax 0.1",)), DONE, DONE])
    assert results(cluster, [1, 2]) == [2, 1]
    assert cluster.allowed == [None, None, ["b"]]
    assert folder.notices == ["worker 1 has jax 0.1: it was not used"]
    assert named(folder, "worker_refused") == [{"worker": "a", "reason": "worker 1 has jax 0.1", "workers": 1}]
    assert named(folder, "task_failed") == []


def test_a_worker_without_kvwall_gets_no_more_tasks(results, folder):
    cluster = Cluster("ab", [ModuleNotFoundError("No module named 'kvwall'"), DONE])
    assert results(cluster) == [3]
    assert cluster.allowed == [None, ["b"]]
    (said,) = folder.notices
    assert "worker a cannot import kvwall (No module named 'kvwall')" in said


def test_an_import_that_fails_where_kvwall_is_counts_as_a_failure_of_the_task(results):
    with pytest.raises(InputError, match=r"000003.nc failed 3 times \(ImportError: libsomething"):
        results(Cluster("b", [ImportError("libsomething.so")] * 3))


def test_where_no_worker_is_left_that_agrees_each_is_named(results):
    workers = [f"w{number}" for number in range(7)]
    with pytest.raises(InputError) as found:
        results(Cluster(workers, [Disagreement(worker, (f"{worker} is old", "and slow")) for worker in workers]))
    assert found.value.faults == (*(f"w{number} is old; and slow" for number in range(5)), "and 2 more workers")


def test_a_task_whose_only_worker_has_gone_is_sent_to_one_that_came(results, folder):
    cluster = Cluster("ab", [Disagreement("a", ("old",)), None, DONE])
    submit = cluster.submit

    def then_replaced(*what, **how):
        if how["workers"] == ["b"]:
            cluster.workers = {"a": 1, "c": 1}
        return submit(*what, **how)

    cluster.submit = then_replaced
    assert results(cluster) == [3]
    assert cluster.allowed == [None, ["b"], ["c"]]


def test_a_refused_worker_that_was_started_again_is_asked_again(folder):
    cluster = Cluster("ab")
    roster = Roster(cluster, folder, Silent(), own=False)
    roster.wait()
    roster.refuse("a", ["old"])
    assert (roster.workers, roster.threads, roster.all_may) == (["b"], 1, False)
    for there in ("b", "ab"):
        cluster.workers = dict.fromkeys(there, 1)
        roster.look_now()
    assert (roster.workers, roster.all_may) == (["a", "b"], True)


def test_no_worker_for_too_long_stops_the_run(folder, monkeypatch):
    monkeypatch.setattr(roster_module, "_SECONDS_WITHOUT_WORKERS", {False: 0.0})
    with pytest.raises(InputError, match="no worker has been there for 0 s: start some with `dask worker`"):
        Roster(Cluster(""), folder, Silent(), own=False).wait()


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ("nthreads", OSError("reset by peer")),
        ("submit", ClosedClientError("reset by peer")),
        ("processing", OSError("reset by peer")),
        ("run", OSError("reset by peer")),
    ],
)
def test_a_scheduler_that_is_gone_is_said_to_be_whatever_was_asked_of_it(asked, fault, results, monkeypatch):
    monkeypatch.setattr(window_module, "_PATIENCE", 0.0)
    cluster = Cluster("ab", [ImportError() if asked == "run" else None] * 2)

    def gone(*what, **how):
        raise fault

    monkeypatch.setattr(cluster, asked, gone)
    monkeypatch.setattr(cluster, "cancel", gone)
    with pytest.raises(InputError, match=r"the scheduler is gone \(reset by peer\): start it again"):
        results(cluster)
