"""NVIDIA's kvpress, `evaluation/evaluate.py`: a folder per run, `metrics.json`, `config.yaml`, `predictions.csv` in it.

Releases up to 0.5.5 name the folder DATASET__DATA_DIR__MODEL__PRESS__RATIO with further words behind it, and a
repeated run lies in a numbered folder within. At first a run was one file of that name that ends in `.json`. The
shapes of `metrics.json`, by dataset:

    ruler                     {"niah_single_1": {"string_match": 96.0}, ...}, percent
    longbench, infinitebench  a number, in percent and in fractions of 1; the task is the data_dir
    longbench-e               {"0-4k": 41.2, "4-8k": 38.0, "8k+": NaN}, percent, NaN where no prompt is of that length
    longbench-v2              {"average": 0.31, "easy": ..., "short": ...}; a number before
    loogle                    {"shortdep_qa": {"bleu1": ..., "rouge-1": ..., "bert": ...}}, of which the mean is taken,
                              as the program's own plots do
    aime25, math500           {"correct": 12, "answered": 28, "accuracy": 0.4, "total": 30}
    needle_in_haystack        a list of {"rouge-1": {"r": ..., "p": ..., "f": ...}, ...}, one per needle
    zero_scrolls              {}: it is not scored

Source: kvpress 0.5.5, evaluation/evaluate.py and evaluation/benchmarks/*/calculate_metrics.py; for single files
NVIDIA/kvpress at 002ac9d.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.quality_results.cells import Refusal
from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.format import Format
from kvwall.sweep.quality_results.kvpress_run import Run, named_run, run_of
from kvwall.sweep.quality_results.result import Result, Sheet, number, shown
from kvwall.sweep.quality_results.stated import Stated

BENCHMARKS: Final[Mapping[str, str]] = {
    "ruler": "RULER",
    "longbench": "LongBench",
    "longbench-e": "LongBench-E",
    "longbench-v2": "LongBench-v2",
    "infinitebench": "InfiniteBench",
    "loogle": "LooGLE",
    "needle_in_haystack": "NIAH",
    "aime25": "AIME25",
    "math500": "MATH-500",
    "zero_scrolls": "ZeroSCROLLS",
}
"""What kvpress calls a dataset -> its name in the published tables."""

_NUMBERS: Final = ("longbench", "infinitebench", "longbench-v2")
_BY_DATA_DIR: Final = ("longbench", "infinitebench", "longbench-e")


class KvPress(Format):
    """Metrics of one run of kvpress."""

    def recognises(self, document: Document) -> bool:
        """By the name of the folder or file, or the configuration beside it: the metrics alone say nothing."""
        return document.lines is None and (document.path.name == "metrics.json" or bool(named_run(document.path)))

    def read(self, document: Document, stated: Stated) -> Sheet:
        """One score per task."""
        run = run_of(document.path)
        if run.dataset not in BENCHMARKS:
            raise InputError(
                f"{document.path}: dataset {shown(run.dataset)} is unknown: it must be any of {', '.join(BENCHMARKS)}"
            )
        scores = _scores(document, run)
        refused = run.refusals(stated)
        if refused:
            return Sheet(refused=(Refusal(str(document.path), refused),))
        return Sheet(tuple(_result(document, run, subtask, value) for subtask, value in scores.items()))


def _scores(document: Document, run: Run) -> Mapping[str, object]:
    """Subtask -> score. Raises InputError where the metrics are not those of the dataset."""
    metrics = document.value
    if run.dataset in _BY_DATA_DIR and not run.data_dir:
        raise InputError(f"{document.path}: which task of {run.dataset} it is of is not known: data_dir is not stated")
    found: Mapping[str, object] = {}
    if run.dataset in _NUMBERS and number(metrics) is not None:
        found = {run.data_dir or BENCHMARKS[run.dataset]: metrics}
    elif run.dataset == "needle_in_haystack" and isinstance(metrics, list):
        found = {"single": _mean([_rouge(each) for each in metrics])}
    elif isinstance(metrics, Mapping):
        found = _of_an_object(metrics, run)
    if not found:
        raise InputError(
            f"{document.path}: holds no score of {run.dataset}: kvpress scores no zero_scrolls; run another "
            "dataset to its end"
        )
    return found


def _of_an_object(metrics: Mapping[str, object], run: Run) -> Mapping[str, object]:
    if run.dataset in ("aime25", "math500"):
        return {BENCHMARKS[run.dataset]: metrics["accuracy"]} if "accuracy" in metrics else {}
    if run.dataset == "longbench-v2":
        return {"average": metrics["average"]} if "average" in metrics else {}
    if run.dataset == "longbench-e":
        return {f"{run.data_dir} {band}": value for band, value in metrics.items()}
    return {task: _task(value) for task, value in metrics.items()} if run.dataset in ("ruler", "loogle") else {}


def _task(value: object) -> object:
    """A task's one metric, or the mean of its metrics."""
    return _mean(list(value.values())) if isinstance(value, Mapping) else value


def _rouge(value: object) -> object:
    first = value.get("rouge-1") if isinstance(value, Mapping) else None
    return first.get("f") if isinstance(first, Mapping) else None


def _mean(values: list[object]) -> object:
    """Of numbers; None where there is none, or another value among them."""
    numbers = [number(value) for value in values]
    return sum(each for each in numbers if each is not None) / len(numbers) if numbers and None not in numbers else None


def _result(document: Document, run: Run, subtask: str, value: object) -> Result:
    score = number(value)
    return Result(
        place=f"{document.path}: {subtask}",
        benchmark=BENCHMARKS[run.dataset],
        subtask=subtask,
        score=float("nan") if score is None else score,
        higher_is_better=True,
        labels=run.labels,
        full=run.full,
        conditions={"program": "kvpress", **run.conditions},
        question="" if run.full else "visible" if run.query_aware else "hidden",
    )
