"""`lm_eval --output_path`: `results_<time>.json` of EleutherAI's lm-evaluation-harness; one file is one configuration.

    {"results": {task: {"alias": ..., "acc,none": 0.61, "acc_stderr,none": 0.01}},
     "groups": {...}, "group_subtasks": {group: [task, ...]}, "configs": {task: {...}}, "versions": {...},
     "n-shot": {task: 5}, "higher_is_better": {task: {"acc": true}},
     "n-samples": {task: {"original": 1319, "effective": 200}},
     "config": {"model": "vllm", "model_args": "pretrained=...,kv_cache_dtype=fp8" or an object},
     "model_name": "org/name", "chat_template_sha": ...}

A metric's key is its name, a comma and the name of a filter; `_stderr` keys are left out. Scores are fractions of 1.
Files before 0.4 write `"acc": 0.61` without a filter, and are read too. RULER tasks have a metric per context length,
`"4096,none"`, which is -1 where that length was not run. A group stands for its tasks where all are of one class, as
MMLU; the tasks stand for themselves otherwise, as RULER and LongBench. What the file says of compression is the
argument `kv_cache_dtype`, bits of a served cache; all else is stated by the user, who also says which file is the
baseline, unless it is the only one that sets nothing.

Source: lm_eval 0.4.13, result_schema.py, evaluator_utils.py, loggers/evaluation_tracker.py, tasks/ruler,
tasks/longbench.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kvwall.spaces.benchmarks import task_class
from kvwall.spaces.errors import InputError
from kvwall.sweep.quality_results.cells import Refusal
from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.format import Format
from kvwall.sweep.quality_results.lm_eval_run import conditions_of, labels_of, settings_free
from kvwall.sweep.quality_results.result import Label, Result, Sheet, number, shown
from kvwall.sweep.quality_results.stated import Stated

_SIGNS: Final = frozenset({"versions", "configs", "config", "config_tasks", "n-shot"})
_HIGHER: Final = (
    "exact_match", "pass@1", "pass_at_1", "score", "qa_f1_score", "qa_f1_zh_score", "rouge_score", "rouge_zh_score",
    "classification_score", "retrieval_score", "retrieval_zh_score", "count_score", "code_sim_score", "acc_norm", "acc",
    "f1", "em", "mc2", "mc1", "prompt_level_strict_acc",
)  # fmt: skip
_LOWER: Final = ("word_perplexity", "perplexity")
"""Metrics in the order in which one is taken of several, the higher ones first."""
_FILTERS: Final = ("none", "flexible-extract", "strict-match")
_LENGTH = re.compile(r"[1-9]\d{2,7}")
_NOT_RUN: Final = -1
_NAMES: Final = (
    (re.compile(r"(niah_.+)"), "RULER"),
    (re.compile(r"ruler_(?:(vt|cwe|fwe)|qa_(squad|hotpot))"), "RULER"),
    (re.compile(r"(ruler)"), "RULER"),
    (re.compile(r"longbench_(.+)"), "LongBench"),
    (re.compile(r"(longbench)"), "LongBench"),
    (re.compile(r"infinitebench_(.+)"), "InfiniteBench"),
    (re.compile(r"(infinitebench)"), "InfiniteBench"),
)
_RULER_QA: Final[Mapping[str, str]] = {"squad": "qa_1", "hotpot": "qa_2"}


class LmEval(Format):
    """Results of lm-evaluation-harness."""

    def recognises(self, document: Document) -> bool:
        """By `results`, and what the harness writes beside them."""
        value = document.value
        return isinstance(value, Mapping) and isinstance(value.get("results"), Mapping) and bool(_SIGNS & value.keys())

    def read(self, document: Document, stated: Stated) -> Sheet:
        """One score per task, and per context length where a task has several."""
        tasks = document.table("results")
        if not tasks:
            raise InputError(f"{document.path}: results is empty: was the evaluation stopped before its end?")
        labels, results, refused = labels_of(document), [], []
        for task, metrics in _standing(document, tasks):
            place = f"{document.path}: {task}"
            if not isinstance(metrics, Mapping):
                refused.append(Refusal(place, (f"it is {shown(metrics)}, not an object of metrics",)))
                continue
            scores = _lengths(metrics) or _best(task, metrics, document, stated.metric)
            if not scores:
                refused.append(Refusal(place, (_no_metric(metrics, stated.metric),)))
            for key, score in scores.items():
                results.append(_result(document, place, task, key, score, labels))
        return Sheet(tuple(results), tuple(refused))


def _standing(document: Document, tasks: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Tasks that stand for themselves, and groups that stand for theirs."""
    members = {group: _below(document, group) for group in document.table("group_subtasks")}
    one = {group for group, below in members.items() if group in tasks and _scored(tasks[group]) and _alike(below)}
    covered = {task for group in one for task in members[group]}
    for task, metrics in tasks.items():
        mixed = bool(members.get(task)) and task not in one
        if task not in covered and not mixed:
            yield task, metrics


