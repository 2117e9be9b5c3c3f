"""`remedies`: what every family is worth at a design, the best combination inside the budget, and the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.modes import DEFAULT_MODE
from kvwall.spaces.space import make_space
from kvwall.sweep.evaluate import NO_ASSUMPTIONS, DesignReport, report_of
from kvwall.sweep.flags import flags_of
from kvwall.sweep.quality_budget import Budget
from kvwall.sweep.readable import number_text
from kvwall.sweep.remedies.budget import Budgets, limits_text, losses_text, stated_budgets, task_of
from kvwall.sweep.remedies.choose import Tried
from kvwall.sweep.remedies.combine import Combination, best_combination
from kvwall.sweep.remedies.family import Change
from kvwall.sweep.remedies.map import RemedyMap, remedy_map
from kvwall.sweep.remedies.outcome import VETOED, Evaluator, Outcome
from kvwall.sweep.remedies.register import FAMILIES
from kvwall.sweep.remedies.rows import Row, obstacle, row_of, whole
from kvwall.sweep.remedies.sentences import binding, joined, memory_clause, percent, speedup, times_text
from kvwall.sweep.report.wording import listed
from kvwall.sweep.single import SingleDesign, attempt, changed_design, plain, single_design
from kvwall.sweep.veto_words import imposed_vetoes

STATED: Final = "stated"
BEST: Final = "best"


@dataclass(frozen=True)
class RemediesReport:
    """What `remedies` answers."""

    baseline: DesignReport
    budgets: tuple[Budget, ...]
    rows: tuple[Row, ...]
    stated: tuple[Row, ...]
    """Changes that the user asked about."""
    best: Row | None
    """The best combination; None where none is admissible."""
    combination: Combination
    map: RemedyMap
    remarks: tuple[str, ...]
    """What a reader must know beside the numbers."""

    @property
    def quality_budget(self) -> float | None:
        """The budget of the task that `quality_loss` is of; None where it has none."""
        return next((budget.most for budget in self.budgets if budget.task == self.baseline.task), None)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON types, without NaN and infinity."""
        baseline = self.baseline.to_json()
        search = {
            "combinations": self.combination.evaluated,
            "admissible": self.combination.admissible,
            "exhaustive": self.combination.exhaustive,
        }
        return {
            "baseline": {"axes": baseline.pop("inputs"), **baseline},
            "quality_budget": self.quality_budget,
            "quality_budgets": {budget.task: budget.most for budget in self.budgets},
            "task": self.baseline.task,
            "confidence": self.baseline.confidence,
            "remedies": [row.to_json() for row in self.rows],
            "stated": [row.to_json() for row in self.stated],
            "best": self.best and {"families": list(self.combination.changes), **self.best.to_json()},
            "search": search,
            "map": self.map.to_json(),
            "remarks": list(self.remarks),
        }


def remedies(
    *,
    quality_budget: float | Mapping[str, float] | None = None,
    task: str | None = None,
    confidence: float = 0.9,
    mode: str = DEFAULT_MODE,
    assume: Mapping[str, str] = NO_ASSUMPTIONS,
    settings: Sequence[Mapping[str, object]] = (),
    calibration: str = "",
    quality_curves: str = "",
    allow_veto: Sequence[str] = (),
    **axes: object,
) -> RemediesReport:
    """What each family of remedies is worth at one design, alone and in the best combination.

    Args:
        quality_budget: the most that the upper bound of the loss may be, 1 sets no limit; or several, by task.
        task: task of the loss; the first that has a budget where it is left out, aggregate for a single number.
        confidence: confidence of its upper bound.
        mode: "estimate" or "ceiling"; estimates are compared by their middle.
        assume: hardware figure -> quantity ("host_link_bandwidth": "64 GB/s") in place of the catalogue's.
        settings: changes of your own to rate as well, axis -> value each.
        calibration: path of a record of `kvwall calibrate`, for estimates; the shipped one where it is blank.
        quality_curves: path of a record of `kvwall calibrate --quality`; the shipped one where it is blank.
        allow_veto: vetoes not to impose (k_outliers, naive_low_bits, blind_retrieval).
        axes: one value for each axis of the design; model, hardware and context are required.

    Raises:
        InputError: with every fault of the arguments.

    >>> paper = {"model": "paper/llama-3-70b", "hardware": "paper/b200", "context": 128_000}
    >>> report = remedies(**paper, quality_budget=1, mode="ceiling")
    >>> round(next(row.speedup for row in report.rows if row.family == "quantization"), 2)
    1.25
    """
    faults = Faults()
    about = task_of(quality_budget, task)
    budgets = attempt(faults, lambda: stated_budgets(quality_budget, task))
    budgeted = tuple(budget.task for budget in budgets or ())
    single = attempt(
        faults,
        lambda: single_design(
            axes,
            task=about,
            confidence=confidence,
            mode=mode,
            assume=assume,
            calibration=calibration,
            quality_curves=quality_curves,
            allow_veto=allow_veto,
            budgeted=budgeted,
        ),
    )
    changes = [change for each in settings if (change := attempt(faults, lambda each=each: _checked(each))) is not None]  # type: ignore[misc]
    faults.raise_if_any()
    if budgets is None or single is None:
        raise InputError("state a design and a budget")
    return _report(single, budgets, changes)


