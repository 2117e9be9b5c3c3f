"""Scores of compressed models beside those of the same model, task and context with nothing compressed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.quality_results.cells import SETTINGS, Refusal
from kvwall.sweep.quality_results.result import WEIGHTS, Label, Result
from kvwall.sweep.quality_results.stated import Stated, option

_BITS: Final = ("bits_k", "bits_v", "bits_effective")
_MOST: Final = 101
"""Percent; scores read off plots lie somewhat above 100."""
_OF_THE_RUN: Final = ("model", "model_size_b", "context_tokens")
"""Columns of a baseline that the user's word fills too."""

Key = tuple[str, str, str, Label | None]


@dataclass(frozen=True)
class Pair:
    """A result with its labels, and the score of its baseline."""

    result: Result
    labels: Mapping[str, Label]
    baseline: float
    baseline_place: str
    """'' where the result's own file states the score."""


@dataclass
class Pairing:
    """Pairs and refusals so far."""

    stated: Stated
    pairs: list[Pair] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    baselines: dict[Key, list[Result]] = field(default_factory=dict)
    """Several of a key were evaluated in different ways."""

    def pair(self, results: Sequence[Result]) -> None:
        """Pair every compressed result."""
        full = [each for each in results if self._is_baseline(each)]
        for each in sorted(full, key=lambda each: not each.given_baseline):
            self._add_baseline(each)
        for each in results:
            if not self._is_baseline(each):
                self._add(each)

    def _is_baseline(self, result: Result) -> bool:
        """What the user names; what says itself that nothing was compressed; what nobody says anything of."""
        if result.given_baseline or result.baseline is not None:
            return result.given_baseline
        if result.full is None:
            return not self.stated.compressed and "method" not in self.stated.labels
        own_words = bool(result.unique)
        return result.full and (own_words or not any(name in self.stated.labels for name in _BITS))

    def _add_baseline(self, result: Result) -> None:
        faults = faults_of(result)
        if result.full is False:
            faults = (*faults, f"it is named as baseline, but {_setting(result.labels)} was at work in it")
        stated = {name: value for name, value in self.stated.labels.items() if name in _OF_THE_RUN}
        labels = {**stated, **result.labels} | {name: value for name, value in stated.items() if name == "model"}
        there = self.baselines.setdefault(_key(result, labels), [])
        other = next((each for each in there if each.conditions == result.conditions), None)
        if other and not faults and not math.isclose(other.score, result.score):
            faults = (f"a second baseline of the same: {other.place} has {other.score:g}, this {result.score:g}",)
        if faults:
            self.refused.append(Refusal(result.place, faults))
        elif other is None:
            there.append(result)

    def _add(self, result: Result) -> None:
        try:
            labels = self._labels(result)
            reasons = [*faults_of(result), *_missing(labels)]
            baseline, place = self._baseline(result, labels, reasons)
        except InputError as error:
            self.refused.append(Refusal(result.place, error.faults))
            return
        if reasons:
            self.refused.append(Refusal(result.place, tuple(reasons)))
        else:
            self.pairs.append(Pair(result, labels, baseline, place))

    def _labels(self, result: Result) -> dict[str, Label]:
        """The result's labels with the user's, whose names of the model and the method stand for a program's own."""
        if result.unique:  # a table, whose words are the user's own
            return self.stated.joined(result.labels)
        labels = self.stated.joined(result.labels, "model", "method")
        if result.full:  # nothing was evicted, whatever is stated of other files
            labels.pop("retention_ratio", None)
        return labels

    def _baseline(self, result: Result, labels: Mapping[str, Label], reasons: list[str]) -> tuple[float, str]:
        """Score of the baseline and where it stands; what is wrong with it is added to the reasons."""
        if result.baseline is not None:
            reasons += _wrong_baseline(result.baseline)
            return result.baseline, ""
        there = self.baselines.get(_key(result, labels))
        if not there:
            reasons.append(self._no_baseline(result, labels))
            return math.nan, ""
        weights_only = not any(name in labels for name in ("bits_k", "bits_v", "retention_ratio"))
        ignored = (WEIGHTS,) if weights_only else ()
        found = min(there, key=lambda each: len(_differing(result, each, ignored)))
        differing = _differing(result, found, ignored)
        if differing:
            reasons.append(f"it was evaluated otherwise than its baseline, {found.place}: {'; '.join(differing)}")
        reasons += _wrong_baseline(found.score)
        return found.score, found.place

    def _no_baseline(self, result: Result, labels: Mapping[str, Label]) -> str:
        """What is missing, and the nearest there is."""
        model, benchmark, subtask, context = _key(result, labels)
        start = "it has no baseline: no 16-bit, full-cache result of the same model, benchmark, subtask and context"
        near = [key for key, there in self.baselines.items() if there and key[1:3] == (benchmark, subtask)]
        for key in near:
            if key[1:] == (benchmark, subtask, context):
                return f"{start}; there is one of model {key[0] or '(none)'}: name both with {option('model')}"
        if near:
            contexts = ", ".join(sorted({str(key[3] or "none") for key in near}))
            return f"{start}; there are some of context {contexts}, this has {context or 'none'}"
        return f"{start}: give its file too, or name it with {option('baseline')}"


