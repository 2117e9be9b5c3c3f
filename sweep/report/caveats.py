"""What a reader must know beside the numbers: designs left out, assumptions, limits passed, weak evidence."""

from __future__ import annotations

from collections.abc import Iterator

from kvwall.objectives.register import STATUS_OK
from kvwall.objectives.status import STATUSES
from kvwall.spaces.errors import InputError
from kvwall.spaces.vetoes import HARD_RETRIEVAL
from kvwall.sweep.flags import flags_of
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.left_out import without_value
from kvwall.sweep.report.parts import Items, Section, Table
from kvwall.sweep.report.remarks import remarks
from kvwall.sweep.report.wording import listed, share_text, short_name
from kvwall.sweep.single import single_design

STATUS_WORDS = {
    "memory": "do not fit in memory",
    "layout": "cannot be laid out",
    "unsourced_input": "lack a figure",
    "veto": "known to collapse",
    "not_computed": "not computed",
}
_NOTHING = "No assumption was made, and no best design goes beyond what its data cover."


def caveats(choices: Choices) -> Section:
    """Assumptions and flags."""
    left_out = [*(one.sentence() for one in choices.chip_counts if one.unsourced), *without_value(choices.results)]
    assumed = [*_assumptions(choices)]
    study_wide, own = [*remarks(choices.results)], [*_design_flags(choices)]
    lists = (
        ("Not ranked", left_out),
        ("Assumed or changed", assumed),
        ("Of the study", study_wide),
        ("Of the best design of each chip, as `kvwall evaluate` tells them", own),
    )
    blocks: list[Items | Table] = [Items(caption, tuple(texts)) for caption, texts in lists if texts]
    lead = () if blocks else (_NOTHING,)
    if choices.chip_counts:
        blocks.append(_statuses(choices))
    return Section("caveats", "Assumptions and flags", lead, tuple(blocks))


def _statuses(choices: Choices) -> Table:
    """Designs of each chip by status."""
    present = [word for word in STATUSES if any(word in one.statuses for one in choices.chip_counts)]
    others = [word for word in present if word != STATUSES[STATUS_OK]]
    head = ("chip", "designs", "feasible", *(STATUS_WORDS[word] for word in others))
    rows = []
    for one in choices.chip_counts:
        counts = [one.statuses.get(word, 0) for word in (STATUSES[STATUS_OK], *others)]
        told = [f"{count:,} ({share_text(count, one.designs)})" for count in counts]
        rows.append((short_name(str(one.chip)), f"{one.designs:,}", *told))
    return Table(head, tuple(rows), caption="Designs of the grid by chip")


def _assumptions(choices: Choices) -> Iterator[str]:
    for change in choices.results.changes:
        yield f"Changed since the sweep, so curves on this page may differ from its results: {change}."
    for chip, figures in choices.study.assume.items():
        for figure, quantity in figures.items():
            yield f"Assumed: {figure.replace('_', ' ')} of {short_name(str(chip))} is {quantity}."


def _design_flags(choices: Choices) -> Iterator[str]:
    """Flags of the best designs, each once with the chips whose best design carries it."""
    found: dict[str, list[str]] = {}
    study = choices.study
    for model in choices.models:
        for chip in choices.chips:
            index = choices.best_index(model, chip)
            if index is None:
                continue
            whose = short_name(str(chip))
            whose = f"{short_name(str(model))} on {whose}" if len(choices.models) > 1 else whose
            try:
                single = single_design(
                    study.space.point(index), task=study.task, confidence=study.confidence, mode=study.mode,
                    assume=study.assume.get(str(chip), {}), allow_veto=study.allow_veto,
                    quality_curves=study.quality_curves,
                    budgeted=HARD_RETRIEVAL if study.vetoes.hard_retrieval else (),
                )  # fmt: skip
            except InputError as error:  # a model or chip file that has gone since
                for fault in error.faults:
                    found.setdefault(fault, []).append(whose)
                continue
            for flag in flags_of(single):
                if not flag.startswith("assumed:"):
                    found.setdefault(flag, []).append(whose)
    for flag, chips in found.items():
        yield f"{listed(chips)}: {flag}."
