"""Task classes of quality, and what is made of several: the worst of both retrieval classes, RULER's average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvwall.spaces.errors import InputError, nearest

TASKS: Final = ("aggregate", "retrieval_easy", "retrieval_hard", "reasoning", "code", "summarisation", "perplexity")
"""Rows of the task axis."""


@dataclass(frozen=True)
class Task:
    """A task as rows of the task axis: their weighted mean, or without weights the worst of them."""

    rows: tuple[int, ...]
    weights: tuple[float, ...] | None = None


RULER: Final = {"aggregate": 5 / 13, "retrieval_easy": 5 / 13, "retrieval_hard": 3 / 13}
"""RULER's thirteen tasks by class: five easy needles, three hard ones, five others."""

_MADE: Final = {
    "retrieval": Task((TASKS.index("retrieval_easy"), TASKS.index("retrieval_hard"))),
    "ruler": Task(tuple(TASKS.index(task) for task in RULER), tuple(RULER.values())),
}
TASK_NAMES: Final = (*TASKS, *_MADE)


def task_named(name: str) -> Task:
    """The task of this name. Raises InputError for an unknown one.

    >>> task_named("retrieval").rows, task_named("aggregate").rows
    ((1, 2), (0,))
    """
    known(name, TASK_NAMES, "task")
    return _MADE[name] if name in _MADE else Task((TASKS.index(name),))


def task_rows(name: str) -> tuple[int, ...]:
    """Rows of the task axis that a task is made of. Raises InputError for an unknown task.

    >>> task_rows("ruler")
    (0, 1, 2)
    """
    return task_named(name).rows


def known(name: str, allowed: Sequence[str], what: str) -> str:
    """The name, if it is one of those allowed. Raises InputError otherwise."""
    if name in allowed:
        return name
    raise InputError(f'{what} "{name}" is unknown{nearest(name, allowed)}: use one of {", ".join(allowed)}')
