"""A sliding window of tasks on a cluster: each done once, again when a worker is lost, and not for ever."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

from distributed import Future
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker

from kvwall.spaces.errors import InputError
from kvwall.sweep import interrupt
from kvwall.sweep.cluster.agreement import Ticket
from kvwall.sweep.cluster.roster import SECONDS_BETWEEN_LOOKS, Roster
from kvwall.sweep.cluster.worker import Disagreement, Done, order, without_kvwall
from kvwall.sweep.tasks import TASKS

PER_THREAD: Final = 3
"""Tasks under way for each thread of a worker: it never waits, and the scheduler has little to keep."""
MOST_ATTEMPTS: Final = 3
MOST_KILLS: Final = 2
"""Times that Dask may give a task up because workers died under it."""
_PATIENCE: Final = 300.0
"""Seconds after which a task that takes 20 times as long as any so far counts as lost."""
_Future: TypeAlias = "Future[Any]"
_GOES_ON: Final = "what is finished is kept, and the same command goes on from there"


@dataclass(eq=False)
class _Flight:
    """An item that is under way, as one task or, where the first seems lost, several."""

    item: Any
    name: str
    futures: dict[Any, _Future] = field(default_factory=dict)
    sent: float = 0.0
    only: frozenset[str] | None = None
    """The workers that may do what was sent last; None where any may."""
    attempts: int = 0
    kills: int = 0


class Window:
    """The tasks of one kind that are under way."""

    def __init__(self, roster: Roster, log: Callable[..., None], ticket: Ticket, kind: str) -> None:
        self._client = roster.client
        self._roster = roster
        self._log = log
        self._ticket = ticket
        self._kind = kind
        self._landed: SimpleQueue[_Future] = SimpleQueue()
        self._flights: list[_Flight] = []
        self._slowest = 0.0
        self._sent = 0

    def results(self, items: Iterable[Any]) -> Iterator[tuple[Any, Done]]:
        """Every item with what came of it, once, in the order of landing.

        Raises InputError naming an item that fails, and where the scheduler is gone or no worker is left that agrees.
        """
        source = iter(items)
        try:
            while self._fill(source):
                interrupt.check()
                self._roster.look()
                self._resend()
                flight, future = self._next()
                done = self._settle(flight, future) if flight and future else None
                if flight and done:
                    self._forget(flight)
                    yield flight.item, done
        finally:
            self._cancel([future for flight in self._flights for future in flight.futures.values()])

    def _fill(self, source: Iterator[Any]) -> bool:
        """Send tasks until the window is full; whether any is under way."""
        while len(self._flights) < PER_THREAD * max(1, self._roster.threads):
            item = next(source, None)
            if item is None:
                break
            flight = _Flight(item, TASKS[self._kind].name(item))
            self._flights.append(flight)
            self._send(flight)
        return bool(self._flights)

    def _send(self, flight: _Flight, avoid: str = "") -> None:
        """Send a task, or send it again: doing it twice is harmless.

        To any worker, but not to `avoid` or to one that was refused; where no other is there, it waits here.
        """
        flight.sent = time.monotonic()
        others = frozenset(self._roster.workers) - {avoid}
        flight.only = None if self._roster.all_may and not (avoid and others) else others
        if flight.only == frozenset():
            return
        self._sent += 1
        with self._roster.reaching():
            future = self._client.submit(
                pickle.loads,
                order(self._ticket, self._kind, flight.item),
                key=f"kvwall-{self._kind}-{self._ticket.run}-{self._sent}",
                pure=False,
                workers=sorted(flight.only) if flight.only else None,
            )
        flight.futures[future.key] = future
        future.add_done_callback(self._landed.put)

    def _next(self) -> tuple[_Flight | None, _Future | None]:
        """The next task that has ended in some way; nothing where there is none for a while, or it is done already."""
        try:
            future = self._landed.get(timeout=SECONDS_BETWEEN_LOOKS)
        except Empty:
            return None, None
        return next((flight for flight in self._flights if future.key in flight.futures), None), future

    def _settle(self, flight: _Flight, future: _Future) -> Done | None:
        """What came of a task; None where it is to be done again. Raises InputError where there is no use in that."""
        try:
            done: Done = future.result(timeout=60)
        except InputError as fault:
            raise InputError([f"{flight.name}: {one}" for one in fault.faults]) from fault
        except Exception as fault:  # whatever went wrong, elsewhere
            del flight.futures[future.key]
            if not self._refuse(fault):
                self._count(flight, fault)
            self._send(flight)
            return None
        self._slowest = max(self._slowest, done.seconds + done.compile_seconds)
        return done

    def _refuse(self, fault: Exception) -> bool:
        """Whether a failure says nothing of the task, but of workers: these get no more."""
        if isinstance(fault, Disagreement):
            self._roster.refuse(fault.worker, fault.faults)
            return True
        if not isinstance(fault, ImportError | AttributeError):
            return False
        with self._roster.reaching():
            absent = without_kvwall(self._client)
        for worker, said in absent.items():
            self._roster.refuse(worker, [said])
        return bool(absent)

    def _count(self, flight: _Flight, fault: Exception) -> None:
        """Take note of a failure. Raises InputError where it was the last that is allowed."""
        flight.attempts += 1
        if isinstance(fault, KilledWorker):
            flight.kills += 1
            self._roster.look_now()
        reason = f"{type(fault).__name__}: {fault}".splitlines()[0][:300]
        self._log("task_failed", task=flight.name, attempt=flight.attempts, reason=reason)
        if flight.kills >= MOST_KILLS:
            raise InputError(
                f"{flight.name} killed every worker that tried it (memory? see the workers' own logs and limits): "
                f"{_GOES_ON}"
            )
        if flight.attempts >= MOST_ATTEMPTS:
            raise InputError(f"{flight.name} failed {flight.attempts} times ({reason}): {_GOES_ON}")

    def _forget(self, flight: _Flight) -> None:
        """It is done: other tasks with the same item are of no use."""
        self._flights.remove(flight)
        self._cancel([future for future in flight.futures.values() if not future.done()])

    def _cancel(self, futures: list[_Future]) -> None:
        if futures and self._client.status == "running":
            with suppress(OSError, ClosedClientError):  # a scheduler that is gone does none of them
                self._client.cancel(futures, force=True)

    def _resend(self) -> None:
        """Send again what no worker that is there may do, and, to another, what takes far too long.

        A worker may hang, and schedulers lose tasks.
        """
        if not self._roster.workers:
            return
        for flight in self._flights:
            if flight.only is not None and flight.only.isdisjoint(self._roster.workers):
                self._send(flight)
        now, limit = time.monotonic(), max(_PATIENCE, 20 * self._slowest)
        late = [flight for flight in self._flights if now - flight.sent > limit]
        holders = self._holders() if late else {}
        for flight in late:
            holder = next((worker for worker, keys in holders.items() if flight.futures.keys() & set(keys)), "")
            self._log("task_sent_again", task=flight.name, seconds=now - flight.sent, worker=holder)
            self._send(flight, avoid=holder)

    def _holders(self) -> dict[str, list[Any]]:
        """Worker -> the tasks it has."""
        with self._roster.reaching():
            return dict(self._client.processing())
