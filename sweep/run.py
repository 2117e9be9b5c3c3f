"""Running a study: the whole grid streamed, a slice stored, the front and the summary written; resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvwall.objectives.register import LABELS
from kvwall.spaces.errors import InputError, NothingAdmissible
from kvwall.sweep import checkpoint
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import Problem
from kvwall.sweep.points import BlockEvaluator, evaluate_designs
from kvwall.sweep.progress import Silent, Watch
from kvwall.sweep.results import FrontTable
from kvwall.sweep.store import ResultsFolder, open_front, open_summary
from kvwall.sweep.stream import Stream, Streamed
from kvwall.sweep.study import Study

OUTPUTS = Path("outputs")
_SECONDS_BETWEEN_CHECKPOINTS = 10.0


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did; `to_json` is what `kvwall sweep --json` prints."""

    points: int
    feasible: int
    admissible: int
    seconds: float
    """Evaluating and storing, without compiling."""
    points_per_second: float | None
    """Of the streamed grid; None where an earlier run had finished it."""
    compile_seconds: float
    front_size: int
    stored_points: int
    out: str
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self) | {"notices": list(self.notices)}


def problem_of(study: Study) -> Problem:
    """What the kernels compute for a study."""
    return Problem(study.columns(), study.task, study.objectives, study.constraints)


def run_sweep(study: Study, out: Path | None = None, watch: Watch | None = None) -> SweepResult:
    """Run a study into its folder, or finish what an earlier run began.

    Raises InputError where the folder cannot be used; NothingAdmissible, after everything is written, where no design
    satisfies the constraints.
    """
    watch = watch or Silent()
    with ResultsFolder.create_or_resume(out or OUTPUTS / study.name, study) as folder:
        folder.log("started", study=study.name, spec_hash=study.spec_hash, points=study.space.size)
        try:
            result = _run(study, folder, watch)
        except BaseException as fault:
            folder.log("stopped", reason=type(fault).__name__, message=str(fault)[:500])
            raise
        folder.log("finished", **result.to_json())
    if result.admissible == 0:
        raise NothingAdmissible(why_nothing(open_summary(out or OUTPUTS / study.name)))
    return result


def _run(study: Study, folder: ResultsFolder, watch: Watch) -> SweepResult:
    problem = problem_of(study)
    began = time.perf_counter()
    stored = _store(study, problem, folder, watch)
    storing = time.perf_counter() - began
    done = _finished(folder.path, study.spec_hash)
    if done is None:
        streamed = _stream(study, problem, folder, watch)
        folder.write_summary(streamed.summary)
        folder.write_front(front_table(problem, streamed.front))
        checkpoint.remove(folder.path)
        folder.log("streamed", rows=streamed.rows, rows_searched=streamed.rows_searched, seconds=streamed.seconds)
        done = _Done(streamed.summary.feasible, streamed.summary.admissible, len(streamed.front))
        rate, seconds, compiling = study.space.size / streamed.seconds, streamed.seconds, streamed.compile_seconds
    else:
        rate, seconds, compiling = None, 0.0, 0.0
    return SweepResult(
        points=study.space.size,
        feasible=done.feasible,
        admissible=done.admissible,
        seconds=seconds + storing,
        points_per_second=rate,
        compile_seconds=compiling,
        front_size=done.front_size,
        stored_points=stored,
        out=str(folder.path),
        notices=tuple(folder.notices),
    )


@dataclass(frozen=True)
class _Done:
    """What a finished stream came to."""

    feasible: int
    admissible: int
    front_size: int


def _finished(folder: Path, spec_hash: str) -> _Done | None:
    """What an earlier run of this very study found, or None where it did not finish."""
    try:
        summary, front = open_summary(folder), open_front(folder)
    except InputError:
        return None
    if {summary.attrs.get("spec_hash"), front.attrs.get("spec_hash")} != {spec_hash}:
        return None
    return _Done(int(summary["feasible"]), int(summary["admissible"]), front.sizes["point"])


def _store(study: Study, problem: Problem, folder: ResultsFolder, watch: Watch) -> int:
    """Write the shards that are missing, and the view over all; the number of points stored in all."""
    plan, missing = folder.plan(), folder.missing_shards()
    if missing:
        names = tuple(dict.fromkeys((*study.keep, "status")))
        block = BlockEvaluator(problem, dict(zip(plan.dims, plan.block, strict=True)), names)
        watch.stage("storing", sum(shard.size for shard in missing), "points")
        done = 0
        for shard in missing:
            values = block(plan.grid_positions(shard))
            folder.write_shard(shard, {name: values[name] for name in study.keep}, values["status"])
            done += shard.size
            watch.update(done)
    folder.write_view()
    return plan.size


def _stream(study: Study, problem: Problem, folder: ResultsFolder, watch: Watch) -> Streamed:
    stream = Stream(problem)
    watch.stage("compiling", 1, "study")
    stream.compile()
    watch.update(1)
    watch.stage("streaming", study.space.size, "points")
    keeper = _CheckpointKeeper(folder.path, study.spec_hash)
    return stream.run(lambda done, points: watch.update(done), keeper)


class _CheckpointKeeper:
    """Keeps the state of a stream in its folder, every ten seconds."""

    def __init__(self, folder: Path, spec_hash: str) -> None:
        self._folder, self._spec_hash = folder, spec_hash
        self._kept = time.monotonic()

    def last(self) -> Mapping[str, np.ndarray[Any, Any]] | None:
        return checkpoint.load(self._folder, self._spec_hash)

    def offer(self, arrays: Callable[[], dict[str, np.ndarray[Any, Any]]]) -> None:
        if time.monotonic() - self._kept >= _SECONDS_BETWEEN_CHECKPOINTS:
            checkpoint.save(self._folder, self._spec_hash, arrays())
            self._kept = time.monotonic()


def front_table(problem: Problem, front: Front) -> FrontTable:
    """The front in grid order with every metric and label; objectives as they were compared, the rest in float64."""
    order = np.argsort(front.index)
    found = evaluate_designs(problem, front.index[order])
    for place, objective in enumerate(problem.objectives):
        found[objective.metric] = front.values[order, place].astype(np.float64) * objective.sign
    return FrontTable(
        grid_index=front.index[order],
        multiplicity=front.multiplicity[order],
        metrics={name: array for name, array in found.items() if name not in LABELS},
        labels={name: found[name] for name in LABELS},
    )


def why_nothing(summary: xr.Dataset) -> list[str]:
    """Sentences that say what rules everything out: the status of most points, then each constraint."""
    points, feasible = int(summary["points"]), int(summary["feasible"])
    statuses = zip(summary["status"].values, summary["status_count"].values, strict=True)
    lost = ", ".join(f"{name} {int(count):,}" for name, count in statuses if count and name != "ok")
    others = f" (others: {lost})" if lost else ""
    said = [f"no design is admissible: of {points:,} points {feasible:,} are feasible{others}"]
    if "constraint" in summary:
        for name, count in zip(summary["constraint"].values, summary["rejected"].values, strict=True):
            said.append(f"constraint {name} alone rejects {int(count):,} of the {feasible:,} feasible points")
    return said
