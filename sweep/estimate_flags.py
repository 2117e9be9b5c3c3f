"""What a reader of an estimate must know: what stands for the ideal engine, and where it leaves what was measured."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from kvwall.objectives.extrapolated import RESPECTS, respects
from kvwall.objectives.load import evaluated_context
from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.calibration import TYPICAL, Calibration
from kvwall.spaces.generations import generation_of_engine, load_generations
from kvwall.sweep.readable import number_text
from kvwall.sweep.single import SingleDesign


def estimate_flags(single: SingleDesign) -> Iterator[str]:
    """Flags of a design in estimate mode; none of a ceiling."""
    record = single.catalogue.calibration
    if record is None:
        return
    engine = str(single.inputs["engine"])
    if generation_of_engine(engine) not in load_generations():
        mean = f"the mean of {', '.join(TYPICAL)}"
        yield f"estimate: engine {engine} stands for {mean}; state the engine for a narrower band"
    with jax.enable_x64(True):
        found = respects(single.design, single.step)
    for name, outside in zip(RESPECTS[1:], found, strict=True):
        if bool(outside):
            yield f"extrapolated: {_in_words(single, record, name)}"


def _in_words(single: SingleDesign, record: Calibration, respect: str) -> str:
    engine, chip, reached = str(single.inputs["engine"]), single.hardware.name, single.step.estimated.calibrated.reached
    match respect:
        case "engine":
            return f"no measured row is of engine {engine}"
        case "chip":
            return f"no measured row is of engine {engine} on {chip}: it borrows from {_lenders(record, chip)}"
        case "cache_format":
            known = [float(bits) for bits in reached.cache_bits if float(bits) > 0]
            asked = sorted({single.number("key_bits"), single.number("value_bits")})
            return f"KV of {_listed(asked)} bits; measured with {_listed(known) or 'none'}"
        case "context":
            context = number_text(round(float(evaluated_context(single.design))))
            return f"context {context} is beyond the longest measured, {float(reached.context):,.0f}"
        case _:
            batch = number_text(round(float(single.step.load.active)))
            return f"batch {batch} is beyond the largest measured, {float(reached.batch):,.0f}"


def _lenders(record: Calibration, chip: str) -> str:
    """The chips of the same architecture that rows are of, or all."""
    architecture = load_architectures().of(chip)
    measured = sorted({pair.partition("/")[2] for pair in record.reach.pairs})
    related = [each for each in measured if load_architectures().of(each) == architecture]
    if not related:
        return f"all {len(measured)} measured chips"
    return f"{', '.join(related)} ({architecture})" if chip not in related else f"{chip} with other engines"


def _listed(bits: list[float]) -> str:
    return ", ".join(f"{each:g}" for each in bits)