def _checked(change: Mapping[str, object]) -> Change:
    """A change of the user's own, its values checked."""
    if not change:
        raise InputError("a setting to rate is empty: name an axis and its value")
    faults = Faults()
    for name in sorted({"model", "hardware"} & change.keys()):
        faults.add(f"a setting to rate changes axes of the design, not the {name}: ask for another design")
    stated = {name: plain(value) for name, value in change.items() if name not in {"model", "hardware"}}
    for name, value in stated.items():
        if isinstance(value, list | tuple | Mapping) or (
            isinstance(value, str) and value in {*AXES} - {name, "context"}
        ):
            faults.add(f"{name} = {value!r}: a setting to rate has one value for each of its axes")
    space = attempt(faults, lambda: make_space({"model": "m", "hardware": "h", "context": 1} | stated))
    faults.raise_if_any()
    if space is None:
        raise InputError("a setting to rate has one value for each of its axes")
    return {name: space.values(name)[0] for name in stated}


def _report(single: SingleDesign, budgets: tuple[Budget, ...], changes: Sequence[Change]) -> RemediesReport:
    evaluator = Evaluator(single, budgets)
    tried = _tried(evaluator)
    rows = [row_of(one, single, budgets) for one in tried]
    combination, admissible = best_combination(evaluator, tried, budgets)
    best = _best_row(evaluator, combination) if admissible else None
    stated = _stated_rows(evaluator, changes)
    rows, stated, (best,) = _at_largest_batch(evaluator, rows, stated, [best])
    return RemediesReport(
        baseline=report_of(single),
        budgets=budgets,
        rows=tuple(rows),
        stated=tuple(stated),
        best=best,
        combination=combination,
        map=remedy_map(evaluator, tried, budgets),
        remarks=_remarks(single, budgets, tried[0].before, combination, admissible),
    )


def _tried(evaluator: Evaluator) -> list[Tried]:
    """Every family's settings, evaluated together."""
    single = evaluator.single
    settings = {name: tuple(family.settings(single)) for name, family in FAMILIES.items()}
    against = [FAMILIES[name].against(single) for name in settings]
    changes: list[Change] = [*against, *(each.change for listed_ in settings.values() for each in listed_)]
    outcomes = evaluator(changes)
    found, start = [], len(against)
    for place, (name, own) in enumerate(settings.items()):
        part = outcomes.part(start, start + len(own))
        found.append(Tried(FAMILIES[name], own, outcomes.at(place), part))
        start += len(own)
    return found


def _best_row(evaluator: Evaluator, combination: Combination) -> Row:
    """The row of the best combination, with what it loses where a family is left out."""
    changes = combination.changes
    without = [{k: v for other in changes if other != name for k, v in changes[other].items()} for name in changes]
    outcomes = evaluator([{}, combination.change, *without])
    before, after = outcomes.at(0), outcomes.at(1)
    phrases = [FAMILIES[name].phrase(change) for name, change in changes.items()]
    if not changes:
        why = "nothing inside the budget is faster than the design as it is"
    else:
        left = [outcomes.at(2 + place) for place in range(len(changes))]
        why = _together(phrases, left, before, after)
    clauses = [why, _then(after), memory_clause(before, after)]
    return Row(
        family=BEST, setting=combination.change, phrase=", ".join(phrases), before=before, after=after,
        status=after.status, why=joined(clauses), flags=_new_flags(evaluator.single, combination.change),
    )  # fmt: skip


def _new_flags(single: SingleDesign, change: Change) -> tuple[str, ...]:
    """Flags of the changed design that the design as it is does not have."""
    own = flags_of(single)
    return tuple(flag for flag in flags_of(changed_design(single, change)) if flag not in own) if change else ()


