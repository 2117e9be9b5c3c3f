"""The quality budgets: the most that may be lost on each task, as the upper bound at the confidence asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.quality_tasks import task_rows
from kvwall.sweep.quality_budget import Budget, checked_most
from kvwall.sweep.readable import metric_text
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.report.wording import listed
from kvwall.sweep.single import attempt, plain

Budgets: TypeAlias = Sequence[Budget]
"""Every one must hold."""
DEFAULT_TASK: Final = "aggregate"


def stated_budgets(quality_budget: object, task: object) -> tuple[Budget, ...]:
    """The budgets of one number, which is about the task, or of task -> number. Raises InputError with every fault.

    >>> [str(budget) for budget in stated_budgets({"retrieval": 0.01, "reasoning": 0.03}, None)]
    ['retrieval at most 0.01', 'reasoning at most 0.03']
    """
    if not isinstance(quality_budget, Mapping):
        about = task_of(quality_budget, task)
        return (Budget(about, checked_most(plain(quality_budget), about)),)
    faults, found = Faults(), []
    for name, most in quality_budget.items():
        known = attempt(faults, lambda name=name: task_rows(str(name)))  # type: ignore[misc]
        asked = attempt(faults, lambda name=name, most=most: checked_most(plain(most), name, f"quality_budget {name}"))  # type: ignore[misc]
        if known and asked is not None:
            found.append(Budget(str(name), asked))
    if not quality_budget:
        faults.add('quality_budget names no task: write task: share, such as {"retrieval": 0.01}, or one number')
    faults.raise_if_any()
    return tuple(found)


def task_of(quality_budget: object, task: object) -> str:
    """The task that `quality_loss` is of: the one stated, else the first that has a budget, else the default."""
    if task is not None:
        return task  # type: ignore[return-value]  # checked with the design
    first = next(iter(quality_budget), DEFAULT_TASK) if isinstance(quality_budget, Mapping) else DEFAULT_TASK
    try:
        task_rows(str(first))
    except InputError:  # told where the budgets are read
        return DEFAULT_TASK
    return str(first)


def loss_text(loss: float, task: str) -> str:
    """A loss on a task, in its unit."""
    return metric_text(loss, "1", f"quality_loss_{task}")


def limits_text(budgets: Budgets, task: str) -> str:
    """What may be lost, such as "2 %", or "1 % on retrieval and 3 % on reasoning".

    >>> limits_text([Budget("retrieval", 0.02)], "retrieval")
    '2 %'
    """
    return listed(_with_task(budget.most, budget.task, budgets, task) for budget in budgets)


def losses_text(outcome: Outcome, budgets: Budgets, task: str) -> str:
    """What a design may lose on every task that has a budget."""
    return listed(_with_task(outcome[budget.metric], budget.task, budgets, task) for budget in budgets)


def _with_task(loss: float, name: str, budgets: Budgets, task: str) -> str:
    alone = len(budgets) == 1 and name == task
    return loss_text(loss, name) if alone else f"{loss_text(loss, name)} on {name}"


def losses_of(outcome: Outcome | None) -> dict[str, float]:
    """Task -> upper loss, of the tasks that have a budget."""
    prefix = Budget("", 0.0).metric
    figures = outcome.figures if outcome else {}
    return {name.removeprefix(prefix): loss for name, loss in figures.items() if name.startswith(prefix)}
