"""A row of the answer: a family's best setting, what it is worth, and why in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.axes import AXES
from kvwall.sweep.layout_faults import layout_faults
from kvwall.sweep.reasons import missing_figures
from kvwall.sweep.remedies.budget import Budgets, limits_text, losses_of, losses_text
from kvwall.sweep.remedies.choose import Tried, in_budget, within
from kvwall.sweep.remedies.family import Change
from kvwall.sweep.remedies.outcome import DEVICES, LOSS, SPARE, VETOED, Outcome, Outcomes
from kvwall.sweep.remedies.sentences import joined, memory_clause, speedup, times_text
from kvwall.sweep.single import SingleDesign, changed_design
from kvwall.sweep.veto_words import imposed_vetoes

_MORE: Final = 1.05
"""A setting that the budget forbids is named from so much more speed on."""
_LABELS: Final = ("phase", "regime", "bound_by")


@dataclass(frozen=True)
class Row:
    """What one change to the design is worth. Numbers are in SI units, null where they are not known."""

    family: str
    setting: Change
    phrase: str
    """The setting in words; empty where there is none."""
    before: Outcome
    after: Outcome | None
    """None where no setting is allowed."""
    status: str
    """Of the design with it; `budget` or `veto` where that forbids every one, `nothing` where there is none."""
    why: str
    against: Change = field(default_factory=dict)
    combines: bool = True
    tried: tuple[Mapping[str, Any], ...] = ()
    """Every setting tried, mildest first."""
    flags: tuple[str, ...] = ()
    """What a reader of the best combination must know beyond the flags of the design as it is."""
    speedup_at_max_batch: float | None = None
    """Tokens per second at its largest batch over those of the design at its own."""

    @property
    def speedup(self) -> float | None:
        """Tokens per second over those of the design it is compared with, at the stated batch."""
        return speedup(self.before, self.after) if self.after else None

    @property
    def makes_it_fit(self) -> bool:
        """Whether the design fits with it and not without."""
        return self.after is not None and self.after.fits and self.before.status == "memory" and not self.against

    def to_json(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return {
            "family": self.family,
            "setting": dict(self.setting),
            "status": self.status,
            "makes_it_fit": self.makes_it_fit,
            **numbers(self.before, self.after),
            "speedup_at_max_batch": self.speedup_at_max_batch,
            "against": dict(self.against),
            "combines": self.combines,
            "tried": [dict(each) for each in self.tried],
            "flags": list(self.flags),
            "why": self.why,
        }


def numbers(before: Outcome, after: Outcome | None) -> dict[str, Any]:
    """Figures and labels of a change as plain JSON types."""
    ratio = speedup(before, after) if after else None
    labels = {f"{name}_before": before.label(name) for name in _LABELS}
    labels |= {f"{name}_after": after.label(name) if after else None for name in _LABELS}
    if after is None:
        names = ("memory_freed", "max_batch", "quality_loss", LOSS, "tokens_per_second", "time_per_output_token")
        blank = dict.fromkeys((*names, "devices", "speedup_per_device"))
        return {"speedup": None, **blank, "quality_losses": {}, **labels}
    devices = after[DEVICES]
    return {
        "speedup": ratio,
        "memory_freed": after[SPARE] - before[SPARE],
        "max_batch": whole(after["max_batch"]),
        "quality_loss": after["quality_loss"],
        LOSS: after[LOSS],
        "quality_losses": losses_of(after),
        "tokens_per_second": after["tokens_per_second"] if after.known else None,
        "time_per_output_token": after["time_per_output_token"] if after.known else None,
        "devices": int(devices),
        "speedup_per_device": None if ratio is None else ratio * before[DEVICES] / devices,
        **labels,
    }


def whole(count: float) -> int | None:
    """A largest batch, or None where nothing limits it.

    >>> whole(25.0), whole(1e20)
    (25, None)
    """
    return int(count) if math.isfinite(count) and count <= AXES["batch"].high else None


def row_of(tried: Tried, single: SingleDesign, budgets: Budgets) -> Row:
    """The row of a family."""
    family, before = tried.family, tried.before
    shared: dict[str, Any] = {"family": family.name, "before": before, "against": family.against(single)}
    place = tried.best(budgets)
    listed = tuple(_listed(tried, each) for each in range(len(tried.settings)))
    if not tried.settings:
        return Row(setting={}, phrase="", after=None, status="nothing", why=joined([family.nothing(single)]), **shared)
    if place is None:
        status, why = _refused(tried, single, budgets)
        return Row(setting={}, phrase="", after=None, status=status, why=why, tried=listed, **shared)
    setting, after = tried.settings[place], tried.outcomes.at(place)
    clauses = [
        family.sentence(single, setting.change, before, after),
        memory_clause(before, after, applied=bool(shared["against"])),
        _forbidden(tried, single, budgets, after),
        _vetoed_beyond(tried, single, budgets, after),
    ]
    return Row(
        setting=setting.change, phrase=family.phrase(setting.change), after=after, status=after.status,
        why=joined(clauses), combines=setting.combines, tried=listed, **shared,
    )  # fmt: skip


def _listed(tried: Tried, place: int) -> dict[str, Any]:
    after = tried.outcomes.at(place)
    return {
        "setting": dict(tried.settings[place].change),
        "status": after.status,
        "speedup": speedup(tried.before, after),
        "memory_freed": after[SPARE] - tried.before[SPARE],
        LOSS: after[LOSS],
        "quality_losses": losses_of(after),
    }


def _refused(tried: Tried, single: SingleDesign, budgets: Budgets) -> tuple[str, str]:
    """(status, why) where no setting is allowed."""
    outcomes, allowed = tried.outcomes, within(tried.outcomes, budgets)
    if allowed.any():  # by the budget, but they cannot be computed
        place = int(np.argmax(allowed))
        after = outcomes.at(place)
        return after.status, joined([obstacle(single, tried.settings[place].change, after.status)])
    vetoed, inside = np.asarray(outcomes[VETOED], bool), in_budget(outcomes, budgets)
    if vetoed.all() or inside.any():
        which, place = ("", 0) if vetoed.all() else (" within the budget", int(np.argmax(inside)))
        why = imposed_vetoes(changed_design(single, tried.settings[place].change))
        return "veto", joined([f"every setting{which} is vetoed: {why}"])
    place = int(np.argmin(np.where(vetoed, np.inf, outcomes[LOSS])))
    after, phrase = outcomes.at(place), tried.family.phrase(tried.settings[place].change)
    ratio = speedup(tried.before, after)
    worth = f" ({times_text(ratio)})" if ratio is not None else ""
    loses = f"the mildest, {phrase}{worth}, may lose {losses_text(after, budgets, single.task)}"
    return "budget", joined([f"every setting breaks the budget of {limits_text(budgets, single.task)}: {loses}"])


def obstacle(single: SingleDesign, change: Change, status: str) -> str:
    """Why a changed design has no speed: its layout, or a figure without a source."""
    changed = changed_design(single, change)
    if status == "layout":
        return f"cannot be laid out: {'; '.join(layout_faults(changed))}"
    return "; ".join(missing_figures(changed, "tokens_per_second"))


def _forbidden(tried: Tried, single: SingleDesign, budgets: Budgets, chosen: Outcome) -> str:
    """The fastest setting that fits and is clearly faster, but breaks a budget."""
    outcomes = tried.outcomes
    place = _faster(outcomes, outcomes.fits & ~in_budget(outcomes, budgets), chosen)
    if place is None:
        return ""
    after = outcomes.at(place)
    ratio = speedup(tried.before, after) or 1.0
    phrase = tried.family.phrase(tried.settings[place].change)
    lost = losses_text(after, budgets, single.task)
    return f"the budget forbids more: {phrase} ({times_text(ratio)}) may lose {lost}"


def _vetoed_beyond(tried: Tried, single: SingleDesign, budgets: Budgets, chosen: Outcome) -> str:
    """The fastest setting within the budgets that is clearly faster, but vetoed."""
    outcomes = tried.outcomes
    place = _faster(outcomes, outcomes.holds & ~outcomes.fits & in_budget(outcomes, budgets), chosen)
    if place is None:
        return ""
    ratio = speedup(tried.before, outcomes.at(place)) or 1.0
    change = tried.settings[place].change
    why = imposed_vetoes(changed_design(single, change))
    return f"a veto forbids more, such as {tried.family.phrase(change)} ({times_text(ratio)}): {why}"


def _faster(outcomes: Outcomes, among: NDArray[np.bool_], chosen: Outcome) -> int | None:
    """The place of the fastest of some designs, where it is clearly faster than the one chosen, which fits."""
    if not chosen.fits or not among.any():
        return None
    place = int(np.argmax(np.where(among, outcomes["tokens_per_second"], -1.0)))
    return None if outcomes["tokens_per_second"][place] < _MORE * chosen["tokens_per_second"] else place
