"""Running a study: the whole grid streamed, a slice stored, the front and the summary written; resumable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvwall.objectives.register import LABELS, label_register
from kvwall.objectives.status import STATUSES
from kvwall.spaces.errors import InputError
from kvwall.sweep import checkpoint
from kvwall.sweep.branch import Branched, BranchSearch
from kvwall.sweep.front import Front
from kvwall.sweep.keeping import REDUCED, STORES
from kvwall.sweep.kernel import Problem
from kvwall.sweep.objective import signed
from kvwall.sweep.parts import PassesInParts
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.progress import Silent, Watch, followed
from kvwall.sweep.results import FrontTable
from kvwall.sweep.store import CERTIFICATE, ResultsFolder, open_front, open_summary
from kvwall.sweep.storing import store_slice
from kvwall.sweep.stream import Stream, Streamed
from kvwall.sweep.study import Study

if TYPE_CHECKING:
    from kvwall.sweep.cluster import Cluster
    from kvwall.sweep.executor import Executor

OUTPUTS = Path("outputs")


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did; `to_json` is what `kvwall sweep --json` prints."""

    points: int
    feasible: int | None
    admissible: int | None
    """Both None where not every design was evaluated."""
    seconds: float
    """Evaluating and storing, without compiling."""
    points_per_second: float | None
    """Designs evaluated of the streamed grid; None where an earlier run had finished it, or where none was streamed."""
    compile_seconds: float
    front_size: int
    stored_points: int
    statuses: Mapping[str, int]
    """Status -> points, those that occur; empty where not every design was evaluated."""
    out: str
    certificate: Mapping[str, int] | None = None
    """What settled every design of the grid, where the front was found by bounds."""
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self) | {"notices": list(self.notices), "statuses": dict(self.statuses)}


def problem_of(study: Study) -> Problem:
    """What the kernels compute for a study."""
    return Problem(study.columns(), study.task, study.objectives, study.constraints)


def run_sweep(
    study: Study, out: Path | None = None, watch: Watch | None = None, cluster: Cluster | None = None
) -> SweepResult:
    """Run a study into its folder, or finish what an earlier run began; in this process, or by workers of a cluster.

    Where no design satisfies the constraints, `why_nothing` says why. Raises InputError where the folder cannot be
    used.
    """
    watch = watch or Silent()
    if cluster:
        cluster.check(study)
    with ResultsFolder.create_or_resume(out or OUTPUTS / study.name, study) as folder:
        folder.log("started", study=study.name, spec_hash=study.spec_hash, points=study.space.size)
        try:
            if not STORES[study.store].summary:
                result = _run_by_bounds(study, folder, watch)
            else:
                with cluster.employed(study, folder, watch) if cluster else nullcontext() as executor:
                    result = _run(study, folder, watch, executor)
        except BaseException as fault:
            with suppress(InputError):  # a full disk refuses this too; what is told is what went wrong first
                folder.log("stopped", reason=type(fault).__name__, message=str(fault)[:500])
            raise
        folder.log("finished", **result.to_json())
    return result


def _run(study: Study, folder: ResultsFolder, watch: Watch, executor: Executor | None) -> SweepResult:
    problem = problem_of(study)
    stream = Stream(problem)  # refuses what cannot be streamed before anything is stored
    stored = store_slice(study, problem, folder, watch, executor)
    done = _finished(folder.path, study.spec_hash)
    if done is None:
        streamed = _stream(study, stream, folder, watch, executor)
        folder.write_summary(streamed.summary)
        table = front_table(problem, streamed.front)
        folder.write_front(table)
        checkpoint.remove(folder.path)
        folder.log("streamed", rows=streamed.rows, rows_searched=streamed.rows_searched, seconds=streamed.seconds)
        done = _Done(streamed.summary.admissible, len(table), _named(streamed.summary.totals["status"]))
        rate, seconds, compiling = streamed.points / streamed.seconds, streamed.seconds, streamed.compile_seconds
    else:
        rate, seconds, compiling = None, 0.0, 0.0
    return SweepResult(
        points=study.space.size,
        feasible=done.statuses.get("ok", 0),
        admissible=done.admissible,
        seconds=stored.seconds + seconds,
        points_per_second=rate,
        compile_seconds=stored.compile_seconds + compiling,
        front_size=done.front_size,
        stored_points=stored.points,
        statuses=done.statuses,
        out=str(folder.path),
        notices=tuple(folder.notices),
    )


def _run_by_bounds(study: Study, folder: ResultsFolder, watch: Watch) -> SweepResult:
    """Find the front alone."""
    known, seconds, compiling = _certified(folder.path, study.spec_hash), 0.0, 0.0
    if known is None:
        problem = problem_of(study)
        found = _search(study, problem, folder, watch)
        table, settled = front_table(problem, found.front), found.certificate.counts()
        folder.write_front(table, {CERTIFICATE: json.dumps(settled)})
        checkpoint.remove(folder.path)
        folder.log("searched", seconds=found.seconds, **settled)
        known, seconds, compiling = (settled, len(table)), found.seconds, found.compile_seconds
    settled, front_size = known
    return SweepResult(
        points=study.space.size,
        feasible=None,
        admissible=None,
        seconds=seconds,
        points_per_second=None,
        compile_seconds=compiling,
        front_size=front_size,
        stored_points=0,
        statuses={},
        out=str(folder.path),
        certificate=settled,
        notices=tuple(folder.notices),
    )


