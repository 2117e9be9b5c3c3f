"""CSV files with the columns of the published quality tables; one row is one result.

`benchmark` and `score` must be there, all other columns may be missing or blank where the user states them.
`relative_loss` follows from `baseline` and `score`, and must agree with them where it is written. A row without a
baseline takes that of a row which compresses nothing: no bits below 16, no tokens left out. Two
columns may stand beside the others: `question_visible` (or `question=visible` in `notes`), whether the question was
known, and `table`, what was compressed, which a file's name says too where it is that of a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.sweep.quality_results.cells import COLUMNS, NUMBERS, SETTINGS, TABLES, Question, Refusal
from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.format import Format
from kvwall.sweep.quality_results.result import Label, Result, Sheet, number, shown
from kvwall.sweep.quality_results.stated import Stated, checked, question_of

_NEEDED: Final = ("benchmark", "score")
_FEWEST_KNOWN: Final = 3
_TEXTS: Final = ("method", "family", "model", "source", "notes")
_HIGHER: Final[Mapping[str, bool]] = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_QUESTION = re.compile(r"(?:^|;)\s*question=(visible|hidden)\b")


class OwnColumns(Format):
    """The columns of `COLUMNS`."""

    def recognises(self, document: Document) -> bool:
        """By three of the columns or more."""
        lines = document.lines or ()
        return bool(lines) and len(lines[0].keys() & set(COLUMNS)) >= _FEWEST_KNOWN

    def read(self, document: Document, stated: Stated) -> Sheet:
        """Every row, or why it cannot be read."""
        lines = document.lines or ()
        missing = [name for name in _NEEDED if name not in lines[0]]
        if missing:
            raise InputError(
                f"{document.path}: column {name} is missing{nearest(name, lines[0])}: give the columns of a quality "
                f"table, {', '.join(COLUMNS)}"
                for name in missing
            )
        table = document.path.stem if document.path.stem in TABLES else ""
        results: list[Result] = []
        refused: list[Refusal] = []
        for place, line in enumerate(lines, 2):
            name = f"{document.path}, line {place}"
            cells = {"table": table} | {column: str(cell).strip() for column, cell in line.items()}
            try:
                results.append(result_of(cells, name))
            except InputError as error:
                refused.append(Refusal(name, error.faults))
        return Sheet(tuple(results), tuple(refused))


def result_of(cells: Mapping[str, str], place: str) -> Result:
    """The score that a line holds. Raises InputError with every fault of it."""
    faults = Faults()
    benchmark = cells.get("benchmark", "")
    if not benchmark:
        faults.add("benchmark is blank: name it")
    labels: dict[str, Label] = {name: cells[name] for name in (*_TEXTS, "table") if cells.get(name)}
    if labels.get("table", TABLES[0]) not in TABLES:
        faults.add(f"table is {shown(labels['table'])}: use one of {', '.join(TABLES)}")
    for name in NUMBERS:
        if cells.get(name):
            value = checked(name, cells[name], name, faults)
            labels |= {} if value is None else {name: value}
    score = number(cells["score"])
    if score is None:
        faults.add(f"score is {shown(cells['score'])}: give a number")
    higher = _higher(cells, faults)
    baseline = _optional("baseline", cells, faults)
    loss = _optional("relative_loss", cells, faults)
    question = _question(cells, faults)
    faults.raise_if_any()
    return Result(
        place=place,
        benchmark=benchmark,
        subtask=cells.get("subtask") or benchmark,
        score=0.0 if score is None else score,
        higher_is_better=higher,
        labels=labels,
        full=_full(labels),
        id=cells.get("id", ""),
        stated_class=cells.get("task_class", ""),
        question=question,
        baseline=baseline,
        stated_loss=loss,
        unique=(cells.get("source", ""), cells.get("notes", ""), cells["score"]),
    )


def _full(labels: Mapping[str, Label]) -> bool | None:
    """Whether nothing is compressed; None where the row has no setting at all."""
    settings = [labels[name] for name in SETTINGS if name in labels and name != "retention_ratio"]
    kept = labels.get("retention_ratio")
    if not settings and kept is None:
        return None
    return all(bits in (16, 32) for bits in settings) and kept in (None, 1)


def _higher(cells: Mapping[str, str], faults: Faults) -> bool:
    """As written; where it is blank, lower is better of a perplexity alone."""
    text = cells.get("higher_is_better", "")
    if not text:
        words = (cells.get("task_class", ""), cells.get("subtask", ""))
        return not any(re.search(r"perplexity|ppl", word, re.IGNORECASE) for word in words)
    if text.lower() not in _HIGHER:
        faults.add(f"higher_is_better is {shown(text)}: write 1 or 0")
    return _HIGHER.get(text.lower(), True)


def _optional(name: str, cells: Mapping[str, str], faults: Faults) -> float | None:
    text = cells.get(name, "")
    value = number(text)
    if text and value is None:
        faults.add(f"{name} is {shown(text)}: give a number, or leave it blank")
    return value


def _question(cells: Mapping[str, str], faults: Faults) -> Question:
    try:
        found = question_of(cells.get("question_visible", ""))
    except InputError as error:
        faults.absorb(error)
        return ""
    noted = _QUESTION.search(cells.get("notes", ""))
    return found or question_of(noted[1] if noted else "")
