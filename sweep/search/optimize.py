"""Search a study: the best design as one objective under constraints, and a front by a search of its own."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna

from kvwall.objectives.register import STATUS_OK
from kvwall.objectives.status import STATUSES
from kvwall.spaces.errors import InputError
from kvwall.sweep.front import Front
from kvwall.sweep.objective import Objective
from kvwall.sweep.results import FrontTable
from kvwall.sweep.search.evaluator import BATCH, Evaluator, Scores
from kvwall.sweep.search.exact import MOST_POINTS, grid_optimum
from kvwall.sweep.search.front_sampler import FrontSampler
from kvwall.sweep.search.loop import Progress, Search
from kvwall.sweep.search.parameters import Parameters, Params, key
from kvwall.sweep.search.result import OptimizeResult
from kvwall.sweep.search.sampler import LocalSearchSampler
from kvwall.sweep.search.storage import KeptTrials, TrialStore

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

ExactOptimum = Callable[["Study"], float | None]

FRONT_SHARE = 0.5
"""Trials of the search for the front, as a share of those of the search for the best."""
_MOST_SEED = 2**32 - 1
_SAME = 1e-6
"""Relative difference that two compilations of one law may have in float32."""


def optimize(
    study: Study,
    *,
    trials: int | None = None,
    seed: int = 0,
    cold: bool = False,
    storage: str | None = None,
    front: FrontTable | None = None,
    progress: Progress | None = None,
    exact_optimum: ExactOptimum | None = None,
) -> OptimizeResult:
    """The best design of a study and a front, from `trials` trials (the study's own number by default).

    The search stays on the study's grid unless the study is `continuous`. With the exact `front` of the same study it
    begins from the front's designs and gives that front, unless `cold`: then the front only measures the regret.
    `exact_optimum` gives the best admissible value of the first objective, None where nothing is admissible; by
    default every point is evaluated, up to MOST_POINTS of them.

    `storage` is an SQLAlchemy URL or the path of an SQLite file. Another call with the same study, seed and `cold`
    goes on from the trials kept there; without it they live in memory. The same seed gives the same trials, however
    often it was interrupted. One writer at a time.

    Raises InputError where an argument is wrong, the storage cannot be used, or it holds trials of another version of
    the study. A study in which nothing tried is admissible gives `best` None and says in `rejected` what ruled it out.
    """
    began = time.monotonic()
    wanted = study.trials if trials is None else trials
    if wanted < 1 or not 0 <= seed <= _MOST_SEED:
        raise InputError(f"trials = {wanted}, seed = {seed}: trials is at least 1, a seed is from 0 to {_MOST_SEED}")
    run = _Run(study, wanted, seed, cold, front, progress)
    with _quiet():
        store = TrialStore(storage, study) if storage is not None else None
        try:
            found = run.search(store)
        finally:
            if store:
                store.close()
    optimum, reason = _optimum(study, front, exact_optimum)
    return run.result(found, optimum, reason, began)


@dataclass(frozen=True)
class _Found:
    """The designs tried, each once, and their scores."""

    tried: Sequence[Params]
    scores: Scores
    trials: int
    front_trials: int


class _Run:
    """One call: its searches and what they found."""

    def __init__(
        self, study: Study, trials: int, seed: int, cold: bool, front: FrontTable | None, progress: Progress | None
    ) -> None:
        self.study, self.seed, self.progress = study, seed, progress
        self.parameters = Parameters(study.space, study.continuous)
        self.trials = min(trials, self.parameters.size or trials)
        self.evaluator = Evaluator(study, self.parameters)
        self.start = "cold" if cold or front is None else "warm"
        self.front = None if cold else front
        self.whole = self.parameters.size is not None and trials >= self.parameters.size

    def search(self, store: TrialStore | None) -> _Found:
        """Both searches, or what earlier calls left of them to do."""
        sign = self.study.objectives[0].sign
        best = Search(
            "best",
            self.evaluator,
            self.study.objectives[:1],
            self.trials,
            LocalSearchSampler(self.parameters, sign, self.seed),
            self._kept(store, "best", self.study.objectives[:1]),
            first=self._warm_starts(),
        ).run(self.progress)
        others = []
        if self.front is None and len(self.study.objectives) > 1 and not self.whole:
            others = Search(
                "front",
                self.evaluator,
                self.study.objectives,
                math.ceil(self.trials * FRONT_SHARE),
                FrontSampler(self.parameters, self.seed),
                self._kept(store, "front", self.study.objectives),
            ).run(self.progress)
        tried = list({key(trial.params): trial.params for trial in [*best, *others]}.values())
        return _Found(tried, self.evaluator(tried), len(best), len(others))

    def _kept(self, store: TrialStore | None, stage: str, objectives: Sequence[Objective]) -> KeptTrials | None:
        if store is None:
            return None
        place = "continuous" if self.study.continuous else "grid"
        name = f"{self.study.name}/{self.study.spec_hash[:16]}/{place}/seed {self.seed}/{self.start}/{stage}"
        return store.kept(name, [objective.sense for objective in objectives])

    def _warm_starts(self) -> list[Params]:
        """Designs of the exact front: the best of each objective, and others spread along the first."""
        if self.front is None or not len(self.front):
            return []
        columns = [objective.sign * self.front.metrics[objective.metric] for objective in self.study.objectives]
        order = np.argsort(columns[0], kind="stable")
        spread = order[np.linspace(0, len(order) - 1, min(len(order), BATCH // 2)).astype(np.int64)]
        rows = dict.fromkeys([*(int(np.argmin(column)) for column in columns), *(int(row) for row in spread)])
        return [self.parameters.params(int(self.front.grid_index[row])) for row in rows]

    def result(self, found: _Found, optimum: float | None, reason: str | None, began: float) -> OptimizeResult:
        """Everything in the form that users read."""
        objective = self.study.objectives[0]
        admissible = np.flatnonzero(found.scores.admissible)
        best, regret = None, None
        rejected: tuple[str, ...] = ()
        if len(admissible):
            values = objective.sign * found.scores.objectives[admissible, 0]
            ties = admissible[values == values.min()]
            place = min((int(tie) for tie in ties), key=lambda tie: self._order(found.tried[tie]))
            best = self.evaluator.describe([found.tried[place]])[0]
            regret, reason = _regret(float(found.scores.objectives[place, 0]), optimum, objective.sign, reason)
        else:
            rejected = (*_rejected(self.evaluator, found.scores), *_missed(optimum))
            reason = "; ".join(rejected)
        return OptimizeResult(
            best=best,
            front=self._front(found),
            front_source="search" if self.front is None and not self.whole else "exact",
            trials=found.trials,
            front_trials=found.front_trials,
            seconds=time.monotonic() - began,
            regret=regret,
            reason=reason,
            rejected=rejected,
        )

    def _order(self, params: Params) -> tuple[Any, ...]:
        """Grid order, by which exact ties are settled; of designs off the grid, that of their parameters."""
        position = self.parameters.position(params)
        return (*(position[name] for name in self.study.space.dims), *(params[name] for name in self.parameters.free))

    def _front(self, found: _Found) -> list[dict[str, Any]]:
        if self.front is not None:
            return self.evaluator.describe([self.parameters.params(int(index)) for index in self.front.grid_index])
        rows = np.flatnonzero(found.scores.admissible)
        if not len(rows):
            return []
        rows = np.array(sorted(rows, key=lambda row: self._order(found.tried[int(row)])))
        front = Front(len(self.study.objectives))
        signs = np.array([objective.sign for objective in self.study.objectives])
        front.add(found.scores.objectives[rows] * signs, np.arange(len(rows)))
        return self.evaluator.describe([found.tried[int(row)] for row in rows[np.sort(front.index)]])


def _optimum(
    study: Study, front: FrontTable | None, exact_optimum: ExactOptimum | None
) -> tuple[float | None, str | None]:
    """The exact optimum of the first objective on the grid, or why it is not known."""
    objective = study.objectives[0]
    if study.continuous:
        return None, "regret: the search left the grid, whose optimum is no bound for it"
    if front is not None and len(front):
        return objective.sign * float(np.min(objective.sign * front.metrics[objective.metric])), None
    if exact_optimum is not None:
        return exact_optimum(study), None
    if study.space.size > MOST_POINTS:
        return None, f"regret: the exact optimum of {study.space.size:,} points is not known; `kvwall sweep` finds it"
    return grid_optimum(study), None


def _regret(best: float, optimum: float | None, sign: float, reason: str | None) -> tuple[float | None, str | None]:
    if optimum is None:
        return None, reason or "regret: the exact optimum is not known"
    if not math.isfinite(optimum) or optimum == 0:
        return None, f"regret: the exact optimum is {optimum:g}, of which no fraction can be taken; best is {best:g}"
    regret = sign * (best - optimum) / abs(optimum)
    return regret if abs(regret) > _SAME else 0.0, reason


def _rejected(evaluator: Evaluator, scores: Scores) -> Iterator[str]:
    """What rules out every design tried."""
    feasible = scores.status == STATUS_OK
    counts = ((name, int(np.sum(scores.status == code))) for code, name in enumerate(STATUSES) if code != STATUS_OK)
    lost = ", ".join(f"{name} {count:,}" for name, count in counts if count)
    yield f"no design tried is admissible: of {len(scores):,} designs {int(feasible.sum()):,} are feasible" + (
        f" (others: {lost})" if lost else ""
    )
    broken = scores.violations[feasible] > 0
    for place, rule in enumerate(evaluator.rules):
        count = int(broken[:, place].sum())
        if rule == "sourced" and count:
            yield f"an objective has no sourced figure in {count:,} of the {int(feasible.sum()):,} feasible designs"
        elif rule not in {"status", "sourced"}:
            yield f"constraint {rule} rejects {count:,} of the {int(feasible.sum()):,} feasible designs"


def _missed(optimum: float | None) -> Iterator[str]:
    if optimum is not None:
        yield "yet the grid holds admissible designs: give more trials, or let `kvwall sweep` find them"


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna says nothing of its own; faults come as errors."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
