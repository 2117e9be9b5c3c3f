"""Kernels of one study compiled once for all tests of a file: what they compute is no different, only sooner there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvwall.sweep import dry_run, run, storing
from kvwall.sweep.points import DesignEvaluator
from kvwall.sweep.study import Study


def _computed(study: Study) -> str:
    """All of a study but what it keeps, and how."""
    return json.dumps({name: value for name, value in study.spec().items() if name not in _KEPT}, sort_keys=True)


_KEPT = {"store", "profile", "keep", "slice"}


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Sweeps of equal studies share problems, streams and evaluators of shards and of designs."""
    made: dict[Any, Any] = {}
    kept = []  # so that no id is given to another object

    def once(make: Callable[..., Any], key: Callable[..., Any]) -> Callable[..., Any]:
        def shared(*given: Any) -> Any:
            kept.append(given)
            place = (make, key(*given))
            if place not in made:
                made[place] = make(*given)
            return made[place]

        return shared

    usual = run.problem_of
    studies: dict[int, Study] = {}

    def noted(study: Study) -> Any:
        problem = usual(study)
        studies[id(problem)] = study
        return problem

    # of a problem of its own, as it computes in float64, and columns keep the tables they have made
    designs = once(lambda problem: DesignEvaluator(usual(studies[id(problem)])), id)
    with pytest.MonkeyPatch.context() as patch:
        problem_of = once(noted, _computed)
        evaluator_of = once(
            storing.evaluator_of,
            lambda study, problem, plan: (id(problem), plan.dims, plan.block, study.keep, study.profile),
        )
        for module in (run, dry_run):
            patch.setattr(module, "problem_of", problem_of)
        for module in (storing, dry_run):
            patch.setattr(module, "evaluator_of", evaluator_of)
        stream = once(run.Stream, id)
        patch.setattr(run, "Stream", stream)
        patch.setattr(dry_run, "Stream", stream)
        patch.setattr(run, "evaluate_designs", lambda problem, index: designs(problem)(index))
        yield