def faults_of(result: Result) -> tuple[str, ...]:
    """What is wrong with a score by itself."""
    if not math.isfinite(result.score):
        return ("its score is not a finite number: the run has no valid answer, or was stopped",)
    if result.higher_is_better and not 0 <= result.score <= _MOST:
        return (f"its score is {result.score:g}: it must be from 0 to 1, or in percent from 0 to 100",)
    if not result.higher_is_better and result.score <= 0:
        return (f"its score is {result.score:g}: where lower is better it must be above 0",)
    return ()


def _wrong_baseline(score: float) -> Iterable[str]:
    if not math.isfinite(score):
        yield "its baseline is not a finite number: evaluate the uncompressed model again"
    elif score == 0:
        yield "its baseline is 0: a task that the uncompressed model cannot do shows no loss; leave it out"
    elif score < 0:
        yield f"its baseline is {score:g}: it must be above 0"


def _setting(labels: Mapping[str, Label]) -> str:
    return ", ".join(f"{name}={labels[name]}" for name in ("method", *SETTINGS) if name in labels)


def _missing(labels: Mapping[str, Label]) -> Iterable[str]:
    for name in ("model", "method"):
        if not labels.get(name):
            yield f"{name} is not stated: give it with {option(name)}"
    if not any(name in labels for name in SETTINGS):
        yield (
            f"how much was compressed is not stated: give {option('bits_k')} and {option('bits_v')}, "
            f"{option('retention_ratio')}, or {option('bits_effective')} of the weights"
        )
    elif ("bits_k" in labels) != ("bits_v" in labels):
        yield "bits_k and bits_v are not both stated: write 16 for the one that is not compressed"
    elif all(float(labels[name]) == (1 if name == "retention_ratio" else 16) for name in SETTINGS if name in labels):
        yield "nothing is compressed: 16 bits, and all tokens kept"


def _differing(result: Result, baseline: Result, ignored: Sequence[str]) -> list[str]:
    """What both state of how they were evaluated, and state differently."""
    both = sorted((result.conditions.keys() & baseline.conditions.keys()) - set(ignored))
    pairs = {name: (result.conditions[name], baseline.conditions[name]) for name in both}
    return [f"{name} {own}, the baseline {other}" for name, (own, other) in pairs.items() if own != other]


def _key(result: Result, labels: Mapping[str, Label]) -> Key:
    model = str(labels.get("model", "")).strip().lower()
    return model, result.benchmark.lower(), result.subtask.lower(), labels.get("context_tokens")
