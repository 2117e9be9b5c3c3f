"""The curves that losses are read from: what each is called, what it rests on, and the user's own points on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvwall.objectives.kv import FULL_BITS
from kvwall.spaces.quality import Evidence, QualityCurves, curve_key
from kvwall.spaces.quality_methods import load_methods, reader_of
from kvwall.spaces.quality_record_columns import dropper_of
from kvwall.spaces.quality_tasks import TASKS, task_rows
from kvwall.sweep.single import SingleDesign

_BITS: Final = {"quantizer": "quantizer", "weight_quantizer": "weight quantizer"}


@dataclass(frozen=True)
class Curve:
    """A curve of the record."""

    remedy: str
    """quantizer, evictor, weight_quantizer or activation."""
    name: str
    task: str
    visible: bool
    evidence: Evidence
    points: int
    """Of the user's own evidence; 0 in the shipped record."""

    @property
    def text(self) -> str:
        """The curve in words, without its task."""
        match self.remedy:
            case "evictor":
                by_question = load_methods()["evictor"].by_question(self.name)
                seen = f", question {'visible' if self.visible else 'hidden'}" if by_question else ""
                return f"evictor {self.name}{seen}"
            case "activation":
                return "activation bits"
            case _:
                return f"{_BITS[self.remedy]} {self.name}"

    @property
    def remark(self) -> str:
        """What a reader should know of its evidence; "" where several sources measured it."""
        if self.points:
            return f"narrowed by {self.points} measured point{'s' if self.points > 1 else ''} of your own"
        if self.evidence.borrowed_from is not None:
            return f"has no rows of its own and is borrowed from {self.evidence.borrowed_from}"
        return "rests on a single source" if self.evidence.sources == 1 else ""


def curve_of(curves: QualityCurves, remedy: str, name: str, task: str, visible: bool = True) -> Curve:
    """A curve of a record."""
    if remedy == "evictor":
        evidence = curves.eviction(name, task, visible).evidence
    elif remedy == "activation":
        evidence = curves.activation[task].evidence
    else:
        evidence = getattr(curves, remedy)[name][task].evidence
    own = curves.narrowed.get(curve_key(remedy, name, task, visible))
    return Curve(remedy, name, task, visible, evidence, own.points if own else 0)


def curves_used(single: SingleDesign) -> Iterator[Curve]:
    """The curves that a design's loss on its task is read from, task by task."""
    curves, inputs = single.catalogue.curves, single.inputs
    visible = bool(inputs["question_visible"])
    weight_bits = float(single.design.precision.weight_bits)
    for task in (TASKS[row] for row in task_rows(single.task)):
        if min(single.number("key_bits"), single.number("value_bits")) < FULL_BITS:
            yield curve_of(curves, "quantizer", str(inputs["quantizer"]), task)
        if float(single.step.ledger.kept_fraction) < 1:
            yield curve_of(curves, "evictor", dropper_of(str(inputs["evictor"])), task, visible)
        if single.number("read_fraction") < 1:
            yield curve_of(curves, "evictor", reader_of(str(inputs["evictor"])), task)
        if 0 < weight_bits < FULL_BITS:
            yield curve_of(curves, "weight_quantizer", str(inputs["weight_quantizer"]), task)
        if single.number("activation_bits") < FULL_BITS:
            yield curve_of(curves, "activation", "activation", task)
