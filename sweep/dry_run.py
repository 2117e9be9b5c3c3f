"""What a sweep would take, from a short trial on this machine: nothing is left behind."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvwall.sweep.branch import BranchSearch
from kvwall.sweep.crew import in_order
from kvwall.sweep.keeping import PROFILES, STORES
from kvwall.sweep.run import OUTPUTS, problem_of
from kvwall.sweep.store import shard_plan
from kvwall.sweep.store.atomic import free_bytes, nearest_existing, refused
from kvwall.sweep.store.folder import refuse_too_big
from kvwall.sweep.store.packing import packed
from kvwall.sweep.store.shard_file import ShardFiles, stored_dtype
from kvwall.sweep.storing import evaluator_of, write_block
from kvwall.sweep.stream import Stream

if TYPE_CHECKING:
    from kvwall.sweep.kernel import Problem
    from kvwall.sweep.store import Shard, ShardPlan
    from kvwall.sweep.study import Study

_TRIAL_SECONDS = 15.0
"""Of a search by bounds: how long the rest takes cannot be told from its beginning, only whether it is short."""
_DISK_TRIAL_BYTES = 2**26
_CORES = os.cpu_count() or 1
_TRIAL_SHARDS = _CORES + 1
"""As many as are in the works at once."""


@dataclass(frozen=True)
class StoredCost:
    """What storing one metric or label costs, over all stored points."""

    name: str
    bytes_per_point: float
    bytes: int
    """As packed, from one block of the grid; other blocks may pack better or worse."""
    seconds: float
    """Of packing, shared among all cores; computing and the disk come on top."""


@dataclass(frozen=True)
class Plan:
    """What a run would take."""

    study: str
    points: int
    axes: Mapping[str, int]
    store: str
    profile: str | None
    seconds_expected: float | None
    """All but compiling; None where a search by bounds was not done within the trial."""
    compile_seconds: float
    streaming_seconds: float | None
    """None where not every design is evaluated."""
    settling_seconds: float | None
    """Of a search by bounds that was done within the trial; None where it was not, or where there is none."""
    settled_in_trial: float | None
    """Share of the grid that a search by bounds settled in the trial."""
    storing_seconds: float
    """Computing and packing, or writing where the disk takes longer."""
    stored_points: int
    disk_bytes_expected: int
    disk_bytes_at_most: int
    disk_bytes_free: int
    disk_seconds_expected: float
    """Of writing and flushing those bytes, as the disk takes them now; it runs beside the rest."""
    processes: int
    memory_bytes_expected: int
    """Of each process."""
    stored: tuple[StoredCost, ...]
    out: str

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def plan_run(study: Study, out: Path | None, elsewhere: tuple[int, int, int] | None = None) -> Plan:
    """Try a study out, for this process and all its cores or for (processes, threads of each, cores) elsewhere.

    Raises InputError where it could not be run.
    """
    store, problem, folder = STORES[study.store], problem_of(study), out or OUTPUTS / study.name
    plan = shard_plan(study)
    if store.points:
        refuse_too_big(folder, plan)
    compiling, streaming, settling, share = _trial(problem, evaluates_all=store.summary)
    stored, storing, for_storing = _storing(study, problem, plan) if store.points else ((), 0.0, 0.0)
    processes, threads, cores = elsewhere or (1, _CORES, _CORES)
    faster = cores / _CORES
    streaming = None if streaming is None else streaming / faster
    size = sum(one.bytes for one in stored)
    flushing = size * _flush_seconds_per_byte(folder) if stored else 0.0
    storing = max(storing / faster, flushing)
    return Plan(
        study=study.name,
        points=study.space.size,
        axes={name: len(study.space[name]) for name in study.space.dims},
        store=study.store,
        profile=study.profile if store.points else None,
        seconds_expected=None if streaming is None and settling is None else (streaming or settling or 0.0) + storing,
        compile_seconds=compiling + for_storing,
        streaming_seconds=streaming,
        settling_seconds=settling,
        settled_in_trial=share,
        storing_seconds=storing,
        stored_points=plan.size if store.points else 0,
        disk_bytes_expected=size,
        disk_bytes_at_most=plan.required_bytes() if store.points else 0,
        disk_bytes_free=free_bytes(folder),
        disk_seconds_expected=flushing,
        processes=processes,
        memory_bytes_expected=_peak_memory() + _in_flight(stored, plan, threads),
        stored=stored,
        out=str(folder),
    )


def _in_flight(stored: Sequence[StoredCost], plan: ShardPlan, threads: int) -> int:
    """Bytes of the blocks that so many threads compute, pack and flush at once."""
    block = int(np.prod(plan.block)) if stored else 0
    return 2 * (threads + 1) * block * sum(stored_dtype(one.name).itemsize for one in stored)


def _flush_seconds_per_byte(folder: Path) -> float:
    """Seconds per byte of the disk: a file is written beside the folder, flushed, and removed."""
    random = os.urandom(_DISK_TRIAL_BYTES)
    try:
        with tempfile.TemporaryFile(dir=nearest_existing(folder)) as file:
            began = time.perf_counter()
            file.write(random)
            file.flush()
            os.fsync(file.fileno())
            return (time.perf_counter() - began) / len(random)
    except OSError as fault:
        raise refused(folder, fault) from fault


def _trial(problem: Problem, *, evaluates_all: bool) -> tuple[float, float | None, float | None, float | None]:
    """(seconds of compiling, of streaming, of settling, share settled)."""
    if evaluates_all:
        stream = Stream(problem)
        streaming = stream.seconds_expected()
        return stream.compile_seconds, streaming, None, None
    search = BranchSearch.of(problem)
    settling, share = _settled(search)
    return search.compile_seconds, None, settling, share


class _Enough(Exception):
    """The trial is over."""


def _settled(search: BranchSearch) -> tuple[float | None, float]:
    """(seconds of a search that ends within the trial, share settled)."""
    began, share = time.monotonic(), 0.0

    def follow(done: int, points: int) -> None:
        nonlocal share
        share = done / points
        if time.monotonic() - began > _TRIAL_SECONDS:
            raise _Enough

    try:
        return search.run(follow).seconds, 1.0
    except _Enough:
        return None, share


def _storing(study: Study, problem: Problem, plan: ShardPlan) -> tuple[tuple[StoredCost, ...], float, float]:
    """(cost of each stored name, seconds of computing and packing all, of compiling), from some shards."""
    began = time.perf_counter()
    block, files = evaluator_of(study, problem, plan), ShardFiles(study, plan)
    compiling = time.perf_counter() - began
    tried = [plan.shards[place] for place in np.unique(np.linspace(0, len(plan.shards) - 1, _TRIAL_SHARDS, dtype=int))]

    def pack(shard: Shard) -> None:
        write_block(block, plan, shard, files.image)

    began = time.perf_counter()
    deque(in_order(pack, tried), maxlen=0)
    storing = (time.perf_counter() - began) * plan.size / sum(shard.size for shard in tried)
    middle = tried[len(tried) // 2]
    values = block(plan.grid_positions(middle))
    return (
        tuple(_cost(name, array, study, plan.size / middle.size) for name, array in values.items()),
        storing,
        compiling,
    )


def _cost(name: str, array: np.ndarray[Any, Any], study: Study, shards: float) -> StoredCost:
    """Of one name in so many shards like this one."""
    began = time.perf_counter()
    filters = PROFILES[study.profile].filters_for(array.size)
    size = sum(memoryview(chunk).nbytes for chunk in packed(filters, iter([np.ascontiguousarray(array)])))
    seconds = (time.perf_counter() - began) * shards / _CORES
    return StoredCost(name, size / array.size, round(size * shards), seconds)


def _peak_memory() -> int:
    """Of this process so far, in bytes: the trial has run the same kernels with as many threads."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
