"""What the user states beside the files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.sweep.quality_results.cells import NUMBERS, SETTINGS, TABLES, Question
from kvwall.sweep.quality_results.document import files_of
from kvwall.sweep.quality_results.result import Label, number, shown

OPTIONS: Final[Mapping[str, str]] = {
    "method": "method",
    "family": "family",
    "model": "model",
    "model_size_b": "model_size_b",
    "context": "context_tokens",
    "bits_k": "bits_k",
    "bits_v": "bits_v",
    "bits_effective": "bits_effective",
    "group_size": "group_size",
    "residual_tokens": "residual_tokens",
    "retention": "retention_ratio",
    "task_class": "task_class",
    "table": "table",
    "source": "source",
    "notes": "notes",
    "question_visible": "question",
    "metric": "metric",
    "baseline": "baseline",
}
"""What a user can state -> the column that it fills; `table` and the last three are no columns.

`table` is any of `TABLES`, needed where bits of the cache as a whole are stated alone: they are taken as the weights'.

`question_visible` is yes or no; `metric` the one to read where a task has several, as in "acc" or
"exact_match,strict-match"; `baseline` the file or folder of the 16-bit, full-cache run.
"""

_NO_COLUMNS: Final = ("question", "metric", "baseline")
_YES: Final = frozenset({"yes", "true", "1", "on", "visible"})
_NO: Final = frozenset({"no", "false", "0", "off", "hidden"})
_SIZE = re.compile(r"(?<![\dA-Za-z.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


@dataclass(frozen=True)
class Stated:
    """What the user states."""

    labels: Mapping[str, Label]
    """Column -> value."""
    question: Question = ""
    metric: str = ""
    baselines: tuple[Path, ...] = ()

    @property
    def compressed(self) -> bool:
        """Whether it says how much was compressed."""
        return any(name in self.labels for name in SETTINGS)

    def joined(self, own: Mapping[str, Label], *overriding: str) -> dict[str, Label]:
        """A result's labels with the user's. Raises InputError where they contradict each other.

        Args:
            own: labels of the result.
            overriding: columns in which the user's word stands for the file's, whatever that is.
        """
        faults = Faults()
        for name in sorted((own.keys() & self.labels.keys()) - set(overriding)):
            if not _agree(own[name], self.labels[name]):
                faults.add(
                    f"{name} is {own[name]} in the file and {self.labels[name]} by {option(name)}: "
                    "leave the option out, or read this file by itself"
                )
        faults.raise_if_any()
        return {**own, **self.labels}


def option(column: str) -> str:
    """How the command line calls a column.

    >>> option("retention_ratio")
    '--retention'
    """
    return "--" + next(name for name, filled in OPTIONS.items() if filled == column).replace("_", "-")


def read_stated(stated: Mapping[str, str]) -> Stated:
    """What the user states, checked. Raises InputError with every fault."""
    faults = Faults()
    labels: dict[str, Label] = {}
    words = {name: text.strip() for name, text in stated.items() if text.strip()}
    for name, text in words.items():
        column = OPTIONS.get(name)
        if column is None:
            faults.add(f'"{name}" cannot be stated{nearest(name, OPTIONS)}: state any of {", ".join(OPTIONS)}')
        elif column in NUMBERS:
            value = checked(column, text, option(column), faults)
            labels |= {} if value is None else {column: value}
        elif column == "table" and text not in TABLES:
            faults.add(f"{option(column)} is {shown(text)}: use one of {', '.join(TABLES)}")
        elif column not in _NO_COLUMNS:
            labels[column] = text
    if ("bits_k" in labels) != ("bits_v" in labels):
        faults.add("state bits_k and bits_v together: 16 for the one that is not compressed")
    question: Question = ""
    try:
        question = question_of(words.get("question_visible", ""))
    except InputError as error:
        faults.absorb(error)
    baselines: tuple[Path, ...] = ()
    if "baseline" in words:
        try:
            baselines = files_of(Path(words["baseline"]))
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any()
    return Stated(labels, question, words.get("metric", ""), baselines)


def checked(column: str, value: object, name: str, faults: Faults) -> float | None:
    """A number of a column within its range; what is none, or outside, is recorded in `faults`."""
    least, largest = NUMBERS[column]
    found = number(value)
    if found is not None and math.isfinite(found) and least <= found <= largest:
        return found
    faults.add(f"{name} is {shown(value)}: it must be a number from {least:g} to {largest:g}")
    return None


def question_of(text: str) -> Question:
    """Visible or hidden. Raises InputError for a word that is neither yes nor no.

    >>> question_of("yes"), question_of("FALSE"), question_of("")
    ('visible', 'hidden', '')
    """
    word = text.strip().lower()
    if word in _YES:
        return "visible"
    if word in _NO:
        return "hidden"
    if not word:
        return ""
    raise InputError(f"question_visible is {shown(text)}: write yes or no")


def size_in(model: str) -> float | None:
    """Billions of parameters that a model's name states; None where it states none, or experts times a size.

    >>> size_in("meta-llama/Llama-3.1-8B-Instruct"), size_in("Qwen3-30B-A3B"), size_in("Mixtral-8x7B-v0.1")
    (8.0, 30.0, None)
    """
    found = _SIZE.search(model.rpartition("/")[2].replace("_", "-"))
    return float(found[1]) if found else None


def _agree(own: Label, stated: Label) -> bool:
    if isinstance(own, float) and isinstance(stated, float):
        return math.isclose(own, stated, rel_tol=1e-6)
    return str(own).strip().lower() == str(stated).strip().lower()
