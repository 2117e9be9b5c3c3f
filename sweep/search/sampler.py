"""Which designs to try next: local search around the best ones, for one objective under constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from kvwall.sweep.search.evaluator import BATCH
from kvwall.sweep.search.parameters import Parameters, Params, key

Rank: TypeAlias = tuple[bool, float, int]
"""Smaller is better: admissible before not, then the value (or how far outside), then the older trial."""

RANDOM_TRIALS = 100
"""Trials before anything is learned."""
_NICHE_SHARE = 0.25
_DIFFERENCE_SHARE = 0.5
_SMALL_SHARE = 0.4
_AXES_MOVED = (0.4, 0.35, 0.25)
"""Chances that one, two or three parameters move together: constraints make most single moves worse."""
_NICHE_CHOICES = 8
"""A parameter with at most so many choices gives a niche to each of them."""
_GREED = {"incumbent": 2.0, "difference": 10.0, "niche": 10.0 / 3.0}
"""Mean rank of the trial that a proposal starts from."""
_ELITE = 40
_ATTEMPTS = 60
_SMALLEST_FLOAT_STEP = 1e-4
"""Of a float, as a share of its range."""
_SMALL_SHARE_OF_RANGE = 0.05
"""Longest small move of a float, or of a whole number that is no grid index."""
_INDEX_SPAN = 100
"""Up to so many values a whole number is stepped by one or two when it moves little."""


@dataclass
class _History:
    """What the finished trials of earlier batches taught."""

    sign: float
    count: int = 0
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    elite: list[tuple[Rank, Params]] = field(default_factory=list)
    niches: dict[tuple[str, Any], tuple[Rank, Params]] = field(default_factory=dict)
    rivals: list[tuple[Rank, str, Params]] = field(default_factory=list)
    """Best trial of each choice that the incumbent did not make, with the parameter that makes it."""

    def learn(self, trials: Sequence[FrozenTrial], narrow: Sequence[str]) -> None:
        for trial in trials[self.count :]:
            rank = rank_of(trial, self.sign)
            self.elite.append((rank, trial.params))
            for name in narrow:
                niche = (name, trial.params[name])
                if niche not in self.niches or rank < self.niches[niche][0]:
                    self.niches[niche] = (rank, trial.params)
        self.count = len(trials)
        self.elite = sorted(self.elite, key=lambda entry: entry[0])[:_ELITE]
        best = self.elite[0][1]
        self.rivals = sorted(
            ((rank, name, params) for (name, choice), (rank, params) in self.niches.items() if best[name] != choice),
            key=lambda entry: entry[:2],
        )


def rank_of(trial: FrozenTrial, sign: float) -> Rank:
    """How good a finished trial is; `sign` makes a smaller value better."""
    outside = sum(max(0.0, violation) for violation in trial.constraints.values())
    return outside > 0, outside if outside > 0 else sign * (trial.value or 0.0), trial.number


class LocalSearchSampler(BaseSampler):
    """Moves of the best designs found so far, never one already tried.

    After RANDOM_TRIALS uniform ones, a proposal is one of three kinds. *Difference*: a good design plus the
    difference of two others, which follows a constraint's boundary along the trade the good ones make. *Niche*: a
    move of the best design that has another chip, degree or format than the incumbent, so that a rival is tuned before
    it is judged. *Incumbent*: a move of the best design. A move changes one to three parameters, by one or two steps
    or by a distance drawn log-uniformly up to the whole range.

    A proposal depends on the seed, the trial's number and the trials of earlier batches only, so that an interrupted
    search goes on as if it had not been.
    """

    def __init__(self, parameters: Parameters, sign: float, seed: int) -> None:
        self._parameters = parameters
        self._seed = seed
        self._history = _History(sign)
        self._independent = RandomSampler(seed=seed)
        self._narrow = tuple(n for n, d in parameters.distributions.items() if _choices(d) <= _NICHE_CHOICES)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter, from the first trial on."""
        return self._parameters.distributions

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """For a parameter that is none of the study's: uniform."""
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next design to try."""
        if not search_space:
            return {}
        draw = np.random.default_rng([self._seed, trial.number])
        self._learn(study, trial)
        for attempt in range(_ATTEMPTS):
            if trial.number < RANDOM_TRIALS or not self._history.elite:
                proposal = {name: _uniform(draw, each) for name, each in search_space.items()}
            else:
                proposal = self._propose(draw, attempt // 10)
            if key(proposal) not in self._history.seen:
                break
        else:
            proposal = self._untried(draw) or proposal
        self._history.seen.add(key(proposal))
        return proposal

    def _learn(self, study: Study, trial: FrozenTrial) -> None:
        earlier = trial.number - trial.number % BATCH
        known = study.get_trials(deepcopy=False)
        self._history.seen.update(key(t.params) for t in known[self._history.count :] if t.params)
        if earlier > self._history.count:
            self._history.learn([t for t in known[:earlier] if t.state == TrialState.COMPLETE], self._narrow)

    def _propose(self, draw: np.random.Generator, more: int) -> dict[str, Any]:
        kind = draw.random()
        history = self._history
        if kind < _NICHE_SHARE and history.rivals:
            _, held, start = history.rivals[_place(draw, "niche", len(history.rivals))]
            return self._moved(draw, start, more, held)
        start = history.elite[_place(draw, "incumbent", len(history.elite))][1]
        if draw.random() < _DIFFERENCE_SHARE:
            return self._shifted(draw, start)
        return self._moved(draw, start, more)

    def _moved(self, draw: np.random.Generator, start: Params, more: int, held: str = "") -> dict[str, Any]:
        """The start with a few parameters moved; `more` of them after attempts that gave nothing new."""
        proposal = dict(start)
        free = [name for name in proposal if name != held] or list(proposal)
        count = min(1 + int(draw.choice(len(_AXES_MOVED), p=_AXES_MOVED)) + more, len(free))
        small = draw.random() < _SMALL_SHARE
        for name in draw.choice(free, count, replace=False):
            proposal[str(name)] = _step(draw, proposal[name], self._parameters.distributions[name], small)
        return proposal

    def _shifted(self, draw: np.random.Generator, start: Params) -> dict[str, Any]:
        """The start plus the difference of two good trials, with one more move half of the time."""
        proposal = dict(start)
        elite = self._history.elite
        first, second = (elite[_place(draw, "difference", len(elite))][1] for _ in range(2))
        for name, each in self._parameters.distributions.items():
            if isinstance(each, CategoricalDistribution):
                proposal[name] = first[name] if draw.random() < 0.3 else start[name]
            elif isinstance(each, IntDistribution | FloatDistribution) and draw.random() < 0.8:
                proposal[name] = min(max(start[name] + first[name] - second[name], each.low), each.high)
        if draw.random() < 0.5:
            name = str(draw.choice(list(proposal)))
            proposal[name] = _step(draw, proposal[name], self._parameters.distributions[name], small=False)
        return proposal

    def _untried(self, draw: np.random.Generator) -> dict[str, Any] | None:
        """On a grid nearly used up: the next untried point after a random one."""
        size = self._parameters.size
        if size is None or size > 100 * (len(self._history.seen) + 1):
            return None
        first = int(draw.integers(size))
        for index in range(first, first + size):
            params = self._parameters.params(index % size)
            if key(params) not in self._history.seen:
                return params
        return None


def _place(draw: np.random.Generator, kind: str, length: int) -> int:
    return min(int(draw.exponential(_GREED[kind])), length - 1)


def _choices(each: BaseDistribution) -> float:
    if isinstance(each, CategoricalDistribution):
        return len(each.choices)
    return each.high - each.low + 1 if isinstance(each, IntDistribution) else math.inf


def _uniform(draw: np.random.Generator, each: BaseDistribution) -> Any:
    if isinstance(each, CategoricalDistribution):
        return each.choices[int(draw.integers(len(each.choices)))]
    if isinstance(each, IntDistribution):
        return int(draw.integers(each.low, each.high + 1))
    if isinstance(each, FloatDistribution):
        return float(draw.uniform(each.low, each.high))
    raise TypeError(f"{each} is no distribution of a study's parameters")


def _step(draw: np.random.Generator, value: Any, each: BaseDistribution, small: bool) -> Any:
    """Another value of a parameter: near it if `small`, else at a log-uniform distance. Names change at random."""
    if isinstance(each, CategoricalDistribution):
        others = [choice for choice in each.choices if choice != value]
        return value if small else others[int(draw.integers(len(others)))]
    if isinstance(each, IntDistribution):
        span = each.high - each.low
        if small and span <= _INDEX_SPAN:
            return int(_within(draw, value, 1 + int(draw.random() < 0.3), each, small))
        longest = _SMALL_SHARE_OF_RANGE * span if small else float(span)
        return int(_within(draw, value, int(math.exp(draw.uniform(0.0, math.log(longest + 0.999)))), each, small))
    if isinstance(each, FloatDistribution):
        longest = _SMALL_SHARE_OF_RANGE if small else 1.0
        by_share = math.exp(draw.uniform(math.log(_SMALLEST_FLOAT_STEP), math.log(longest)))
        return float(_within(draw, value, by_share * (each.high - each.low), each, small))
    return value


def _within(
    draw: np.random.Generator, value: float, by: float, each: IntDistribution | FloatDistribution, small: bool
) -> float:
    """The value moved up or down. A long move that leaves the range turns round; a short one stops at its end.

    So a value at the end of its range, where the best ones often are, stays there in half of the joint short moves.
    """
    by = by if draw.random() < 0.5 else -by
    if not small and not each.low <= value + by <= each.high:
        by = -by
    return min(max(value + by, each.low), each.high)
