"""Reaching the workers: a cluster of processes on this machine, or one that exists."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import pickle
import signal
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from kvwall.spaces.errors import InputError
from kvwall.sweep.keeping import REDUCED, STORES
from kvwall.sweep.store import ResultsFolder

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

    from kvwall.sweep.cluster.agreement import Ticket
    from kvwall.sweep.executor import Executor
    from kvwall.sweep.progress import Watch
    from kvwall.sweep.study import Study

_SECONDS_TO_REACH: Final = 15
_MOST_WORKERS: Final = 512
_LOCAL_DEATHS: Final = 1
"""Workers that a task may lose on a local cluster before Dask gives it up, which it may `window.MOST_KILLS` times."""
_FEWER: Final = "give fewer --workers, or leave them out"
_START: Final = "start one with `dask scheduler`, or check the address, the port and the firewall"
_CARRIED: Final = ("SOURCE_DATE_EPOCH",)
"""Variables of the environment that workers must share."""


class Size(NamedTuple):
    """What a cluster has."""

    workers: int
    threads: int
    """Of the worker that has most: so many tasks share its memory."""
    cores: int
    """That all threads of all workers keep busy."""


def cluster_asked(workers: int | None, address: str | None) -> Cluster | None:
    """The cluster of --workers or --dask; None where neither is given. Raises InputError where both are."""
    if workers is None and address is None:
        return None
    if workers is not None and address is not None:
        raise InputError("--workers starts a cluster on this machine and --dask uses one that exists: give one of them")
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise InputError(f"--workers {workers}: from 1 to {_MOST_WORKERS} processes of this machine, one per core")
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
        """A client of the cluster. Raises InputError where no scheduler answers, or no worker can be started."""
        with _silent():
            if self.address is None:
                with (
                    _local(self.workers or 1) as local,
                    _client(local, "the workers of this machine do not answer", _FEWER) as client,
                ):
                    yield client
            else:
                address = _scheduler(self.address)
                _check_scheduler(address, f"no scheduler answers at {self.address}")
                with _client(address, f"no scheduler answers at {self.address}", _START) as client:
                    yield client

    def size(self) -> Size:
        """What does the work. Raises InputError where no scheduler or worker is there."""
        if self.address is None:
            workers = self.workers or 1
            return Size(workers, 1, min(workers, os.cpu_count() or 1))
        with self.connected() as client:
            try:
                threads, of_machines = client.nthreads(), client.run(os.cpu_count, on_error="ignore")
            except OSError as fault:
                raise InputError(f"the scheduler at {self.address} is gone ({_short(fault)}): {_START}") from fault
        if not threads:
            raise InputError(
                f"--dask {self.address}: no worker is there yet, so how long they take cannot be said: start one with "
                "`dask worker`, or leave --dry-run out, as the sweep waits for one"
            )
        return Size(len(threads), max(threads.values()), _cores(threads, of_machines))

    @contextmanager
    def employed(self, study: Study, folder: ResultsFolder, watch: Watch) -> Iterator[Executor]:
        """An executor of tasks of this study, which write into this folder; workers start when the first task comes.

        Raises InputError where no scheduler answers, then or, if it is to be one that exists, now.
        """
        from kvwall.sweep.cluster.executor import DaskExecutor

        with self.connected() if self.address else nullcontext() as client:
            reached: AbstractContextManager[Client] = nullcontext(client) if client else self.connected()
            with DaskExecutor(reached, _ticket(study, folder), folder, watch, own=client is None) as executor:
                yield executor


def _ticket(study: Study, folder: ResultsFolder) -> Ticket:
    from kvwall.sweep.cluster.agreement import Machine, Ticket

    return Ticket(
        run=uuid.uuid4().hex,
        machine=Machine.here(),
        study=pickle.dumps(replace(study)),  # without what has been derived from it
        spec=study.spec(),
        spec_hash=study.spec_hash,
        folder=folder.path.absolute(),
        argv=tuple(sys.argv),
        environment={name: os.environ.get(name) for name in _CARRIED},
    )


@contextmanager
def _local(workers: int) -> Iterator[LocalCluster]:
    """Single-threaded processes on this machine. Ctrl-C is this process's business: they do not hear it."""
    import dask.config
    from distributed import LocalCluster

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
                env={"NPROC": "1", "OMP_NUM_THREADS": "1"},
            )
        except (OSError, RuntimeError) as fault:
            raise InputError(
                f"--workers {workers}: they could not be started on this machine ({_short(fault)}): {_FEWER}"
            ) from fault
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            yield cluster
        finally:
            with suppress(OSError, RuntimeError):  # what they were to do is done, or has failed for a better reason
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


def _check_scheduler(address: str, failed: str) -> None:
    """Raise InputError where what has this address is no scheduler: a client would wait for it for ever."""
    from distributed import Security
    from distributed.comm.core import connect

    async def kind() -> str:
        comm = await connect(address, timeout=_SECONDS_TO_REACH, **Security().get_connection_args("client"))
        try:
            await comm.write({"op": "identity", "reply": True})
            return str((await comm.read())["type"])
        finally:
            comm.abort()

    try:
        found = asyncio.run(asyncio.wait_for(kind(), _SECONDS_TO_REACH))
    except Exception as fault:  # whatever an address, or what answers there, makes of it
        raise InputError(f"{failed} within {_SECONDS_TO_REACH} s ({_short(fault)}): {_START}") from fault
    if found != "Scheduler":
        raise InputError(f"{failed}, but a {found.lower()} does: give the scheduler's address")


@contextmanager
def _client(where: Any, failed: str, remedy: str) -> Iterator[Client]:
    from distributed import Client

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions that differ are refused, with a remedy
            client = Client(where, timeout=_SECONDS_TO_REACH, set_as_default=False)
    except (ImportError, OSError, ValueError, RuntimeError) as fault:
        raise InputError(f"{failed} within {_SECONDS_TO_REACH} s ({_short(fault)}): {remedy}") from fault
    try:
        yield client
    finally:
        with suppress(OSError, RuntimeError):  # it is of no more use, whatever became of the scheduler
            client.close(timeout=10)


@contextmanager
def _silent() -> Iterator[None]:
    """Without the logs of Dask, whose loggers have levels of their own: what matters is in log.jsonl."""
    import distributed  # noqa: F401 - which sets those levels

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("distributed", "tornado")]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    try:
        for logger in before:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


def _cores(threads: Mapping[str, int], of_machines: Mapping[str, int | None]) -> int:
    """Cores that these threads of workers keep busy, where a machine has so many in all.

    >>> _cores({"tcp://10.0.0.1:1": 4, "tcp://10.0.0.1:2": 4, "tcp://10.0.0.2:1": 4}, {"tcp://10.0.0.1:1": 6})
    10
    """
    there = Counter[str]()
    for worker, own in threads.items():
        there[_host(worker)] += own
    most = {_host(worker): found for worker, found in of_machines.items()}
    return sum(min(own, most.get(host) or own) for host, own in there.items())


def _host(worker: str) -> str:
    return urlsplit(worker).hostname or worker


def _short(fault: BaseException) -> str:
    return (str(fault) or type(fault).__name__).splitlines()[0][:200]
