"""What does the tasks of a run elsewhere; `kvwall.sweep.cluster` has the one there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Executor(Protocol):
    """Does tasks."""

    @property
    def parallel(self) -> int:
        """Tasks that are done at once."""

    @property
    def compile_seconds(self) -> float:
        """Spent on compiling so far; of workers that compile at the same time, the longest."""

    def start(self) -> None:
        """Have it ready: workers may have to be waited for. Raises InputError where they cannot do a run's tasks."""

    def run(self, kind: str, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Do a task of this kind for each item; pairs of an item and its result, each once, in no order.

        Items are taken one by one, as late as possible. Raises InputError where a task cannot be done.
        """
