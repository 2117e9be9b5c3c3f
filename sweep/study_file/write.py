"""A study written back as TOML, every axis expanded: the `study.toml` of a results folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvwall.spaces.axes import Value
from kvwall.spaces.space import Space
from kvwall.sweep.keeping import STORES
from kvwall.sweep.objective import Constraint
from kvwall.sweep.quality_budget import Budget

if TYPE_CHECKING:
    from kvwall.sweep.study import Study


def study_text(study: Study) -> str:
    """The study as TOML; reads back as an equal study."""
    sections = [
        _section("study", _named(study)),
        _lines("space", _axes(study.space)),
        *[_section(f"assume.{_toml(chip)}", list(figures.items())) for chip, figures in study.assume.items()],
        _section("quality", _quality(study)),
        _lines("quality.budget", [_budget(budget) for budget in study.budgets]),
        _lines("objectives", _objectives(study)),
        _lines("constraints", [_constraint(constraint) for constraint in study.stated_constraints]),
        _section("sweep", _kept(study)),
        _section("sweep.slice", list(study.slice.items())),
        _section("optimize", [("trials", study.trials), ("continuous", study.continuous)]),
    ]
    return "\n".join(section for section in sections if section)


def _named(study: Study) -> list[tuple[str, str]]:
    named = [("name", study.name), ("mode", study.mode)]
    return [*named, ("calibration", study.calibration)] if study.calibration else named


def _quality(study: Study) -> list[tuple[str, Value | Sequence[Value]]]:
    stated: list[tuple[str, Value | Sequence[Value]]] = [("task", study.task), ("confidence", study.confidence)]
    stated += [("curves", study.quality_curves)] if study.quality_curves else []
    return [*stated, ("allow_veto", study.allow_veto)] if study.allow_veto else stated


def _kept(study: Study) -> list[tuple[str, Value | Sequence[Value]]]:
    if not STORES[study.store].points:
        return [("store", study.store)]
    return [("store", study.store), ("profile", study.profile), ("keep", study.keep)]


def _budget(budget: Budget) -> str:
    if budget.confidence is None:
        return f"{budget.task} = {_toml(budget.most)}"
    return f"{budget.task} = {{ max = {_toml(budget.most)}, confidence = {_toml(budget.confidence)} }}"


def axis_values_written(space: Space) -> dict[str, list[Value]]:
    """Every axis's values in one spelling, whether it was stated or neutral: reals are floats."""
    return {
        entry.axis.name: [
            float(value) if entry.axis.kind == "real" and not isinstance(value, str) else value
            for value in entry.values
        ]
        for entry in space.axes
    }


def _axes(space: Space) -> list[str]:
    """Tied axes last: where a space has them once every axis is stated."""
    written = axis_values_written(space)
    stated = {
        name: space.leader.get(name, values if len(values) > 1 else values[0]) for name, values in written.items()
    }
    ordered = sorted(stated, key=lambda name: name in space.leader)
    return [f"{name} = {_toml(stated[name])}" for name in ordered]


def _objectives(study: Study) -> list[str]:
    """Both senses as lists, the sense of the first objective first: that order says which is the first."""
    senses = dict.fromkeys(objective.sense for objective in study.objectives)
    return [f"{sense} = {_toml([o.metric for o in study.objectives if o.sense == sense])}" for sense in senses]


def _constraint(constraint: Constraint) -> str:
    bounds = (("min", constraint.low), ("max", constraint.high))
    stated = ", ".join(f"{side} = {_toml(bound)}" for side, bound in bounds if bound is not None)
    return f"{constraint.metric} = {{ {stated} }}"


def _section(name: str, pairs: Sequence[tuple[str, Value | Sequence[Value]]]) -> str:
    return _lines(name, [f"{key} = {_toml(value)}" for key, value in pairs])


def _lines(name: str, lines: Sequence[str]) -> str:
    return f"[{name}]\n" + "".join(f"{line}\n" for line in lines) if lines else ""


def _toml(value: Value | Sequence[Value]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():  # a JSON string is a TOML string, but for one control character
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case _:
            return f"[{', '.join(_toml(entry) for entry in value)}]"
