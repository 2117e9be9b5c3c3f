"""What runs in a worker: a study is unpacked and its kernels are compiled once per process, then all tasks use them."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distributed import Worker, WorkerPlugin

from kvwall.spaces.errors import InputError

if TYPE_CHECKING:
    from kvwall.sweep.study import Study
    from kvwall.sweep.tasks import Workplace

PROBE: Final = ".probe"
"""File in the results folder that says whether workers see the same folder."""
ONE_THREAD: Final = {"NPROC": "1", "OMP_NUM_THREADS": "1"}
"""Environment that holds XLA to one thread per task; read when JAX starts."""
_SECONDS_FOR_PROBE: Final = 15.0  # what a network file system may take to show a new file


@dataclass(frozen=True)
class Ticket:
    """All that a worker must be told of a run."""

    run: str
    """Name of this run, never used again; also what the probe file holds."""
    study: Study
    """As it was read, without what was derived from it: a worker derives that from its own files."""
    spec: Mapping[str, Any]
    """What decides the results, as the driver has it."""
    spec_hash: str
    folder: Path
    """Absolute."""
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What comes back of a task."""

    result: Any
    seconds: float
    compile_seconds: float
    """More than 0 where the task was the first of its process."""


class Prepare(WorkerPlugin):
    """Gives a run's ticket to every worker, those that come later included."""

    def __init__(self, ticket: Ticket) -> None:
        self.name = f"kvwall-{ticket.run}"
        self._ticket = ticket

    def setup(self, worker: Worker) -> None:
        """Called in each worker before its first task; must come before JAX is imported."""
        for name, value in (ONE_THREAD | dict(self._ticket.environment)).items():
            os.environ.setdefault(name, value)
        _tickets[self._ticket.run] = self._ticket

    def teardown(self, worker: Worker) -> None:
        """The run is over. Its kernels stay until another study comes: it may go on."""
        _tickets.pop(self._ticket.run, None)
        _places.pop(self._ticket.run, None)


_tickets: dict[str, Ticket] = {}
_places: dict[str, Workplace] = {}
_last: dict[str, Workplace] = {}
"""By the spec_hash, and never more than one."""
_entering = threading.Lock()


def perform(run: str, kind: str, item: Any) -> Done:
    """Do one task. Raises InputError where this worker does not agree with the driver, or where the disk refuses."""
    from kvwall.sweep.tasks import TASKS

    place = _workplace(run)
    compile_seconds = place.make_ready(kind)
    began = time.perf_counter()
    result = TASKS[kind].work(place, item)
    return Done(result, time.perf_counter() - began, compile_seconds)


def _workplace(run: str) -> Workplace:
    with _entering:
        if run not in _places:
            from kvwall.sweep.tasks import Workplace

            ticket = _tickets[run]
            faults = disagreements(ticket)
            if faults:
                raise InputError(faults)
            sys.argv = list(ticket.argv)  # shards say which command made them
            place = _last.get(ticket.spec_hash) or Workplace(ticket.study, ticket.folder)
            _last.clear()
            _last[ticket.spec_hash] = _places[run] = place.moved_to(ticket.folder)
        return _places[run]


@dataclass(frozen=True)
class Found:
    """What a worker says of itself."""

    faults: tuple[str, ...]
    processor: str


def examine(run: str) -> Found:
    """What keeps this worker from doing tasks of a run, and what it runs on."""
    return Found(tuple(disagreements(_tickets[run])), processor())


def disagreements(ticket: Ticket) -> list[str]:
    """Sentences that say how this worker differs from the driver; none where it does not."""
    from kvwall.sweep.store.spec_file import differences

    where = f"worker {os.getpid()} on {platform.node()}"
    try:
        spec_hash, spec = ticket.study.spec_hash, ticket.study.spec()
    except InputError as fault:
        return [f"{where} cannot read the study: {fault} (a path in it must be absolute, and on a shared file system)"]
    if spec_hash != ticket.spec_hash:
        changes = list(differences(dict(ticket.spec), spec))[:4]
        return [f"{where} has other records or laws than this machine ({'; '.join(changes)}): install the same kvwall"]
    return _folder_faults(ticket, where)


def _folder_faults(ticket: Ticket, where: str) -> list[str]:
    until = time.monotonic() + _SECONDS_FOR_PROBE
    while _probe(ticket.folder) != ticket.run:
        if time.monotonic() > until:
            return [
                f"{where} does not see {ticket.folder} as this machine does: choose with --out a folder on a file "
                "system that all workers share, mounted at the same path"
            ]
        time.sleep(0.2)
    if not os.access(ticket.folder, os.W_OK):
        return [f"{where} may not write to {ticket.folder}: run the workers as a user who may"]
    return []


def _probe(folder: Path) -> str:
    try:
        return (folder / PROBE).read_text()
    except OSError:
        return ""


def processor() -> str:
    """What this machine computes with; blank where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
