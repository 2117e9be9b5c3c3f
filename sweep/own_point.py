"""Measured points stated on the command line: `evictor=snapkv,retention=0.5,task=retrieval_easy,baseline=96,score=81`.

The words are those of the axes. A point becomes a row as a line of a table of results does, with the same checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.quality_methods import READERS, load_methods
from kvwall.spaces.quality_tasks import TASKS, known, task_rows
from kvwall.sweep.quality_results import QualityCells, Refusal
from kvwall.sweep.quality_results.assemble import Assembling
from kvwall.sweep.quality_results.own_columns import result_of
from kvwall.sweep.quality_results.pairing import Pairing
from kvwall.sweep.quality_results.result import number, shown
from kvwall.sweep.quality_results.stated import checked, question_of, read_stated

SOURCE: Final = "the command line"
UNNAMED: Final = "a model without a name"
_METHODS: Final = ("evictor", "quantizer", "weight_quantizer")
_NUMBERS: Final = {
    "retention": "retention_ratio",
    "read_fraction": "retention_ratio",
    "key_bits": "bits_k",
    "value_bits": "bits_v",
    "weight_bits": "bits_effective",
    "context": "context_tokens",
}
"""Key -> column that it fills."""
_SETTINGS: Final = {
    "evictor": ("retention", "read_fraction"),
    "quantizer": ("key_bits", "value_bits"),
    "weight_quantizer": ("weight_bits",),
}
_SCORES: Final = ("baseline", "score")
KEYS: Final = (
    *_METHODS, *_NUMBERS, "task", *_SCORES, "question_visible", "model", "benchmark", "subtask", "standard_error",
)  # fmt: skip


def read_points(texts: Sequence[str], stated: Mapping[str, str]) -> tuple[list[QualityCells], list[Refusal]]:
    """The rows of points, and why others are none; `stated` may name their model and context.

    Raises InputError with every fault of every point that cannot be read.
    """
    faults = Faults()
    results = []
    for place, text in enumerate(texts, 1):
        name = f"point {place}"
        try:
            results.append(result_of({"id": name} | _cells(_pairs(text), stated), name))
        except InputError as error:
            for fault in error.faults:
                faults.add(f'--point "{text}": {fault}')
    faults.raise_if_any()
    nothing = read_stated({})
    pairing, made = Pairing(nothing), Assembling(nothing)
    pairing.pair(results)
    made.add(pairing.pairs)
    return made.rows, [*pairing.refused, *made.refused]


def _pairs(text: str) -> dict[str, str]:
    faults = Faults()
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        key = key.replace("-", "_")
        if not equals or not value:
            faults.add(f'"{part}" states nothing: write KEY=VALUE, as in retention=0.5')
        elif key not in KEYS:
            faults.add(f'"{key}" is unknown{nearest(key, KEYS)}: use any of {", ".join(KEYS)}')
        elif key in found:
            faults.add(f"{key} is stated twice")
        else:
            found[key] = value
    for key in ("task", *_SCORES):
        if key not in found and not faults:
            faults.add(f"{key} is missing: state it, as in {key}={_EXAMPLES[key]}")
    faults.raise_if_any()
    return found


_EXAMPLES: Final = {"task": "retrieval_easy", "baseline": "96", "score": "81"}


def _cells(point: Mapping[str, str], stated: Mapping[str, str]) -> dict[str, str]:
    """The point as a line of a table."""
    faults = Faults()
    cells: dict[str, str] = {}
    for key, column in _NUMBERS.items():
        text = point.get(key, stated.get(key, "") if key == "context" else "")
        if text and checked(column, text, key, faults) is not None:
            cells[column] = text
    if "retention" in point and "read_fraction" in point:
        faults.add("retention and read_fraction are two remedies: measure one at a time")
    cells |= _methods(point, faults)
    cells |= _scores(point, faults)
    for key in ("question_visible", "benchmark", "subtask"):
        if key in point:
            cells[key] = point[key]
    task = point["task"]
    try:
        question_of(point.get("question_visible", ""))
        rows = task_rows(task)
        known(task, TASKS, "task")
        cells["task_class"] = TASKS[rows[0]]
    except InputError as error:
        faults.absorb(error)
    faults.raise_if_any()
    name = {"model": point.get("model") or stated.get("model") or UNNAMED, "source": SOURCE}
    return {"benchmark": "own", "subtask": task} | cells | name


def _methods(point: Mapping[str, str], faults: Faults) -> dict[str, str]:
    """Label, family and table; a setting without a method has no curve."""
    named = [key for key in _METHODS if key in point]
    if not named:
        faults.add(f"no method is named: state one of {', '.join(_METHODS)}")
    for key in named:
        try:
            known(point[key], load_methods()[key].all, key)
        except InputError as error:
            faults.absorb(error)
        if not any(setting in point for setting in _SETTINGS[key]):
            faults.add(f"{' or '.join(_SETTINGS[key])} is missing: how much does {key} {point[key]} compress?")
    for key, settings in _SETTINGS.items():
        some = [setting for setting in settings if setting in point]
        if some and key not in point:
            faults.add(f"{some[0]} is stated without {key}: name its method")
    if ("key_bits" in point) != ("value_bits" in point):
        faults.add("state key_bits and value_bits together: 16 for the one that is not compressed")
    reads = "evictor" in point and point["evictor"] in load_methods()["evictor"].all and _reads(point["evictor"])
    if "read_fraction" in point and "evictor" in point and not reads:
        faults.add(f"evictor {point['evictor']} drops tokens: state retention, not read_fraction")
    if "retention" in point and reads:
        faults.add(f"evictor {point['evictor']} drops nothing: state read_fraction, not retention")
    if len(named) > 1:
        faults.add(f"{' and '.join(named)} are two remedies: measure one at a time")
    method = point.get(named[0], "") if named else ""
    if "weight_quantizer" in point:
        return {"method": method, "family": method, "table": "weight_quant"}
    return {"method": method, "table": "kv_evict" if "evictor" in point else "kv_quant"}


def _reads(evictor: str) -> bool:
    return load_methods()["evictor"].family(evictor) in READERS


def _scores(point: Mapping[str, str], faults: Faults) -> dict[str, str]:
    cells = {}
    for key in (*_SCORES, "standard_error"):
        value = number(point.get(key, "0"))
        if value is None:
            faults.add(f"{key} is {shown(point[key])}: give a number")
        elif key == "standard_error" and key in point:
            if not 0 <= value < float("inf"):
                faults.add(f"standard_error is {shown(point[key])}: give it in the unit of the score, 0 or more")
            cells["notes"] = f"{key}={value:g}"
        elif key in point:
            cells[key] = point[key]
    return cells


_NOTED: Final = re.compile(r"(?:^|;)\s*standard_error\s*=\s*(\d[\d.eE+-]*)")


def standard_error(cells: QualityCells) -> float | None:
    """The standard error of a row's loss, where its notes state that of its score; None where they do not.

    A note is `standard_error=0.8`, in the unit of the score.
    """
    noted = _NOTED.search(cells.notes)
    value = number(noted[1]) if noted else None
    return None if value is None else value / cells.baseline
