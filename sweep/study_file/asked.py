"""What a study asks for: [objectives] in the order of the file, and [constraints] in SI."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from typing import Any

from kvwall.objectives.register import label_register, metric_named, metric_register
from kvwall.spaces.errors import InputError
from kvwall.spaces.modes import ESTIMATE
from kvwall.spaces.units import parse_quantity
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.study_file.lines import KeyPath, LocatedFaults
from kvwall.sweep.study_file.sections import (
    ANY_TASK,
    BoundsSection,
    ObjectivesSection,
    known_metric,
    not_repeated,
    validated,
)

# Units that a bound may have, by the unit of the metric; pint alone takes "3 radian" for bytes.
_UNITS: Mapping[str, str] = {
    "s": r"[fpnumµ]?s|[a-z]*seconds?|min|minutes?|h|hours?",
    "byte": r"[kMGTPE]?B|[KMGTPE]iB|[a-z]*bytes?",
}
_DIGITS = r"[\s0-9.eE+-]*"
"""What a number is made of; whether it is one, `parse_quantity` says."""


def read_objectives(stated: Mapping[str, Any], present: bool, faults: LocatedFaults) -> tuple[Objective, ...]:
    """The objectives in the order of the file; none where it has no [objectives] section."""
    path = ("objectives",)
    section = validated(ObjectivesSection, stated, path, faults)
    for sense in ("maximize", "minimize"):
        not_repeated(stated.get(sense), (*path, sense), faults)
    if present and not any(stated.values()):
        faults.add(path, "no objective: name at least one metric in maximize or minimize, or drop the section")
    minimized = stated.get("minimize")
    for position, metric in enumerate(_listed(stated.get("maximize"))):
        if metric in _listed(minimized):
            faults.add((*path, "maximize", position), f'"{metric}" is both maximized and minimized: choose one')
    by_sense: Mapping[str, list[Objective]] = {
        "maximize": [Objective(metric, "maximize") for metric in section.maximize],
        "minimize": [Objective(metric, "minimize") for metric in section.minimize],
    }
    return tuple(objective for sense in stated for objective in by_sense.get(sense, ()))


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def read_constraints(stated: Mapping[str, Any], faults: LocatedFaults) -> tuple[Constraint, ...]:
    """The constraints, bounds as numbers in the metric's SI unit."""
    return tuple(_constraint(name, bounds, faults) for name, bounds in stated.items())


def check_mode_of_names(parts: Mapping[str, Mapping[str, Any]], mode: str, faults: LocatedFaults) -> None:
    """Record every metric and label that a study names and its mode does not have; unknown ones are told elsewhere."""
    asked: list[tuple[KeyPath, object]] = [(("constraints", name), name) for name in parts["constraints"]]
    for section, keys in (("objectives", ("maximize", "minimize")), ("sweep", ("keep",))):
        for key in keys:
            asked += [((section, key, place), name) for place, name in enumerate(_listed(parts[section].get(key)))]
    of_estimates = {*metric_register(ANY_TASK, ESTIMATE), *label_register(ESTIMATE)}
    here = {*metric_register(ANY_TASK, mode), *label_register(mode)}
    for path, name in asked:
        if isinstance(name, str) and name in of_estimates - here:
            faults.add(path, f'"{name}" is one of estimates, and this study is a {mode}: write mode = "{ESTIMATE}"')


def _constraint(name: str, stated: object, faults: LocatedFaults) -> Constraint:
    path, unit = ("constraints", name), None
    try:
        unit = metric_named(known_metric(name), ANY_TASK, ESTIMATE).unit
    except InputError as error:
        faults.absorb(path, error)
    if not isinstance(stated, dict):
        faults.add(path, f"{name} = {repr(stated)[:60]}: write {{ min = ... }}, {{ max = ... }} or both")
        return Constraint(name)
    before = len(faults)
    numbers = {side: _number(name, unit, bound, (*path, side), faults) for side, bound in stated.items()}
    bounds = validated(BoundsSection, numbers, path, faults)
    if len(faults) > before:
        return Constraint(name)
    low, high = bounds.min, bounds.max
    for side, bound in (("min", low), ("max", high)):
        if bound is not None and not math.isfinite(bound):
            faults.add((*path, side), f"{side} = {bound} of {name}: write a finite number, or leave the bound out")
    if low is None and high is None:
        faults.add(path, f"{name} has neither min nor max: state one, or drop the constraint")
    if low is not None and high is not None and low > high:
        faults.add(path, f"{name}: min = {low:g} is above max = {high:g}: swap or widen them")
    return Constraint(name, low, high)


def _number(name: str, unit: str | None, bound: object, path: KeyPath, faults: LocatedFaults) -> object:
    """A bound written as a quantity in the metric's unit; anything but text as it is."""
    if not isinstance(bound, str) or path[-1] not in BoundsSection.model_fields:
        return bound
    if unit is not None and unit in _UNITS and re.fullmatch(f"{_DIGITS}({_UNITS[unit]})\\s*", bound):
        with contextlib.suppress(InputError):
            return parse_quantity(bound, unit)
    if unit is not None:
        examples = {
            "1": ": 0.02 stands for 2 %",
            "s": ', or a quantity such as "50 ms"',
            "byte": ', or a quantity such as "8 GB"',
        }
        faults.add(
            path, f"{path[-1]} = {bound[:40]!r} of {name}: write a number in {_spelled(unit)}{examples.get(unit, '')}"
        )
    return None


def _spelled(unit: str) -> str:
    return "its unit, which is none" if unit == "1" else unit
