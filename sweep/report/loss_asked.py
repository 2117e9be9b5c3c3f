"""What a study asks of quality: tasks, the most that may be lost on each, and the remedies that lose some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvwall.objectives.kv import FULL_BITS
from kvwall.spaces.axes import NATIVE
from kvwall.spaces.confidence import by_row
from kvwall.spaces.quality_methods import load_methods, reader_of
from kvwall.spaces.quality_tasks import TASK_NAMES, TASKS, task_named, task_rows
from kvwall.sweep.study import Study

LOG_RATIO: Final = "perplexity"
MOST_NAMES: Final = 8
"""Curves in a figure."""


@dataclass(frozen=True)
class Remedy:
    """A remedy that a figure is about, all others neutral."""

    plot: str
    """Unique on the page."""
    remedy: str
    """As `sweep.quality.nearness` calls it."""
    title: str
    axis: str
    methods: str
    """The axis of its methods' names."""
    names: tuple[str, ...]
    """The study's, as many as a figure shows."""
    settings: tuple[float, ...]
    """The study's, neutral ones left out, rising."""
    visible: bool = True

    @property
    def in_bits(self) -> bool:
        """Whether it is told in bits, not in a share of the tokens."""
        return self.axis.endswith("bits")

    def family(self, name: str) -> str:
        """The family of one of its methods."""
        names = load_methods()[self.methods]
        return names.family(name, question_visible=self.visible) if self.remedy == "evictor" else names.family(name)

    @property
    def families(self) -> frozenset[str]:
        """The families of its methods."""
        return frozenset(self.family(name) for name in self.names)


@dataclass(frozen=True)
class Limit:
    """The most that may be lost on a task."""

    task: str
    most: float
    upper: bool
    """Whether it is the upper loss that is limited."""


def shown_tasks(study: Study) -> tuple[str, ...]:
    """The tasks of figures: those of the study, each followed by the classes that it is made of."""
    return tuple(dict.fromkeys(name for task in tasks_of(study) for name in (task, *classes_of(task))))


def classes_of(task: str) -> tuple[str, ...]:
    """The classes that a task is made of.

    >>> classes_of("retrieval"), classes_of("code")
    (('retrieval_easy', 'retrieval_hard'), ('code',))
    """
    return tuple(TASKS[row] for row in task_rows(task))


def tasks_of(study: Study) -> tuple[str, ...]:
    """The study's task, those of its budgets, constraints and objectives."""
    stated = [*(each.metric for each in study.constraints), *(each.metric for each in study.objectives)]
    asked = (loss_of(metric, study.task) for metric in stated)
    return tuple(dict.fromkeys([study.task, *(each[0] for each in asked if each)]))


def loss_of(metric: str, task: str) -> tuple[str, bool] | None:
    """The task of a loss and whether it is an upper one; None of another metric.

    >>> loss_of("quality_loss_upper_code", "ruler"), loss_of("quality_loss", "ruler"), loss_of("max_batch", "ruler")
    (('code', True), ('ruler', False), None)
    """
    found = re.fullmatch(r"quality_loss(_upper)?(?:_(\w+))?", metric)
    return (found[2] or task, bool(found[1])) if found else None


def limits_of(study: Study) -> tuple[Limit, ...]:
    """The study's budgets and other constraints on losses; what limits the worst of classes limits each of them."""
    found: dict[Limit, None] = {}
    for constraint in study.constraints:
        loss = loss_of(constraint.metric, study.task)
        if loss and constraint.high is not None:
            worst = task_named(loss[0]).weights is None
            for task in (loss[0], *(classes_of(loss[0]) if worst else ())):
                found[Limit(task, constraint.high, loss[1])] = None
    return tuple(found)


def confidence_of(study: Study, task: str) -> float:
    """The confidence that upper losses of a task hold at."""
    levels = by_row(study.confidences, {name: task_rows(name) for name in TASK_NAMES})
    return min(levels[row] for row in task_rows(task))


def remedies_of(study: Study) -> tuple[Remedy, ...]:
    """The remedies that the study uses, each with its figure; none where it compresses nothing."""
    return tuple(each for each in _all(study) if each.settings)


def _all(study: Study) -> Iterator[Remedy]:
    bits = tuple(sorted({*_below(study, "key_bits", FULL_BITS), *_below(study, "value_bits", FULL_BITS)}))
    yield Remedy(
        "loss-kv", "quantizer", "KV bits, K and V alike", "key_bits", "quantizer", _names(study, "quantizer"), bits
    )
    evictors, kept, read = _names(study, "evictor"), _below(study, "retention", 1), _below(study, "read_fraction", 1)
    matters = any(_by_question(name) for name in evictors)
    for seen in sorted(set(map(bool, study.space.values("question_visible"))) if matters else {True}, reverse=True):
        word = "visible" if seen else "hidden"
        title = f"Tokens kept, question {word}" if matters else "Tokens kept"
        yield Remedy(f"loss-kept-{word}", "evictor", title, "retention", "evictor", evictors, kept, seen)
    readers = tuple(dict.fromkeys(map(reader_of, evictors)))  # whose curve tells what reading a share loses
    yield Remedy("loss-read", "reader", "Kept tokens read by a step", "read_fraction", "evictor", readers, read)
    yield Remedy(
        "loss-weights", "weight_quantizer", "Weight bits", "weight_bits", "weight_quantizer",
        _names(study, "weight_quantizer"), _below(study, "weight_bits", FULL_BITS),
    )  # fmt: skip


def _names(study: Study, axis: str) -> tuple[str, ...]:
    return tuple(map(str, study.space.values(axis)))[:MOST_NAMES]


def _below(study: Study, axis: str, neutral: float) -> tuple[float, ...]:
    """The settings of an axis at which something is lost, rising."""
    numbers = [float(value) for value in study.space.values(axis) if str(value) != NATIVE]
    return tuple(sorted(number for number in numbers if number < neutral))


def _by_question(evictor: str) -> bool:
    return load_methods()["evictor"].by_question(evictor)