def _certified(folder: Path, spec_hash: str) -> tuple[dict[str, int], int] | None:
    """What settled the designs of this very study, and how many are on its front; None where no run has finished."""
    try:
        front = open_front(folder)
    except InputError:
        return None
    if front.attrs.get("spec_hash") != spec_hash or CERTIFICATE not in front.attrs:
        return None
    return json.loads(front.attrs[CERTIFICATE]), front.sizes["point"]


@dataclass(frozen=True)
class _Done:
    """What a finished stream came to."""

    admissible: int
    front_size: int
    statuses: Mapping[str, int]


def _named(counts: np.ndarray[Any, Any]) -> dict[str, int]:
    """Points of each status that occurs."""
    return {name: int(count) for name, count in zip(STATUSES, counts, strict=True) if count}


def _finished(folder: Path, spec_hash: str) -> _Done | None:
    """What an earlier run of this very study found, or None where it did not finish."""
    try:
        summary, front = open_summary(folder), open_front(folder)
    except InputError:
        return None
    if {summary.attrs.get("spec_hash"), front.attrs.get("spec_hash")} != {spec_hash}:
        return None
    return _Done(int(summary["admissible"]), front.sizes["point"], _named(summary["status_count"].values))


def _stream(study: Study, stream: Stream, folder: ResultsFolder, watch: Watch, executor: Executor | None) -> Streamed:
    keeper = checkpoint.Keeper(folder.path, study.spec_hash)
    if executor is not None:
        executor.start()
        passes = PassesInParts(stream, executor)
        return stream.run(followed(watch, "compiling and streaming", "points"), keeper, passes)
    watch.stage("compiling", 1, "study")
    stream.compile()
    watch.update(1)
    return stream.run(followed(watch, "streaming", "points"), keeper)


def _search(study: Study, problem: Problem, folder: ResultsFolder, watch: Watch) -> Branched:
    watch.stage("compiling", 1, "study")
    search = BranchSearch.of(problem)
    watch.update(1)
    return search.run(followed(watch, "settling", "points"), checkpoint.Keeper(folder.path, study.spec_hash))


def front_table(problem: Problem, front: Front) -> FrontTable:
    """The front in grid order with every metric and label, in float64.

    Members that only float32's last bits kept apart are settled by their float64 objectives: of equal ones the lowest
    grid index stays, of one that dominates another only the better.
    """
    found = evaluate_designs(problem, front.index)
    settled = Front(len(problem.objectives), np.float64)
    settled.add(signed(problem.objectives, found), front.index, front.multiplicity)
    in_grid_order = np.argsort(settled.index)
    rows = {int(index): row for row, index in enumerate(front.index)}
    kept = np.array([rows[int(index)] for index in settled.index[in_grid_order]], np.int64)
    return FrontTable(
        grid_index=front.index[kept],
        multiplicity=settled.multiplicity[in_grid_order],
        metrics={name: array[kept] for name, array in found.items() if name not in LABELS},
        labels={name: found[name][kept] for name in label_register(problem.mode)},
    )


def why_nothing(study: Study, folder: str | Path) -> list[str]:
    """Sentences that say what rules everything out: statuses, each constraint, objectives that no source allows."""
    if not STORES[study.store].summary:
        settled, _ = _certified(Path(folder), study.spec_hash) or ({}, 0)
        infeasible, rejected = settled.get("infeasible_points", 0), settled.get("rejected_points", 0)
        return [
            f"no design is admissible: of {study.space.size:,} points {infeasible:,} are infeasible, and constraints, "
            f'or objectives without a source, reject {rejected:,}; store = "{REDUCED}" says which'
        ]
    summary = open_summary(folder)
    points, feasible = int(summary["points"]), int(summary["feasible"])
    statuses = zip(summary["status"].values, summary["status_count"].values, strict=True)
    lost = ", ".join(f"{name} {int(count):,}" for name, count in statuses if count and name != "ok")
    others = f" (others: {lost})" if lost else ""
    said = [f"no design is admissible: of {points:,} points {feasible:,} are feasible{others}"]
    if "constraint" in summary:
        for name, count in zip(summary["constraint"].values, summary["rejected"].values, strict=True):
            said.append(f"constraint {name} alone rejects {int(count):,} of the {feasible:,} feasible points")
    for objective in study.objectives if feasible else ():
        extremes = [summary[name] for name in summary if str(name).startswith(f"{objective.metric}_lowest_by_")]
        if extremes and all(bool(np.all(np.isnan(extreme))) for extreme in extremes):
            said.append(f"objective {objective.metric} has no value anywhere: a figure it needs has no source")
    return said
