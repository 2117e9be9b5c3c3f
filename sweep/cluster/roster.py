"""Which workers are there, and what to do when none is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from distributed import Client

from kvwall.spaces.errors import InputError
from kvwall.sweep.progress import Watch

SECONDS_BETWEEN_LOOKS: Final = 1.0
_SECONDS_WITHOUT_WORKERS: Final = {True: 60.0, False: 3600.0}
"""How long to wait for a worker, on a cluster of our own and on another: a batch system's queue may be long."""


class Roster:
    """Follows who comes and goes; `log` gets an event for each."""

    def __init__(self, client: Client, log: Callable[..., None], watch: Watch, own: bool) -> None:
        self._client = client
        self._log = log
        self._watch = watch
        self._patience = _SECONDS_WITHOUT_WORKERS[own]
        self._threads: Mapping[str, int] = {}
        self._looked = float("-inf")
        self._seen = time.monotonic()

    @property
    def threads(self) -> int:
        """Of all workers."""
        return sum(self._threads.values())

    @property
    def workers(self) -> list[str]:
        """Their addresses."""
        return list(self._threads)

    def wait(self) -> None:
        """Until there is a worker. Raises InputError where none comes."""
        self._watch.stage("waiting for workers", 1, "worker")
        while not self.look():
            self._watch.update(0)
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self._watch.update(1)

    def look(self) -> int:
        """Look again, if the last look is long enough ago; how many workers there are.

        Raises InputError where the scheduler is gone, or every worker for too long.
        """
        now = time.monotonic()
        if now - self._looked >= SECONDS_BETWEEN_LOOKS:
            self._looked = now
            self._compare(self._client_threads())
            if self._threads:
                self._seen = now
            elif now - self._seen > self._patience:
                raise InputError(
                    f"no worker has been there for {self._patience:.0f} s: start some with `dask worker`; "
                    "the same command goes on from what is finished"
                )
        return len(self._threads)

    def _client_threads(self) -> Mapping[str, int]:
        try:
            if self._client.status != "running":
                raise OSError("the connection was lost")
            found: Mapping[str, int] = self._client.nthreads()
        except OSError as fault:
            raise InputError(
                f"the scheduler is gone ({fault}): start it again; the same command goes on from what is finished"
            ) from fault
        return found

    def _compare(self, threads: Mapping[str, int]) -> None:
        for worker in self._threads.keys() - threads.keys():
            self._log("worker_lost", worker=worker, workers=len(threads))
        for worker in threads.keys() - self._threads.keys():
            self._log("worker_came", worker=worker, workers=len(threads))
        self._threads = threads
        self._watch.crew(len(threads))
