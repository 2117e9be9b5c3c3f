"""What runs in a worker: it sees that it agrees with the driver, compiles a study's kernels once, and does tasks."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from distributed import Client, get_worker

from kvwall.spaces.errors import InputError
from kvwall.sweep.cluster.agreement import Ticket, agreed, processor

if TYPE_CHECKING:
    from kvwall.sweep.study import Study
    from kvwall.sweep.tasks import Workplace

_MOST_RUNS: Final = 2
"""Runs whose kernels a worker keeps: one may go on soon after it was stopped, or two take turns."""


@dataclass(frozen=True)
class Done:
    """What comes back of a task."""

    result: Any
    seconds: float
    compile_seconds: float
    """More than 0 where the task was the first of its process."""
    processor: str
    """Of the worker."""


class Disagreement(Exception):
    """A worker would not compute what the driver would: its address, and one sentence per difference."""

    def __init__(self, worker: str, faults: tuple[str, ...]) -> None:
        super().__init__(worker, faults)
        self.worker = worker
        self.faults = faults


class _Order:
    """Unpickling it does a task."""

    def __init__(self, *task: Any) -> None:
        self._task = task

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return perform, self._task


def order(ticket: Ticket, kind: str, item: Any) -> bytes:
    """A task for `pickle.loads`, which is in every Python: it answers `Done`.

    If Dask itself unpickled our code, a worker or a scheduler that lacks kvwall would lose its connection over it,
    without a word; like this the task fails there, and says why.
    """
    return pickle.dumps(_Order(ticket, kind, item))


def without_kvwall(client: Client) -> dict[str, str]:
    """Worker -> a sentence, for each that cannot do an order because it lacks kvwall or has an old one."""
    answers = client.run(pickle.loads, pickle.dumps(perform), on_error="return")
    return {
        address: f"worker {address} cannot import kvwall ({answer}): use the same environment everywhere"
        for address, answer in answers.items()
        if isinstance(answer, ImportError | AttributeError)
    }


def perform(ticket: Ticket, kind: str, item: Any) -> Done:
    """Do one task.

    Raises Disagreement where this worker would not do it as the driver would, InputError where the disk refuses.
    """
    place = _workplace(ticket)
    _take_over(ticket)
    from kvwall.sweep.tasks import TASKS

    compile_seconds = place.kernels.make_ready(kind)
    began = time.perf_counter()
    result = TASKS[kind].work(place, item)
    return Done(result, time.perf_counter() - began, compile_seconds, processor())


_places: dict[str, Workplace] = {}
"""By the run, the latest last."""
_entering = threading.Lock()


def _workplace(ticket: Ticket) -> Workplace:
    """Made for each run; runs of equal studies share what is compiled, and nothing that files say of a run."""
    with _entering:
        if ticket.run not in _places:
            study = _agreed(ticket)
            from kvwall.sweep.tasks import Kernels, Workplace  # only now, as other packages may not have it

            known = [place.kernels for place in _places.values() if place.study.spec_hash == ticket.spec_hash]
            place = Workplace(study, ticket.folder, known[-1] if known else Kernels(study))
            for old in list(_places)[: len(_places) + 1 - _MOST_RUNS]:
                del _places[old]
            _places[ticket.run] = place
        return _places[ticket.run]


def _agreed(ticket: Ticket) -> Study:
    try:
        return agreed(ticket)
    except InputError as fault:
        raise Disagreement(get_worker().contact_address or "", fault.faults) from fault


def _take_over(ticket: Ticket) -> None:
    """Have the driver's command and environment, which files state; another run's are forgotten."""
    sys.argv = list(ticket.argv)
    for name, value in ticket.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
