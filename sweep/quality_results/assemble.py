"""Pairs of scores as quality rows, but for those that are there already or stand on two scales."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kvwall.spaces.benchmarks import task_class, tier
from kvwall.spaces.errors import InputError
from kvwall.sweep.quality_results.cells import NUMBERS, QualityCells, Refusal, relative_loss, table_of
from kvwall.sweep.quality_results.pairing import Pair
from kvwall.sweep.quality_results.result import Label
from kvwall.sweep.quality_results.stated import Stated, size_in

_TEXTS: Final = ("method", "family", "model")
_LOSS_TOLERANCE: Final = 0.01
"""Published losses are rounded, and follow from scores before these were."""
_OF_THE_SETTING: Final = tuple(
    each.name
    for each in fields(QualityCells)
    if each.name not in ("id", "baseline", "score", "relative_loss", "source", "notes", "task_class", "tier", "table")
)
_LIKELY_PERCENT: Final = (0.5, 1.5)
"""A hundred times the score over its baseline, where one is a fraction of 1 and the other a percentage."""


@dataclass
class Assembling:
    """Rows and refusals so far."""

    stated: Stated
    rows: list[QualityCells] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    _seen: dict[tuple[object, ...], str] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)

    def add(self, pairs: Sequence[Pair]) -> None:
        """Make the rows of the pairs."""
        two_scales = _on_two_scales(pairs)
        for place, pair in enumerate(pairs):
            try:
                if place in two_scales:
                    raise InputError(_scale_fault(pair))
                self._add(pair)
            except InputError as error:
                self.refused.append(Refusal(pair.result.place, error.faults))

    def _add(self, pair: Pair) -> None:
        row = _row(pair, self.stated)
        key = (*(getattr(row, name) for name in _OF_THE_SETTING), pair.result.unique)
        if key in self._seen:
            raise InputError(f"it is there already: {self._seen[key]} is of the same model, task and setting")
        if row.id in self._ids:
            raise InputError(f"an earlier row has the id {row.id}: give each its own")
        self._seen[key] = pair.result.place
        self._ids.add(row.id)
        self.rows.append(row)


def _row(pair: Pair, stated: Stated) -> QualityCells:
    result, labels = pair.result, pair.labels
    cells: dict[str, Any] = {name: labels.get(name) for name in NUMBERS}
    cells |= {name: str(labels.get(name, "")) for name in _TEXTS}
    cells["model_size_b"] = cells["model_size_b"] or size_in(cells["model"])
    loss = relative_loss(pair.baseline, result.score, result.higher_is_better)
    if result.stated_loss is not None and not _close(loss, result.stated_loss):
        raise InputError(
            f"relative_loss is {result.stated_loss:g}, but {loss:.4g} follows from baseline {pair.baseline:g} and "
            f"score {result.score:g}: correct one of them, or leave relative_loss blank"
        )
    table = str(labels.get("table", "")) or table_of((cells["bits_k"], cells["bits_v"]), cells["retention_ratio"])
    task = task_class(result.benchmark, result.subtask, result.stated_class or str(labels.get("task_class", "")))
    if (task == "perplexity") == result.higher_is_better:
        raise InputError(
            f"its class is {task}, but its higher_is_better is {int(result.higher_is_better)}: lower is better of a "
            "perplexity, and of no other class"
        )
    return QualityCells(
        id=result.id or result.place,
        benchmark=result.benchmark,
        subtask=result.subtask,
        task_class=task,
        baseline=pair.baseline,
        score=result.score,
        higher_is_better=result.higher_is_better,
        relative_loss=loss if result.stated_loss is None else result.stated_loss,
        source=str(labels.get("source", "")) or result.place.partition(": ")[0],
        notes="; ".join(_notes(pair, labels)),
        question=result.question or stated.question,
        tier=tier(result.benchmark, result.subtask),
        metric=result.metric,
        table=table,
        **cells,
    )


def _notes(pair: Pair, labels: Mapping[str, Label]) -> Iterable[str]:
    """The user's words, what the file calls otherwise than the user, and where the baseline is from."""
    if labels.get("notes"):
        yield str(labels["notes"])
    for name in ("model", "method"):
        own = pair.result.labels.get(name)
        if own is not None and own != labels[name]:
            yield f"its file says {name}={own}"
    if pair.baseline_place:
        yield f"baseline={pair.baseline_place}"


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_LOSS_TOLERANCE, abs_tol=_LOSS_TOLERANCE)


def _on_two_scales(pairs: Sequence[Pair]) -> frozenset[int]:
    """Places of pairs of which one score is a fraction of 1 and the other in percent.

    A score below 1 beside a baseline in percent may be a collapse: it is not where another score of the same model
    and task is above 1.
    """
    in_percent = {_group(pair) for pair in pairs if pair.result.score > 1}
    found = set()
    for place, pair in enumerate(pairs):
        score, baseline = pair.result.score, pair.baseline
        if not pair.result.higher_is_better:
            continue
        alike = _LIKELY_PERCENT[0] <= 100 * score / baseline <= _LIKELY_PERCENT[1]
        fraction = score <= 1 < 2 < baseline and alike and _group(pair) not in in_percent
        if fraction or baseline <= 1 < 2 < score:
            found.add(place)
    return frozenset(found)


def _group(pair: Pair) -> tuple[object, ...]:
    return (pair.result.place.partition(",")[0], pair.labels.get("model"), pair.result.benchmark, pair.result.subtask)


def _scale_fault(pair: Pair) -> str:
    return (
        f"its score {pair.result.score:g} and its baseline {pair.baseline:g} are on two scales, a fraction of 1 and "
        "percent: write both on one"
    )
