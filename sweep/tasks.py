"""The units of a run as tasks that may be done in any process, in any order and more than once.

What a task is given and gives back is small and can be pickled; all else it needs is the `Workplace` of its run.
A new kind of task is one function here and one line in `TASKS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.kernel import Problem
from kvwall.sweep.parts import RowRange, look_at_columns, look_at_rows
from kvwall.sweep.run import problem_of
from kvwall.sweep.store import Shard, shard_plan
from kvwall.sweep.store.atomic import write_atomically
from kvwall.sweep.store.folder import SHARDS
from kvwall.sweep.store.shard_file import ShardFiles
from kvwall.sweep.storing import evaluator_of, write_block
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study


class Kernels:
    """What is compiled for a study, when it is first needed and once. Runs of equal studies may share it."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._making = threading.Lock()
        self._ready: set[Callable[[Kernels], object]] = set()

    def make_ready(self, kind: str) -> float:
        """Compile what tasks of this kind need, once: threads wait for the first. Seconds that this took."""
        with self._making:
            if TASKS[kind].prepare in self._ready:
                return 0.0
            began = time.perf_counter()
            TASKS[kind].prepare(self)
            self._ready.add(TASKS[kind].prepare)
            return time.perf_counter() - began

    @cached_property
    def problem(self) -> Problem:
        """What kernels compute."""
        return problem_of(self._study)

    @cached_property
    def stream(self) -> Stream:
        """The two passes over the grid."""
        return Stream(self.problem)

    @cached_property
    def block(self) -> BlockEvaluator:
        """The kernel that computes shards, compiled."""
        return evaluator_of(self._study, self.problem, shard_plan(self._study))


class Workplace:
    """What tasks of one run share in a process."""

    def __init__(self, study: Study, folder: Path, kernels: Kernels) -> None:
        self.study = study
        self.folder = folder
        self.kernels = kernels
        self.plan = shard_plan(study)
        self.files = ShardFiles(study, self.plan)


@dataclass(frozen=True)
class Kind:
    """One kind of task."""

    work: Callable[[Workplace, Any], Any]
    """From an item to what comes back. Doing it again gives the same and harms nothing."""
    prepare: Callable[[Kernels], object]
    """Compiles what `work` needs."""
    name: Callable[[Any], str]
    """What people call an item."""


def store_shard(place: Workplace, number: int) -> int:
    """Compute and write the shard of this number; its points. Raises InputError where the disk refuses."""

    def write(shard: Shard, values: Mapping[str, Any], status: Any) -> None:
        write_atomically(place.folder / SHARDS / shard.name, place.files.image(shard, values, status))

    return write_block(place.kernels.block, place.plan, place.plan.shards[number], write)


def _shard_name(number: int) -> str:
    return f"shard {Shard(number, (), ()).name}"


def _rows_name(rows: RowRange) -> str:
    return f"the {'first' if rows.edges is None else 'second'} pass over rows {rows.start:,} to {rows.stop - 1:,}"


def _compile_passes(kernels: Kernels) -> object:
    return kernels.stream.compile()


TASKS: Final[Mapping[str, Kind]] = {
    "shard": Kind(store_shard, lambda kernels: kernels.block, _shard_name),
    "rows": Kind(lambda place, rows: look_at_rows(place.kernels.stream, rows), _compile_passes, _rows_name),
    "columns": Kind(lambda place, rows: look_at_columns(place.kernels.stream, rows), _compile_passes, _rows_name),
}
"""Every kind of task. A search of the front by bounds would be one more: an item is then some boxes of the grid."""