def _below(document: Document, group: str, depth: int = 8) -> frozenset[str]:
    """All tasks and groups of a group."""
    direct = document.table("group_subtasks").get(group)
    names = [name for name in direct if isinstance(name, str)] if isinstance(direct, list) else []
    below = frozenset(names)
    for name in names if depth else ():
        below |= _below(document, name, depth - 1)
    return below


def _alike(tasks: frozenset[str]) -> bool:
    """Whether there are tasks and all are of one known class."""
    try:
        return len({task_class(*benchmark_of(task)) for task in tasks}) == 1
    except InputError:
        return False


def _scored(metrics: object) -> bool:
    return isinstance(metrics, Mapping) and any(_named(key) for key in metrics)


def benchmark_of(task: str) -> tuple[str, str]:
    """Benchmark and subtask of a task's name.

    >>> benchmark_of("niah_multikey_2"), benchmark_of("ruler_qa_hotpot"), benchmark_of("gsm8k_cot")
    (('RULER', 'niah_multikey_2'), ('RULER', 'qa_2'), ('gsm8k_cot', 'gsm8k_cot'))
    """
    for pattern, benchmark in _NAMES:
        found = pattern.fullmatch(task)
        if found:
            name = next(filter(None, found.groups()))
            return benchmark, _RULER_QA.get(name, name) if benchmark == "RULER" else name
    return task, task


def _named(key: str) -> tuple[str, str] | None:
    """Metric and filter of a key; None for a standard error and for what is no metric."""
    name, _, kept = key.partition(",")
    known = name in _HIGHER or name in _LOWER or _LENGTH.fullmatch(name) or kept
    return (name, kept or "none") if known and not name.endswith("_stderr") else None


def _lengths(metrics: Mapping[str, object]) -> dict[tuple[str, str], object]:
    """Scores by context length, of lengths that were run."""
    named = {_named(key): value for key, value in metrics.items()}
    return {key: value for key, value in named.items() if key and _LENGTH.fullmatch(key[0]) and value != _NOT_RUN}


def _best(task: str, metrics: Mapping[str, object], document: Document, wanted: str) -> dict[tuple[str, str], object]:
    """The one metric that is read: what the user wants, the first of the known, or the only one."""
    named = {key: value for name, value in metrics.items() if (key := _named(name)) and not _LENGTH.fullmatch(key[0])}
    if wanted:
        name, _, kept = wanted.partition(",")
        named = {key: value for key, value in named.items() if key[0] == name and kept in ("", key[1])}
    known = [key for key in named if key[0] in (*_HIGHER, *_LOWER)]
    directed = [key for key in named if isinstance(document.at("higher_is_better", task, key[0]), bool)]
    choice = min(known, key=_rank) if known else directed[0] if len(directed) == 1 else None
    return {} if choice is None else {choice: named[choice]}


def _rank(key: tuple[str, str]) -> tuple[int, int, str]:
    name, kept = key
    order = _FILTERS.index(kept) if kept in _FILTERS else len(_FILTERS)
    return (*_HIGHER, *_LOWER).index(name), order, kept


def _no_metric(metrics: Mapping[str, object], wanted: str) -> str:
    found = [",".join(key) for name in metrics if (key := _named(name))]
    if any(_LENGTH.fullmatch(name.partition(",")[0]) for name in found):
        return f"no context length was run: {', '.join(found)} are -1"
    if wanted:
        return f"it has no metric {wanted}: it has {', '.join(found) or 'none'}"
    if not found:
        return "it has no metric: groups without a mean, and tasks run with --predict_only, have none"
    return f"which of its metrics to read is not known: state one of {', '.join(found)}"


def _result(
    document: Document, place: str, task: str, key: tuple[str, str], score: object, labels: Mapping[str, Label]
) -> Result:
    benchmark, subtask = benchmark_of(task)
    length = float(key[0]) if _LENGTH.fullmatch(key[0]) else None
    own = labels if length is None else {**labels, "context_tokens": length}
    found = number(score)
    direction = document.at("higher_is_better", task, key[0])
    higher = direction if isinstance(direction, bool) else key[0] not in _LOWER
    return Result(
        place=place if length is None else f"{place} at {key[0]} tokens",
        benchmark=benchmark,
        subtask=subtask,
        score=float("nan") if found is None else found,
        higher_is_better=higher,
        labels=own,
        full=None if settings_free(labels) else False,
        conditions={"program": "lm-evaluation-harness", "metric": ",".join(key), **conditions_of(document, task)},
        metric=",".join(key),
    )
