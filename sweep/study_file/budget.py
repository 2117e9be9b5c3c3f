"""[quality.budget] of a study: the most that may be lost on each of some tasks, each at a confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.quality_tasks import TASK_NAMES
from kvwall.sweep.quality_budget import UPPER, Budget, checked_most, confidence_with
from kvwall.sweep.study_file.lines import KeyPath, LocatedFaults
from kvwall.sweep.study_file.sections import BudgetSection, QualitySection, validated

_PATH: KeyPath = ("quality", "budget")


def read_budgets(
    stated: object, quality: QualitySection, constraints: Mapping[str, Any], faults: LocatedFaults
) -> tuple[Budget, ...]:
    """The budgets in the order of the file, none that a constraint of the file states as well."""
    if not isinstance(stated, dict):
        return ()  # its type is a fault of the section
    found = [budget for task, what in stated.items() if (budget := _budget(task, what, faults))]
    for budget in found:
        same = {budget.metric, *([UPPER] if budget.task == quality.task else [])} & constraints.keys()
        for metric in sorted(same):
            faults.add(
                (*_PATH, budget.task),
                f"{budget.task} has a budget here and [constraints] bounds {metric}, which is the same: keep one",
            )
    _check_confidences(quality.confidence, found, faults)
    return tuple(found)


def _budget(task: str, what: object, faults: LocatedFaults) -> Budget | None:
    path, before = (*_PATH, task), len(faults)
    if task not in TASK_NAMES:
        faults.add(path, f'task "{task}" is unknown{nearest(task, TASK_NAMES)}: use one of {", ".join(TASK_NAMES)}')
    if isinstance(what, dict):
        section = validated(BudgetSection, what, path, faults)
        if len(faults) > before:
            return None
        most, confidence, path = section.max, section.confidence, (*path, "max")
    elif isinstance(what, bool) or not isinstance(what, int | float):
        faults.add(path, f"{task} = {repr(what)[:60]}: write a number, or {{ max = 0.03, confidence = 0.95 }}")
        return None
    else:
        most, confidence = what, None
    try:
        most = checked_most(most, task, f"budget of {task}")
    except InputError as error:
        faults.absorb(path, error)
    return Budget(task, float(most), confidence) if len(faults) == before else None


def _check_confidences(default: float, budgets: Sequence[Budget], faults: LocatedFaults) -> None:
    """Record every pair of budgets that asks one curve for two confidences, at the line of the later one."""
    for place, budget in enumerate(budgets):
        for other in budgets[:place]:
            try:
                confidence_with(default, [other, budget])
            except InputError as error:
                faults.add((*_PATH, budget.task), error.faults[0])
