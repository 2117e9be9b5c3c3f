"""Which designs to try next in the search for a front: NSGA-II that an interruption does not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, NSGAIISampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from kvwall.sweep.search.parameters import Parameters

POPULATION = 100
"""Trials of a generation; a whole number of batches, so that a batch belongs to one generation."""


class FrontSampler(BaseSampler):
    """NSGA-II for several objectives under constraints.

    A proposal depends on the seed, the trial's number and the earlier generations only, so that an interrupted search
    goes on as if it had not been: each trial has random numbers of its own.
    """

    def __init__(self, parameters: Parameters, seed: int) -> None:
        self._space = {name: each for name, each in parameters.distributions.items() if not each.single()}
        self._seed = seed
        self._number = -1
        self._sampler = _Generations(population_size=POPULATION, seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter that has a choice."""
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A child of the last generation, less what mutates; nothing in the first generation."""
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """For the first generation, and for what mutates: uniform."""
        return self._of(trial).sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Let NSGA-II write down what it needs to know of the trial."""
        self._sampler.after_trial(study, trial, state, values)

    def _of(self, trial: FrozenTrial) -> NSGAIISampler:
        if trial.number != self._number:
            own = np.random.SeedSequence([self._seed, trial.number]).generate_state(1)
            self._sampler = _Generations(population_size=POPULATION, seed=int(own[0]))
            self._number = trial.number
        return self._sampler


class _Generations(NSGAIISampler):
    """NSGA-II whose parents always come in the order of their numbers, chosen anew or remembered."""

    def select_parent(self, study: Study, generation: int) -> list[FrozenTrial]:
        """Parents of a generation."""
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)
