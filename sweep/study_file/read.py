"""From the text of a study file to its checked parts: every fault is found in one pass, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.errors import nearest
from kvwall.spaces.modes import CEILING, MODES
from kvwall.spaces.space import Space
from kvwall.spaces.vetoes import checked_vetoes
from kvwall.sweep.keeping import FULL, STORES
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.quality_budget import Budget
from kvwall.sweep.study_file.asked import check_mode_of_names, read_constraints, read_objectives
from kvwall.sweep.study_file.budget import read_budgets
from kvwall.sweep.study_file.decode import parse
from kvwall.sweep.study_file.lines import LocatedFaults, find_lines
from kvwall.sweep.study_file.sections import (
    OptimizeSection,
    QualitySection,
    StudySection,
    SweepSection,
    not_repeated,
    validated,
)
from kvwall.sweep.study_file.space import check_assumptions, check_records, check_slice, check_space

SECTIONS = ("study", "space", "assume", "quality", "objectives", "constraints", "sweep", "optimize")


@dataclass(frozen=True)
class StudyFile:
    """A study file, checked as a whole."""

    name: str
    mode: str
    calibration: str
    space: Space
    assume: Mapping[str, Mapping[str, str]]
    task: str
    confidence: float
    quality_curves: str
    allow_veto: tuple[str, ...]
    budgets: tuple[Budget, ...]
    objectives: tuple[Objective, ...]
    """In the order of the file; empty where it has no [objectives]."""
    constraints: tuple[Constraint, ...]
    """Of [constraints]; what budgets impose is not among them."""
    store: str
    profile: str
    keep: tuple[str, ...]
    """Without the status, which is always stored; empty where it has none."""
    slice: Mapping[str, tuple[Value, ...]]
    trials: int
    continuous: bool


def read_study_file(text: str, origin: str) -> StudyFile:
    """The checked parts. Raises InputError with every fault; `origin` names the file in them."""
    table = parse(text, origin)
    faults = LocatedFaults(find_lines(text), origin)
    parts = _sections(table, faults)
    study = validated(StudySection, parts["study"], ("study",), faults)
    quality = validated(QualitySection, parts["quality"], ("quality",), faults)
    sweep = validated(SweepSection, parts["sweep"], ("sweep",), faults)
    optimize = validated(OptimizeSection, parts["optimize"], ("optimize",), faults)
    space = check_space(parts["space"], faults)
    check_records(parts["space"], faults)
    assume = check_assumptions(parts["assume"], parts["space"].get("hardware"), faults)
    sliced = check_slice(parts["sweep"].get("slice"), space, faults)
    objectives = read_objectives(parts["objectives"], "objectives" in table, faults)
    constraints = read_constraints(parts["constraints"], faults)
    budgets = read_budgets(parts["quality"].get("budget"), quality, parts["constraints"], faults)
    _check_kept(parts["sweep"], faults)
    not_repeated(parts["sweep"].get("keep"), ("sweep", "keep"), faults)
    not_repeated(parts["quality"].get("allow_veto"), ("quality", "allow_veto"), faults)
    if study.calibration and study.mode == CEILING:
        faults.add(("study", "calibration"), 'a ceiling has none: leave it out, or write mode = "estimate"')
    if study.mode in MODES:
        check_mode_of_names(parts, study.mode, faults)
    if faults:
        raise faults.error()
    return StudyFile(
        name=study.name,
        mode=study.mode,
        calibration=study.calibration,
        space=space.space,
        assume=assume,
        task=quality.task,
        confidence=quality.confidence,
        quality_curves=quality.curves,
        allow_veto=checked_vetoes(quality.allow_veto),
        budgets=budgets,
        objectives=objectives,
        constraints=constraints,
        store=sweep.store,
        profile=sweep.profile,
        keep=tuple(name for name in sweep.keep if name != "status"),
        slice=sliced,
        trials=optimize.trials,
        continuous=optimize.continuous,
    )


def _check_kept(stated: Mapping[str, Any], faults: LocatedFaults) -> None:
    """Record every key about stored points in a study that stores none."""
    store = STORES.get(str(stated.get("store", FULL)))
    if store is None or store.points:
        return
    for key in ("profile", "keep", "slice"):
        if key in stated:
            remedy = f'leave {key} out, or write store = "{FULL}"'
            faults.add(("sweep", key), f'store = "{store.name}" keeps {store.about}: {remedy}')


def _sections(table: Mapping[str, Any], faults: LocatedFaults) -> dict[str, dict[str, Any]]:
    """Every section, empty where the file has none; what is no section is a fault."""
    parts: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
    for name, stated in table.items():
        if name not in SECTIONS:
            remedy = "write it under [space]" if name in AXES else f"the sections are {', '.join(SECTIONS)}"
            faults.add((name,), f'"{name}" is no section of a study{nearest(name, SECTIONS)}: {remedy}')
        elif not isinstance(stated, dict):
            faults.add((name,), f"{name} = {repr(stated)[:60]}: it is a section, [{name}] with keys below it")
        else:
            parts[name] = stated
    return parts
