"""Names of benchmarks and subtasks: the task class whose quality curve they speak for, and the tier within it.

The rules are data (`catalog/quality/benchmarks.toml`); here they are typed, checked and asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.quality_methods import METHODS
from kvwall.spaces.quality_tasks import TASKS
from kvwall.spaces.sourced_file import read_table

RULES: Final = METHODS.with_name("benchmarks.toml")

RETRIEVAL: Final = "retrieval"
"""What published tables call both retrieval classes: the name of the subtask parts them."""

Tier = Literal["", "easy", "hard", "tracing", "average_of_tiers"]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Rule:
    """What the names that two expressions match stand for."""

    name: str
    """What a reader is told is known."""
    benchmark: str
    task: str
    subtask: str = ".*"
    tier: Tier = ""

    def matches(self, benchmark: str, subtask: str) -> bool:
        """Whether it speaks for this subtask of this benchmark."""
        pairs = ((self.benchmark, benchmark), (self.subtask, subtask))
        return all(re.fullmatch(pattern, name.strip(), re.IGNORECASE) for pattern, name in pairs)


def task_class(benchmark: str, subtask: str, stated_class: str = "") -> str:
    """The task class of a result, any of `TASKS`; a class that its file states is taken, and `retrieval` is parted.

    Raises InputError for a class that is none, and for names that stand for nothing where no class is stated.

    >>> task_class("RULER", "niah_single_3", "retrieval"), task_class("GSM8K", "CoT")
    ('retrieval_hard', 'reasoning')
    >>> task_class("our tickets", "routing", "aggregate")
    'aggregate'
    """
    stated = stated_class.strip().lower()
    if stated in TASKS:
        return stated
    if stated not in ("", RETRIEVAL):
        raise InputError(
            f'task_class "{stated_class}" is unknown{nearest(stated, TASKS)}: use one of {", ".join(TASKS)}, or '
            f"{RETRIEVAL} where the name of the subtask says which of the two it is"
        )
    rule = _rule(benchmark, subtask)
    if rule is None:
        raise InputError(_unknown(benchmark, subtask, stated))
    if stated == RETRIEVAL and not rule.task.startswith(RETRIEVAL):
        raise InputError(
            f'task_class is {RETRIEVAL}, but "{subtask}" of {benchmark} is known as {rule.task}: '
            "state retrieval_easy, retrieval_hard, or nothing"
        )
    return rule.task


def tier(benchmark: str, subtask: str) -> Tier:
    """What a subtask is within its class: easy, hard, tracing, average_of_tiers; '' for all others.

    >>> tier("RULER", "vt"), tier("RULER", "average"), tier("SCBench/Retr.KV", "Retr.KV"), tier("MMLU", "MMLU")
    ('tracing', 'average_of_tiers', 'hard', '')
    """
    rule = _rule(benchmark, subtask)
    return rule.tier if rule else ""


def known_benchmarks() -> tuple[str, ...]:
    """The names that a reader is told are known."""
    return tuple(dict.fromkeys(rule.name for rule in load_rules()))


@cache
def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """The rules of a file, in order, by default of the shipped one. Raises InputError naming every fault."""
    table = read_table(path, path.name, "benchmark rules")
    try:
        rules = TypeAdapter(tuple[Rule, ...]).validate_python(table.get("rule", ()))
    except ValidationError as fault:
        raise InputError(
            f"{path.name}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in fault.errors()
        ) from fault
    faults = Faults()
    if not rules:
        faults.add("holds no [[rule]]: give one per kind of task")
    for place, rule in enumerate(rules, 1):
        if rule.task not in TASKS:
            faults.add(f'rule {place}: task "{rule.task}" is unknown: use one of {", ".join(TASKS)}')
        for pattern in (rule.benchmark, rule.subtask):
            try:
                re.compile(pattern)
            except re.error as fault:
                faults.add(f'rule {place}: "{pattern}" is no regular expression: {fault}')
    faults.raise_if_any(path.name)
    return rules


def _rule(benchmark: str, subtask: str) -> Rule | None:
    return next((rule for rule in load_rules() if rule.matches(benchmark, subtask)), None)


def _unknown(benchmark: str, subtask: str, stated: str) -> str:
    what = f'task "{subtask}" of benchmark "{benchmark}"'
    if stated == RETRIEVAL:
        return f"{what} is unknown: state retrieval_easy or retrieval_hard as its task_class"
    known = known_benchmarks()
    return (
        f"{what} is unknown{nearest(benchmark, known)}: state its task_class, any of {', '.join(TASKS)}; "
        f"known are tasks of {', '.join(known)}"
    )
