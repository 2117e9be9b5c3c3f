"""Which workers are there, which of them do not agree with the driver, and what to do when none is left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from distributed import Client
from distributed.client import ClosedClientError

from kvwall.spaces.errors import InputError
from kvwall.sweep.progress import Watch
from kvwall.sweep.store import ResultsFolder

SECONDS_BETWEEN_LOOKS: Final = 1.0
_SECONDS_WITHOUT_WORKERS: Final = {True: 60.0, False: 3600.0}
"""How long to wait for a worker, on a cluster of our own and on another: a batch system's queue may be long."""
_MOST_NAMED: Final = 5


class Roster:
    """Follows who comes and goes; the folder's log gets an event for each."""

    def __init__(self, client: Client, folder: ResultsFolder, watch: Watch, own: bool) -> None:
        self.client = client
        self._folder = folder
        self._watch = watch
        self._patience = _SECONDS_WITHOUT_WORKERS[own]
        self._threads: Mapping[str, int] = {}
        self._refused: dict[str, str] = {}
        self._looked = float("-inf")
        self._seen = time.monotonic()

    @property
    def threads(self) -> int:
        """Of all workers that may be given tasks."""
        return sum(self._threads[worker] for worker in self.workers)

    @property
    def workers(self) -> list[str]:
        """The addresses of those that may be given tasks."""
        return [worker for worker in self._threads if worker not in self._refused]

    @property
    def all_may(self) -> bool:
        """Whether no worker that is there was refused."""
        return not self._refused

    def wait(self) -> None:
        """Until there is a worker. Raises InputError where none comes."""
        self._watch.stage("waiting for workers", 1, "worker")
        while not self.look():
            self._watch.update(0)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self._watch.update(1)

    def look(self) -> int:
        """Look again, if the last look is long enough ago; how many workers may be given tasks.

        Raises InputError where the scheduler is gone, or every such worker for too long.
        """
        if time.monotonic() - self._looked >= SECONDS_BETWEEN_LOOKS:
            self.look_now()
            if not self.workers and time.monotonic() - self._seen > self._patience:
                raise InputError(
                    [
                        f"no worker has been there for {self._patience:.0f} s: start some with `dask worker`; "
                        "the same command goes on from what is finished",
                        *_first(self._refused),
                    ]
                )
        return len(self.workers)

    def refuse(self, worker: str, faults: Sequence[str]) -> None:
        """Give this one no more tasks until it has been started again. Raises InputError where no other is there."""
        if worker in self._refused:
            return
        self.look_now()
        said = "; ".join(faults)
        self._refused[worker] = said
        self._folder.log("worker_refused", worker=worker, reason=said, workers=len(self.workers))
        if not self.workers:
            raise InputError(_first(self._refused))
        self._folder.notices.append(f"{said}: it was not used")
        self._watch.crew(len(self.workers))

    @contextmanager
    def reaching(self) -> Iterator[None]:
        """Around what asks the scheduler. Raises InputError where it is gone."""
        try:
            if self.client.status != "running":
                raise OSError("the connection was lost")
            yield
        except (OSError, ClosedClientError) as fault:
            raise InputError(
                f"the scheduler is gone ({fault}): start it again; the same command goes on from what is finished"
            ) from fault

    def look_now(self) -> None:
        """Look, however short ago the last look was. Raises InputError where the scheduler is gone."""
        with self.reaching():
            threads = self.client.nthreads()
        self._refused = {worker: said for worker, said in self._refused.items() if worker in threads}
        for worker in self._threads.keys() - threads.keys():
            self._folder.log("worker_lost", worker=worker, workers=len(threads))
        for worker in threads.keys() - self._threads.keys():
            self._folder.log("worker_came", worker=worker, workers=len(threads))
        self._threads = threads
        self._looked = time.monotonic()
        if self.workers:
            self._seen = self._looked
        self._watch.crew(len(self.workers))


def _first(refused: Mapping[str, str]) -> list[str]:
    """What is wrong with the first few workers."""
    more = len(refused) - _MOST_NAMED
    return [*refused.values()][:_MOST_NAMED] + [f"and {more} more workers"] * (more > 0)
