"""Storing a study's slice: blocks computed, packed and flushed at once, each by a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.crew import in_order
from kvwall.sweep.keeping import PROFILES, STORES
from kvwall.sweep.progress import followed
from kvwall.sweep.store import ResultsFolder, Shard, ShardPlan
from kvwall.sweep.store.shard_file import STATUS, stored_names

if TYPE_CHECKING:
    from kvwall.sweep.executor import Executor
    from kvwall.sweep.kernel import Problem
    from kvwall.sweep.progress import Watch
    from kvwall.sweep.study import Study


@dataclass(frozen=True)
class Stored:
    """What storing a slice came to."""

    points: int = 0
    """Stored in all, by this run and earlier ones."""
    seconds: float = 0.0
    """Of computing and writing."""
    compile_seconds: float = 0.0


def store_slice(
    study: Study, problem: Problem, folder: ResultsFolder, watch: Watch, executor: Executor | None = None
) -> Stored:
    """Write the shards that are missing, and the view over all.

    By threads of this process, or as tasks of an executor. Shards that are whole stay as they are. Raises
    InputError where the disk refuses, with all that is finished kept.
    """
    if not STORES[study.store].points:
        return Stored()
    missing = folder.missing_shards(followed(watch, "checking what is stored", "files"))
    seconds = compiling = 0.0
    if missing and executor is not None:
        seconds, compiling = _have_written(missing, folder, executor, watch)
    elif missing:
        seconds, compiling = _write(missing, study, problem, folder, watch)
    folder.write_view()
    return Stored(folder.plan.size, seconds, compiling)


def evaluator_of(study: Study, problem: Problem, plan: ShardPlan) -> BlockEvaluator:
    """What evaluates the shards of a study as they are stored, compiled."""
    shape = dict(zip(plan.dims, plan.block, strict=True))
    block = BlockEvaluator(problem, shape, stored_names(study), PROFILES[study.profile].keep_bits)
    block.compile()
    return block


def _write(
    missing: list[Shard], study: Study, problem: Problem, folder: ResultsFolder, watch: Watch
) -> tuple[float, float]:
    """(seconds of storing, of compiling)."""
    began = time.perf_counter()
    watch.stage("compiling what is stored", 1, "study")
    block = evaluator_of(study, problem, folder.plan)
    watch.update(1)
    compiled = time.perf_counter()
    watch.stage("storing", sum(shard.size for shard in missing), "points")
    _count(in_order(lambda shard: write_block(block, folder.plan, shard, folder.write_shard), missing), watch)
    return time.perf_counter() - compiled, compiled - began


def _have_written(missing: list[Shard], folder: ResultsFolder, executor: Executor, watch: Watch) -> tuple[float, float]:
    """(seconds of storing, of compiling)."""
    executor.start()
    began, before = time.perf_counter(), executor.compile_seconds
    watch.stage("compiling and storing", sum(shard.size for shard in missing), "points")
    _count((size for _, size in executor.run("shard", [shard.index for shard in missing])), watch)
    folder.settle_shards(missing)
    compiling = executor.compile_seconds - before
    return time.perf_counter() - began - compiling, compiling


def _count(sizes: Iterable[int], watch: Watch) -> None:
    done = 0
    for size in sizes:
        done += size
        watch.update(done)


def write_block(
    block: BlockEvaluator,
    plan: ShardPlan,
    shard: Shard,
    write: Callable[[Shard, Mapping[str, NDArray[Any]], NDArray[np.int8]], object],
) -> int:
    """Compute a shard and write it; its points."""
    values = block(plan.grid_positions(shard))
    write(shard, values, values.pop(STATUS))
    return shard.size
