"""The top of the page: what was asked, what came out, and the answer in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kvwall.spaces.axes import Value
from kvwall.spaces.modes import CEILING, ESTIMATE
from kvwall.sweep.report.caveats import STATUS_WORDS
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.parts import Table
from kvwall.sweep.report.wording import (
    axis_label,
    axis_text,
    constraint_texts,
    design_text,
    estimate_value,
    listed,
    metric_label,
    metric_value,
    objective_text,
    share_text,
    short_name,
    varying,
)
from kvwall.sweep.study import Study

BADGES: Final = {
    CEILING: "Derived ceilings, not measured speeds",
    ESTIMATE: "Estimates, calibrated against measurement; in brackets their 10 % and 90 % bounds",
}
"""What the numbers of a page are, by mode."""
SPEEDS: Final = {
    CEILING: "Every speed here is what perfect overlap at datasheet peaks would give: an implementation is slower, "
    "none is faster.",
    ESTIMATE: "Every speed here is an estimate of what an engine reaches, fitted to published measurements: four in "
    "five deployments lie within its bounds. Outside of what was measured it is marked as extrapolated.",
}
_MOST_VALUES = 6
_MOST_PAIRS = 16


def tiles(choices: Choices) -> tuple[tuple[str, str, str], ...]:
    """(number, what it counts, remark) of what came out."""
    results = choices.results
    points = choices.study.space.size
    found = [(f"{points:,}", "designs in the grid", "")]
    remarks = {"feasible": "designs fit and can be laid out", "admissible": "of these meet every constraint"}
    for name, remark in remarks.items():
        count = results.count(name)
        if count is not None:
            more = _lost(choices) if name == "feasible" else ""
            found.append((share_text(count, points), name, f"{count:,} {remark}{more}"))
    found.append((f"{results.front.sizes['point']:,}", "on the front", "exact, over the whole grid"))
    return tuple(found)


def _lost(choices: Choices) -> str:
    """What becomes of the designs that are not feasible."""
    counts: dict[str, int] = {}
    for one in choices.chip_counts:
        for status, count in one.statuses.items():
            counts[status] = counts.get(status, 0) + count
    told = [f"{counts[status]:,} {words}" for status, words in STATUS_WORDS.items() if counts.get(status)]
    return f"; {listed(told)}" if told else ""


def answer(choices: Choices) -> tuple[str, ...]:
    """The answer, one sentence a paragraph."""
    results, study = choices.results, choices.study
    if not len(results.order):
        return ("No design is admissible.", *_why_nothing(choices), *_unranked(choices))
    row = int(results.order[0])
    first = study.objectives[0]
    names = [objective.metric for objective in study.objectives[1:]]
    others = [f"{metric_label(name)} {_value(choices, name, row)}" for name in names]
    beside = f" ({', '.join(others)})" if others else ""
    most = "highest" if first.sense == "maximize" else "lowest"
    design = design_text(study, results.design(row), ())
    best = (
        f"The {most} {metric_label(first.metric)} of all admissible designs is "
        f"{_value(choices, first.metric, row)}{beside}: {design}."
    )
    return (best, *_why_partial(choices), *_unranked(choices))


def _why_partial(choices: Choices) -> Iterator[str]:
    if choices.best is None and (len(choices.chips) > 1 or len(choices.models) > 1):
        yield "By chip, of the front only: the grid was too large to search again for this page."


def _unranked(choices: Choices) -> Iterator[str]:
    """Chips ranked on a part of their designs only, where no line of `chip_answers` says it."""
    unsourced = [one for one in choices.chip_counts if one.unsourced]
    told = list(chip_answers(choices)) if unsourced else []
    yield from (one.sentence() for one in unsourced if not any(one.ranked_on() in line for line in told))


def _value(choices: Choices, metric: str, row: int) -> str:
    return estimate_value(choices.study, metric, lambda name: float(choices.results.front[name].values[row]))


def chip_answers(choices: Choices) -> Iterator[str]:
    """The best admissible design of each chip, one sentence each; none where the study has a single chip and model."""
    if not len(choices.results.order) or _pairs(choices.study) < 2:
        return
    if choices.best is None:
        yield from _front_answers(choices)
        return
    for model in choices.models:
        for chip in choices.chips:
            name = _pair(choices, model, chip)
            index = choices.best_index(model, chip)
            ranked = _ranked(choices, chip)
            if index is None:
                yield f"{name}: no design is admissible{ranked}."
                continue
            found = choices.laws.points(np.array([index]))
            shown = estimate_value(choices.study, choices.results.first, lambda name: float(found[name][0]))  # noqa: B023
            design = design_text(choices.study, choices.study.space.point(index), ("model", "hardware"))
            yield f"{name}: {shown}{ranked} with {design}."


def _front_answers(choices: Choices) -> Iterator[str]:
    """The same of the front: pairs of model and chip that are on it, best first, and how many are not."""
    results, study = choices.results, choices.study
    best: dict[tuple[str, str], int] = {}
    for row in results.order:
        best.setdefault((str(results.names("model")[row]), str(results.names("hardware")[row])), int(row))
    for (model, chip), row in list(best.items())[:_MOST_PAIRS]:
        design = design_text(study, results.design(row), ("model", "hardware"))
        ranked = _ranked(choices, chip)
        yield f"{_pair(choices, model, chip)}: {_value(choices, results.first, row)}{ranked} with {design}."
    if len(best) > _MOST_PAIRS:
        yield f"{len(best) - _MOST_PAIRS} more pairs of model and chip are on the front, none of them better."
    absent = _pairs(study) - len(best)
    if absent:
        pairs = "pair" if absent == 1 else "pairs"
        yield f"Of {absent} {pairs} no design is on the front: none is admissible, or others are as good or better."


def _ranked(choices: Choices, chip: Value) -> str:
    """In brackets, on which part of its designs a chip is ranked; empty where it is on all."""
    remark = next((one.ranked_on() for one in choices.chip_counts if str(one.chip) == str(chip)), "")
    return f" ({remark})" if remark else ""


def _pair(choices: Choices, model: Value, chip: Value) -> str:
    """The chip's name, after the model's where there are several."""
    name = short_name(str(chip))
    return f"{short_name(str(model))} on {name}" if len(choices.study.space.values("model")) > 1 else name


def _pairs(study: Study) -> int:
    """Pairs of model and chip of a study."""
    return len(study.space.values("model")) * len(study.space.values("hardware"))


def _why_nothing(choices: Choices) -> Iterator[str]:
    feasible = choices.results.count("feasible")
    if feasible == 0:
        yield (
            "None of the designs fits into memory, can be laid out, has all its figures sourced and keeps clear of "
            "what is known to collapse."
        )
    for constraint, count in choices.results.rejected.items():
        if feasible:
            named = constraint_texts(choices.study).get(constraint, constraint)
            yield f'The constraint "{named}" alone rejects {share_text(count, feasible)} of the feasible designs.'


def asked(choices: Choices) -> Table:
    """What the study asks, line by line."""
    study = choices.study
    rows = [
        ("models", listed(short_name(str(name)) for name in study.space.values("model"))),
        ("chips", listed(short_name(str(name)) for name in study.space.values("hardware"))),
        ("axes", "; ".join(_axis_line(choices, name) for name in varying(study) if name not in {"model", "hardware"})),
        ("held fixed", "; ".join(_fixed(choices)) or "everything else is neutral"),
        ("objectives", "; ".join(objective_text(objective) for objective in study.objectives)),
        ("constraints", "; ".join(_constraint_lines(choices)) or "none"),
        ("quality", f"task {study.task}, upper bounds at {100 * study.task_confidence:g} % confidence"),
        ("budgets", "; ".join(_budget_lines(choices))),
        ("vetoes allowed", listed(study.allow_veto)),
    ]
    return Table(("", ""), tuple((name, text) for name, text in rows if text), 2)


def _axis_line(choices: Choices, name: str) -> str:
    space = choices.study.space
    if name in space.leader:
        return f"{axis_label(name)} moves with {axis_label(space.leader[name])}"
    values: tuple[Value, ...] = space.values(name)
    if len(values) <= _MOST_VALUES:
        return f"{axis_label(name)} {', '.join(axis_text(name, value) for value in values)}"
    ends = sorted(values, key=float) if not isinstance(values[0], str) else list(values)
    return f"{axis_label(name)} {axis_text(name, ends[0])} to {axis_text(name, ends[-1])} ({len(values)} values)"


def _fixed(choices: Choices) -> Iterator[str]:
    for entry in choices.study.space.axes:
        name, value = entry.axis.name, entry.values[0]
        if len(entry) == 1 and name not in {"model", "hardware"} and value != entry.axis.neutral:
            yield f"{axis_label(name)} {axis_text(name, value)}"


def _budget_lines(choices: Choices) -> Iterator[str]:
    study = choices.study
    for budget in study.budgets:
        level = study.confidence if budget.confidence is None else budget.confidence
        yield f"{budget.task}: at most {metric_value(study, budget.metric, budget.most)}, {100 * level:g} % confidence"


def _constraint_lines(choices: Choices) -> Iterator[str]:
    feasible = choices.results.count("feasible")
    for constraint, text in constraint_texts(choices.study).items():
        count = choices.results.rejected.get(constraint)
        if count is None or not feasible:
            yield text
        else:
            yield f"{text} (rejects {share_text(count, feasible)} of the feasible designs)"