def _together(phrases: Sequence[str], without: Sequence[Outcome], before: Outcome, after: Outcome) -> str:
    """What the families give together, and where one of them is left out."""
    ratio = speedup(before, after)
    gives = "an unknown speedup" if ratio is None else times_text(ratio)
    if len(phrases) == 1:
        return f"{phrases[0]} alone: {gives}"
    ranked = [(speedup(before, one), one.fits, phrase) for one, phrase in zip(without, phrases, strict=True)]
    slower = [f"{times_text(less)} without {phrase}" for less, fits, phrase in sorted(ranked) if less and fits]
    needed = [phrase for _, fits, phrase in ranked if not fits]
    lost = [listed(slower)] if slower else []
    lost += [f"it does not fit without {listed(needed)}"] if needed else []
    return f"{listed(phrases)} together give {'; '.join([gives, *lost])}"


def _then(after: Outcome) -> str:
    """What binds the best combination."""
    if after.bound_by != "hbm":
        return f"then the step waits for {binding(after)}"
    share = after.kv_share
    return f"then {'KV is' if share > 0.5 else 'weights are'} {percent(max(share, 1 - share))} of the traffic"


def _stated_rows(evaluator: Evaluator, changes: Sequence[Change]) -> list[Row]:
    if not changes:
        return []
    outcomes, rows = evaluator([{}, *changes]), []
    before = outcomes.at(0)
    for place, change in enumerate(changes, start=1):
        after = outcomes.at(place)
        phrase = ", ".join(f"{axis} {number_text(value)}" for axis, value in change.items())
        ratio = speedup(before, after)
        why = f"{phrase} gives {times_text(ratio)}" if ratio is not None else phrase
        first = [why, _then(after)] if after.known else [why, obstacle(evaluator.single, change, after.status)]
        vetoed = imposed_vetoes(changed_design(evaluator.single, change)) if after[VETOED] else ""
        told = joined(
            [*first, memory_clause(before, after) if after.known else "", f"vetoed: {vetoed}" if vetoed else ""]
        )
        rows.append(Row(STATED, change, phrase, before, after, after.status, told))
    return rows


def _at_largest_batch(evaluator: Evaluator, *groups: Sequence[Row | None]) -> list[list[Any]]:
    """The rows with their speed at the largest batch over that of the design at its own."""
    rows = [row for group in groups for row in group if row is not None and row.after is not None]
    pairs = [(row, whole(row.before["max_batch"]), whole(row.after["max_batch"])) for row in rows if row.after]
    some = [(row, own, new) for row, own, new in pairs if own and new]
    changes: list[dict[str, Value]] = []
    for row, own, new in some:
        changes += [{**row.against, "batch": own}, {**row.against, **row.setting, "batch": new}]
    if not changes:
        return [list(group) for group in groups]
    outcomes = evaluator(changes)
    found = {
        id(row): speedup(outcomes.at(2 * place), outcomes.at(2 * place + 1)) for place, (row, _, _) in enumerate(some)
    }
    return [[row and replace(row, speedup_at_max_batch=found.get(id(row))) for row in group] for group in groups]


def _remarks(
    single: SingleDesign, budgets: Budgets, before: Outcome, combination: Combination, admissible: bool
) -> tuple[str, ...]:
    found = []
    if before.status == "memory":
        found.append("The design as it is does not fit: speedups are against the speed it would have if it did.")
    if not before.known:
        found.append("The step's time of the design as it is is not known, so no speedup is.")
    broken = [budget for budget in budgets if before[budget.metric] > budget.most]
    if broken:
        loss, limit = losses_text(before, broken, single.task), limits_text(broken, single.task)
        found.append(f"The design as it is may lose {loss}, more than the budget of {limit}.")
    if before[VETOED]:
        found.append("The design as it is is vetoed, and no remedy that keeps its settings lifts that.")
    for name in single.catalogue.vetoes.allowed:
        found.append(f"Veto {name} is allowed: settings that are known to collapse for it are offered like others.")
    if not admissible:
        vetoed = " and not vetoed" if before[VETOED] else ""
        found.append(f"No combination of the settings tried is within the budget and the memory{vetoed}.")
    if not combination.exhaustive:
        found.append("There were too many combinations: the longest lists of settings were thinned out.")
    if single.number("kv_group_size") == 0 and FAMILIES["quantization"].settings(single):
        found.append("Low-bit KV is counted without scales: state kv_group_size for yours.")
    return tuple(found)
