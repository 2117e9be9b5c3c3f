"""Reaching the workers: a cluster of processes on this machine, or one that exists."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.keeping import REDUCED, STORES
from kvwall.sweep.store import ResultsFolder
from kvwall.sweep.store.atomic import write_atomically

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

    from kvwall.sweep.cluster.executor import DaskExecutor
    from kvwall.sweep.cluster.worker import Ticket
    from kvwall.sweep.executor import Executor
    from kvwall.sweep.progress import Watch
    from kvwall.sweep.study import Study

_SECONDS_TO_REACH: Final = 15
_LOCAL_DEATHS: Final = 1
"""Workers that a task may lose on a local cluster before Dask gives it up; we then try it once more."""
_CARRIED: Final = ("SOURCE_DATE_EPOCH",)
"""Variables of the environment that workers must share."""


def cluster_asked(workers: int | None, address: str | None) -> Cluster | None:
    """The cluster of --workers or --dask; None where neither is given. Raises InputError where both are."""
    if workers is None and address is None:
        return None
    if workers is not None and address is not None:
        raise InputError("--workers starts a cluster on this machine and --dask uses one that exists: give one of them")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: at least one is needed")
    if importlib.util.find_spec("distributed") is None:
        raise InputError("--workers and --dask need Dask, which is not installed: pip install 'kvwall[dask]'")
    return Cluster(workers, address)


class Cluster:
    """Workers for runs, reached when a run needs them."""

    def __init__(self, workers: int | None, address: str | None) -> None:
        self.workers = workers
        self.address = address

    def check(self, study: Study) -> None:
        """Raises InputError where workers have no part in such a study."""
        if not STORES[study.store].summary:
            raise InputError(
                f'store = "{study.store}" finds the front by bounds, in this process: leave --workers and --dask out, '
                f'or evaluate every design with store = "{REDUCED}"'
            )

    @contextmanager
    def connected(self) -> Iterator[Client]:
        """A client of the cluster. Raises InputError where no scheduler answers."""
        if self.address is None:
            with _local(self.workers or 1) as local, _client(local) as client:
                yield client
        else:
            with _client(_scheduler(self.address), self.address) as client:
                yield client

    def size(self) -> tuple[int, int]:
        """(tasks done at once, cores that do them). Raises InputError where no scheduler or worker is there."""
        if self.address is None:
            workers = self.workers or 1
            return workers, min(workers, os.cpu_count() or 1)
        with self.connected() as client:
            threads = sum(client.nthreads().values())
        if not threads:
            raise InputError(f"--dask {self.address}: no worker is there yet, so how long they take cannot be said")
        return threads, threads

    @contextmanager
    def employed(self, study: Study, folder: ResultsFolder, watch: Watch) -> Iterator[Executor]:
        """An executor of tasks of this study, which write into this folder; workers start when the first task comes.

        Raises InputError where no scheduler answers, then or, if it is to be one that exists, now.
        """
        from kvwall.sweep.cluster.executor import OnDemand

        with ExitStack() as held:
            client = held.enter_context(self.connected()) if self.address else None

            def start() -> DaskExecutor:
                reached = client or held.enter_context(self.connected())
                return held.enter_context(self._working(reached, study, folder, watch))

            yield OnDemand(start)

    @contextmanager
    def _working(self, client: Client, study: Study, folder: ResultsFolder, watch: Watch) -> Iterator[DaskExecutor]:
        from kvwall.sweep.cluster.executor import DaskExecutor
        from kvwall.sweep.cluster.worker import PROBE

        ticket = _ticket(study, folder)
        probe = ticket.folder / PROBE
        try:
            write_atomically(probe, ticket.run.encode())
            with DaskExecutor(client, ticket, folder.log, watch, own=self.address is None) as executor:
                folder.notices.extend(executor.notices)
                yield executor
        finally:
            probe.unlink(missing_ok=True)


def _ticket(study: Study, folder: ResultsFolder) -> Ticket:
    from kvwall.sweep.cluster.worker import Ticket

    return Ticket(
        run=uuid.uuid4().hex,
        study=replace(study),  # without what has been derived from it
        spec=study.spec(),
        spec_hash=study.spec_hash,
        folder=folder.path.absolute(),
        argv=tuple(sys.argv),
        environment={name: os.environ[name] for name in _CARRIED if name in os.environ},
    )


@contextmanager
def _local(workers: int) -> Iterator[LocalCluster]:
    """Single-threaded processes on this machine. Ctrl-C is this process's business: they do not hear it."""
    import dask.config
    from distributed import LocalCluster

    from kvwall.sweep.cluster.worker import ONE_THREAD

    resource_tracker.ensure_running()  # when it is started it lets interrupts through again
    with dask.config.set({"distributed.scheduler.allowed-failures": _LOCAL_DEATHS}):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=None,
                silence_logs=logging.CRITICAL,
                env=ONE_THREAD,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield cluster
        finally:
            cluster.close()


def _scheduler(given: str) -> str:
    """The address, or the one that a scheduler file holds. Raises InputError where it is neither."""
    if "://" in given:
        return given
    path = Path(given)
    try:
        return str(json.loads(path.read_text())["address"])
    except OSError as fault:
        raise InputError(
            f"--dask {given}: give an address such as tcp://scheduler:8786, or the scheduler's file "
            f"({fault.strerror or fault})"
        ) from fault
    except (ValueError, KeyError, TypeError) as fault:
        raise InputError(
            f"--dask {given}: this file names no scheduler; write it by dask scheduler --scheduler-file"
        ) from fault


@contextmanager
def _client(where: Any, said: str = "") -> Iterator[Client]:
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is in log.jsonl
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions that differ are refused, with a remedy
            client = Client(where, timeout=_SECONDS_TO_REACH, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as fault:
        raise InputError(
            f"no scheduler answers at {said} within {_SECONDS_TO_REACH} s ({_short(fault)}): start one with "
            "`dask scheduler`, or check the address, the port and the firewall"
        ) from fault
    try:
        yield client
    finally:
        client.close(timeout=10)


def _short(fault: BaseException) -> str:
    return (str(fault) or type(fault).__name__).splitlines()[0][:200]
