"""An executor whose tasks are done by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Self

from distributed import Client

from kvwall.sweep.cluster.agreement import check_packages, check_workers
from kvwall.sweep.cluster.roster import Roster
from kvwall.sweep.cluster.window import PATIENCE, Window
from kvwall.sweep.cluster.worker import Prepare, Ticket
from kvwall.sweep.progress import Watch


class DaskExecutor:
    """Does tasks of one run by the workers that a client reaches. Use it as a context manager."""

    patience = PATIENCE

    def __init__(self, client: Client, ticket: Ticket, log: Callable[..., None], watch: Watch, *, own: bool) -> None:
        self.notices: list[str] = []
        self.compile_seconds = 0.0
        """The longest that a worker has compiled for one kind of task, summed over kinds."""
        self._client = client
        self._ticket = ticket
        self._log = log
        self._watch = watch
        self._plugin = Prepare(ticket)
        self._roster = Roster(client, log, watch, own)

    def __enter__(self) -> Self:
        """Wait for a worker, and see that all agree. Raises InputError where they do not."""
        self._roster.wait()
        check_packages(self._client)
        self._client.register_plugin(self._plugin)
        self.notices += check_workers(self._client, self._ticket.run)
        self._log(
            "cluster", scheduler=self._client.scheduler_info()["address"], threads=self.parallel, notices=self.notices
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._watch.crew(None)
        if self._client.status == "running":
            self._client.unregister_worker_plugin(self._plugin.name)

    @property
    def parallel(self) -> int:
        """Threads of all workers."""
        return self._roster.threads

    def run(self, kind: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Do the tasks; pairs of an item and its result, each once, as they are finished.

        Raises InputError naming the item where a task keeps failing, or keeps killing its workers.
        """
        window = Window(self._client, self._roster, self._log, self._ticket.run, kind, self.patience)
        compiling = 0.0
        for item, done in window.results(items):
            compiling = max(compiling, done.compile_seconds)
            yield item, done.result
        self.compile_seconds += compiling


class OnDemand:
    """An executor that is made when the first task comes: a run that is finished needs no workers."""

    def __init__(self, start: Callable[[], DaskExecutor]) -> None:
        self._start = start

    @cached_property
    def _started(self) -> DaskExecutor:
        return self._start()

    def start(self) -> None:
        """Reach the workers."""
        _ = self._started

    @property
    def parallel(self) -> int:
        """Threads of all workers."""
        return self._started.parallel

    @property
    def compile_seconds(self) -> float:
        """Of the workers, if there are any."""
        return self._started.compile_seconds if "_started" in vars(self) else 0.0

    def run(self, kind: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Do the tasks."""
        return self._started.run(kind, items)
