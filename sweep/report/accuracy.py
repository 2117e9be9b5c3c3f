"""What a study's estimates are worth: errors on rows that the fit has not seen, of the study's chips and engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.calibration import TYPICAL
from kvwall.spaces.errors import InputError
from kvwall.spaces.generations import generation_of_engine, load_generations
from kvwall.sweep.accuracy import Accuracy
from kvwall.sweep.held_out_record import HeldOutRecord, load_held_out
from kvwall.sweep.report.parts import Section, Table
from kvwall.sweep.report.wording import listed, short_name
from kvwall.sweep.speed_table import cells
from kvwall.sweep.study import Study

HEAD: Final = ("", "rows", "median error", "mean error", "time", "in the band")
_ESTIMATE: Final = "estimate"


def accuracy_sections(study: Study) -> tuple[Section, ...]:
    """The section of a study of estimates; none of a study of ceilings."""
    return (accuracy_section(study),) if study.mode == _ESTIMATE else ()


def accuracy_section(study: Study) -> Section:
    """Errors by the study's chips and engines; where the record is missing, why there are none."""
    title = "How far off estimates are"
    try:
        record = load_held_out()
    except InputError as fault:
        return Section("accuracy", title, fault.faults)
    lead = (
        "Published speeds, each predicted by a fit that has not seen its model on its chip; the last two lines: that "
        "has not seen its chip. Time: above 0 % predicted too slow, below too fast. Bands are meant to hold 80 %.",
    )
    return Section("accuracy", title, lead, (accuracy_table(study, record),), tuple(_unmeasured(study, record)))


def accuracy_table(study: Study, record: HeldOutRecord) -> Table:
    """One line for each measured chip and engine of the study, then for kinds of model."""
    chips, engines = _chips(study), _engines(study)
    found: list[tuple[str, Accuracy]] = []
    for label, wanted in (("hardware", chips), ("engine", engines)):
        found += [
            (short_name(group.by[label]), group.accuracy)
            for name in wanted
            for group in record.of(label)
            if group.by[label] == name
        ]
    for way, words in (("pair", ""), ("chip", ", chip left out")):
        kinds = record.left_out[way]
        found.append((f"dense models{words}", kinds.dense.accuracy))
        found.append((f"models with routed experts{words}", kinds.experts.accuracy))
    return Table(HEAD, tuple((name, *cells(each)) for name, each in found))


def _chips(study: Study) -> list[str]:
    return [str(chip) for chip in study.space.values("hardware")]


def _engines(study: Study) -> list[str]:
    """Generations that the study's engines stand for."""
    found: dict[str, None] = {}
    for engine in study.space.values("engine"):
        generation = generation_of_engine(str(engine))
        found |= dict.fromkeys([generation] if generation in load_generations() else TYPICAL)
    return list(found)


def _unmeasured(study: Study, record: HeldOutRecord) -> Iterator[str]:
    """Chips without a row, and who stands in for them."""
    measured = {group.by["hardware"] for group in record.of("hardware")}
    related: dict[str, list[str]] = {}
    for chip in _chips(study):
        if chip not in measured:
            related.setdefault(_borrowed(chip, measured), []).append(short_name(chip))
    for lender, chips in related.items():
        yield f"No measured row is of {listed(chips)}: estimates borrow from {lender}, with wider bands."


def _borrowed(chip: str, measured: Sequence[str] | set[str]) -> str:
    architecture = load_architectures().of(chip)
    own = sorted(each for each in measured if load_architectures().of(each) == architecture)
    return listed([short_name(each) for each in own]) if own else "all measured chips"
