"""An executor whose tasks are done by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from distributed import Client

from kvwall.sweep.cluster.agreement import PROBE, Ticket
from kvwall.sweep.cluster.roster import Roster
from kvwall.sweep.cluster.window import Window
from kvwall.sweep.progress import Watch
from kvwall.sweep.store import ResultsFolder
from kvwall.sweep.store.atomic import write_atomically


class DaskExecutor:
    """Does tasks of one run by the workers that a client reaches. Use it as a context manager.

    The client is asked for when the first task comes: a run that is finished needs no workers.
    """

    def __init__(
        self,
        connected: AbstractContextManager[Client],
        ticket: Ticket,
        folder: ResultsFolder,
        watch: Watch,
        *,
        own: bool,
    ) -> None:
        self.compile_seconds = 0.0
        """The longest that a worker has compiled for one kind of task, summed over kinds."""
        self._connected = connected
        self._ticket = ticket
        self._folder = folder
        self._watch = watch
        self._own = own
        self._processors = {ticket.machine.processor}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._watch.crew(None)
        self._held.close()

    @cached_property
    def _roster(self) -> Roster:
        client = self._held.enter_context(self._connected)
        self._held.enter_context(_probe(self._ticket))
        roster = Roster(client, self._folder, self._watch, self._own)
        roster.wait()
        self._folder.log("cluster", scheduler=client.scheduler_info()["address"], threads=roster.threads)
        return roster

    def start(self) -> None:
        """Reach the workers. Raises InputError where there are none."""
        _ = self._roster

    @property
    def parallel(self) -> int:
        """Threads of all workers."""
        return self._roster.threads

    def run(self, kind: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Do the tasks; pairs of an item and its result, each once, as they are finished.

        Raises InputError naming the item where a task keeps failing, or keeps killing its workers, and naming the
        worker where none is left that agrees with this machine.
        """
        compiling = 0.0
        for item, done in Window(self._roster, self._folder.log, self._ticket, kind).results(items):
            compiling = max(compiling, done.compile_seconds)
            self._compare(done.processor)
            yield item, done.result
        self.compile_seconds += compiling

    def _compare(self, processor: str) -> None:
        """Notices a processor that is not this machine's."""
        if processor not in self._processors:
            self._processors.add(processor)
            own = self._ticket.machine.processor
            self._folder.notices.append(
                f"a worker computes by {processor or 'an unnamed processor'}, this machine by {own or 'another'}: the "
                "last bit of a number may depend on it"
            )


@contextmanager
def _probe(ticket: Ticket) -> Iterator[None]:
    """The file by which workers see that their folder is ours."""
    probe = ticket.folder / PROBE
    try:
        write_atomically(probe, ticket.run.encode())
        yield
    finally:
        probe.unlink(missing_ok=True)
