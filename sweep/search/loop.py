"""Ask, score and tell, a batch at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from kvwall.sweep.objective import Objective
from kvwall.sweep.search.evaluator import BATCH, Evaluator
from kvwall.sweep.search.parameters import Params, key
from kvwall.sweep.search.storage import KeptTrials


@dataclass(frozen=True)
class SearchProgress:
    """Where a search stands."""

    stage: str
    done: int
    total: int
    seconds: float
    """Since this call began the stage."""
    new: int
    """Trials scored by this call."""
    best: float | None
    """Of the first objective, over admissible trials."""


Progress = Callable[[SearchProgress], None]


@dataclass(frozen=True)
class Search:
    """One search of a study: what it seeks, how it samples, where its trials are kept."""

    stage: str
    evaluator: Evaluator
    objectives: tuple[Objective, ...]
    trials: int
    sampler: BaseSampler
    """Its proposals depend on the seed, the trial's number and the trials of earlier batches only."""
    kept: KeptTrials | None = None
    first: Sequence[Params] = ()
    """Designs to try before the sampler is asked."""

    def run(self, progress: Progress | None) -> list[FrozenTrial]:
        """Finished trials, those of earlier calls included. What is finished when it is interrupted is kept."""
        finished = self.kept.finished() if self.kept else []
        study = optuna.create_study(directions=[objective.sense for objective in self.objectives], sampler=self.sampler)
        study.add_trials(finished)
        self._enqueue(study, finished)
        began, before = time.monotonic(), len(finished)
        while len(finished) < self.trials:
            count = min(BATCH - len(finished) % BATCH, self.trials - len(finished))
            batch = self._batch(study, count)
            if self.kept:
                self.kept.add(batch)
            finished = [*finished, *batch]
            if progress:
                spent = time.monotonic() - began
                best = best_value(finished, self.objectives[0])
                new = len(finished) - before
                progress(SearchProgress(self.stage, len(finished), self.trials, spent, new, best))
        return finished

    def _enqueue(self, study: optuna.Study, finished: Sequence[FrozenTrial]) -> None:
        """What a dead run left open first, then the designs to begin with; none that was tried."""
        tried = {key(trial.params) for trial in finished}
        waiting = [*(self.kept.abandoned() if self.kept else []), *self.first]
        for params in waiting[: max(0, self.trials - len(finished))]:
            if key(params) not in tried:
                tried.add(key(params))
                study.enqueue_trial(dict(params))

    def _batch(self, study: optuna.Study, count: int) -> list[FrozenTrial]:
        asked = [study.ask(self.evaluator.parameters.distributions) for _ in range(count)]
        scores = self.evaluator([trial.params for trial in asked])
        told = []
        for trial, values, violations in zip(asked, scores.objectives, scores.violations, strict=True):
            for rule, violation in zip(self.evaluator.rules, violations, strict=True):
                trial.set_constraint(rule, float(violation))
            told.append(study.tell(trial, [_told(*each) for each in zip(self.objectives, values, strict=False)]))
        return told


def _told(objective: Objective, value: Any) -> float:
    """The value; where a figure has no source, the worst there is (a broken rule says so besides)."""
    return objective.sign * float("inf") if np.isnan(value) else float(value)


def best_value(trials: Sequence[FrozenTrial], objective: Objective) -> float | None:
    """Best first objective of the admissible trials."""
    found = [trial.values[0] for trial in trials if all(v <= 0 for v in trial.constraints.values())]
    return objective.sign * min(objective.sign * value for value in found) if found else None
