"""Units: measured in other bytes, seconds, joules, FLOP or dollars, every number scales by exactly its own unit."""

from __future__ import annotations

import importlib
import pkgutil
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import numpy as np
import pytest

from kvwall import objectives
from kvwall.objectives import compute, kv, sparse_read, transfer
from kvwall.objectives.estimate import Estimate, OperatorTimes
from kvwall.objectives.register import Metric, label_register, metric_register, mode_of, unit_of
from kvwall.objectives.status import always
from kvwall.objectives.step import Step, evaluate_step
from kvwall.spaces.achieved import Achieved, Calibrated
from kvwall.spaces.design import Design, Sourced, Tier
from kvwall.spaces.engine_columns import EngineColumns
from kvwall.spaces.units import Bytes, Flag, Seconds
from tests.designs import Designs
from tests.stand_in import stand_in

pytestmark = pytest.mark.usefixtures("float64")

UNITS = ("byte", "s", "J", "FLOP", "USD")
FACTOR = 4.0
"""A power of two: scaling is exact, and a whole number stays the same whole number."""
TASK = "retrieval"
WORD = re.compile(r"([A-Za-z]+)(-?[0-9]+)?")

TIER = {"bandwidth": "byte s-1", "capacity": "byte", "energy": "J byte-1"}
CATALOGUE = {
    "memory_capacity": "byte",
    "reported_capacity": "byte",
    "memory_bandwidth": "byte s-1",
    "bf16_flops": "FLOP s-1",
    "fp8_flops": "FLOP s-1",
    "fp4_flops": "FLOP s-1",
    "scale_up_bandwidth": "byte s-1",
    "scale_up_domain": "1",
    "scale_out_bandwidth": "byte s-1",
    "memory_domains": "1",
    "memory_energy": "J byte-1",
    "flop_energy": "J FLOP-1",
}
"""Units of the chip's figures; those of an engine are annotated, and all else but states is a count, ratio or bits."""
COSTS = ("layer", "expert_layer", "step", "sequence", "prompt_layer")
"""What is achieved in seconds, beside the cost of collectives; all else is a share or a count."""
TIERS = ("host", "cxl", "nvme", "remote")


def powers(unit: str) -> dict[str, int]:
    """The power of each base unit: "byte s-1" is {"byte": 1, "s": -1}."""
    words = [word for word in unit.split() if word != "1"]
    found = [WORD.fullmatch(word) for word in words]
    assert all(found), f"{unit!r} is not a product of powers"
    return {match[1]: int(match[2] or 1) for match in found if match}


def factor(unit: str, changed: str) -> float:
    """What a number in `unit` is multiplied by when the base unit `changed` is FACTOR times smaller."""
    return float(FACTOR ** powers(unit).get(changed, 0))


def scaled(number: Any, by: float) -> Any:
    """A figure in other units; an unsourced one too, as any number may stand there."""
    if isinstance(number, Sourced):
        return replace(number, value=number.value * by)
    return number if by == 1 else number * by


def tier_in_other_units(tier: Tier, changed: str) -> Tier:
    """The same tier with its figures in the other unit."""
    return replace(tier, **{name: scaled(getattr(tier, name), factor(unit, changed)) for name, unit in TIER.items()})


def in_other_units(design: Design, changed: str) -> Design:
    """The same design with its catalogue figures in the other unit."""
    chip = design.hardware
    figures = {name: scaled(getattr(chip, name), factor(unit, changed)) for name, unit in CATALOGUE.items()}
    figures |= {name: tier_in_other_units(getattr(chip, name), changed) for name in TIERS}
    price = scaled(design.usd_per_second, factor("USD s-1", changed))
    groups = design.model.groups
    states = replace(groups, state_bytes=scaled(groups.state_bytes, factor("byte", changed)))
    model = replace(design.model, groups=states)
    rules = {name: factor(unit, changed) for name, unit in declared(EngineColumns).items()}
    engine = replace(design.engine, **{name: scaled(getattr(design.engine, name), by) for name, by in rules.items()})
    known = design.calibrated and calibrated_in_other_units(design.calibrated, changed)
    chip = replace(chip, **figures)
    return replace(design, model=model, hardware=chip, engine=engine, usd_per_second=price, calibrated=known)


def calibrated_in_other_units(known: Calibrated, changed: str) -> Calibrated:
    """The same shares and costs, and ways to be wrong, in the other unit."""

    def achieved(each: Achieved) -> Achieved:
        costs = {name: scaled(getattr(each, name), factor("s", changed)) for name in COSTS}
        collective = jax.tree.map(lambda number: scaled(number, factor("s", changed)), each.collective)
        return replace(each, **costs, collective=collective)

    return replace(known, achieved=achieved(known.achieved), directions=achieved(known.directions))


def change_constants(patch: pytest.MonkeyPatch, changed: str) -> None:
    """Bits become bytes, and multiplications FLOP, by constants that carry the unit."""
    if changed == "byte":
        bits = kv.BITS_PER_BYTE / FACTOR
        names = [module.name for module in pkgutil.iter_modules(objectives.__path__)]
        modules = [importlib.import_module(f"kvwall.objectives.{name}") for name in names]
        for module in (module for module in modules if hasattr(module, "BITS_PER_BYTE")):
            patch.setattr(module, "BITS_PER_BYTE", bits)
        patch.setattr(sparse_read, "_BYTES", sparse_read._BYTES * FACTOR)
    if changed == "FLOP":
        patch.setattr(compute, "FLOP_PER_MULTIPLY_ADD", compute.FLOP_PER_MULTIPLY_ADD * FACTOR)
    if changed == "s":
        curve = transfer.load_transfer_curve()
        slower = replace(curve, seconds_per_piece=curve.seconds_per_piece * FACTOR)
        patch.setattr(transfer, "load_transfer_curve", lambda: slower)


@dataclass(frozen=True)
class Reading:
    """Numbers of the designs by name."""

    quantities: Mapping[str, Any]
    """Of the step, by dotted name."""
    metrics: Mapping[str, Any]
    labels: Mapping[str, Any]


def read(design: Design, register: Mapping[str, Metric]) -> Reading:
    """Everything of the designs, freshly traced: a compiled law has its constants folded in."""

    def laws(design: Design) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        step = evaluate_step(design)
        metrics = {name: metric.law(design, step) for name, metric in register.items()}
        labels = label_register(mode_of(design))
        return quantities(step), metrics, {name: label.law(design, step) for name, label in labels.items()}

    return Reading(*jax.tree.map(np.asarray, jax.jit(laws)(design)))


def quantities(record: Any) -> dict[str, Any]:
    """The numbers of a record of records and tuples, by dotted name."""
    if isinstance(record, Estimate):  # the parts that its time is made of
        inside = {"times": record.times}
    elif record is None:
        inside = {}
    elif is_dataclass(record):
        inside = {field.name: getattr(record, field.name) for field in fields(record)}
    elif isinstance(record, tuple):
        inside = {str(place): value for place, value in enumerate(record)}
    else:
        return {"": record}
    found = [(name, quantities(value)) for name, value in inside.items()]
    return {f"{name}.{inner}".rstrip("."): number for name, below in found for inner, number in below.items()}


def declared(hint: Any) -> dict[str, str]:
    """The units that a record's annotations declare, by dotted name."""
    if hint == Estimate | None:
        inside = {"times": OperatorTimes}
    elif is_dataclass(hint):
        inside = typing.get_type_hints(hint, include_extras=True)
    elif typing.get_origin(hint) is tuple:
        inside = {str(place): inner for place, inner in enumerate(typing.get_args(hint))}
    else:
        (unit,) = ("1",) if hint == Flag else hint.__metadata__
        return {"": unit}
    found = [(name, declared(inner)) for name, inner in inside.items()]
    return {f"{name}.{inner}".rstrip("."): unit for name, below in found for inner, unit in below.items()}


def off_scale(
    before: Mapping[str, Any], after: Mapping[str, Any], units: Mapping[str, str], changed: str, near: float = 1e-14
) -> list[str]:
    """The numbers that did not scale by their unit."""
    expected = {name: scaled(number, factor(units[name], changed)) for name, number in before.items()}
    return [name for name, number in expected.items() if not np.allclose(after[name], number, rtol=near, atol=0)]


def bytes_and_seconds(design: Design, step: Step) -> Bytes:
    """A planted error: bytes plus seconds."""
    return step.ledger.hbm_bytes + step.time * 1e9


def bytes_called_seconds(design: Design, step: Step) -> Seconds:
    """A planted error: another unit than declared."""
    return step.ledger.hbm_bytes


def hidden_constant(design: Design, step: Step) -> Seconds:
    """A planted error: a figure in bytes per second written into a law."""
    return step.ledger.hbm_bytes / 8e12


PLANTED = {
    law.__name__: Metric(law.__name__, law, always, unit_of(law), "planted")
    for law in (bytes_and_seconds, bytes_called_seconds, hidden_constant)
}


def in_the_other_unit(designs: Designs, register: Mapping[str, Metric], changed: str) -> Reading:
    """The designs read in the other unit."""
    with pytest.MonkeyPatch.context() as patch:
        change_constants(patch, changed)
        return read(in_other_units(designs.design(), changed), register)


@pytest.fixture(scope="module")
def in_si(random_designs: Designs) -> Reading:
    """The designs read in SI."""
    with jax.enable_x64(True):
        return read(random_designs.design(), {**metric_register(TASK, "ceiling"), **PLANTED})


def fitted() -> dict[str, Metric]:
    """The metrics of an estimate whose numbers are not the ceiling's."""
    ceilings = metric_register(TASK, "ceiling")
    estimates = metric_register(TASK, "estimate").items()
    return {name: one for name, one in estimates if name not in ceilings or ceilings[name].evidence != one.evidence}


@pytest.fixture(scope="module")
def estimated(random_designs: Designs) -> Designs:
    """The same designs in estimate mode."""
    return replace(random_designs, catalogue=replace(random_designs.catalogue, calibration=stand_in()))


@pytest.fixture(scope="module")
def estimates_in_si(estimated: Designs) -> Reading:
    """Estimates of the designs, read in SI."""
    with jax.enable_x64(True):
        return read(estimated.design(), fitted())


@pytest.mark.parametrize("changed", ["byte", "s", "FLOP"])
def test_every_number_of_an_estimate_scales_by_its_unit(
    estimated: Designs, estimates_in_si: Reading, changed: str
) -> None:
    """Bands included."""
    register = fitted()
    after = in_the_other_unit(estimated, register, changed)
    units = {name: one.unit for name, one in register.items()}
    near = 1e-7  # a crossover at 1e14 tokens is a quotient of next to nothing
    assert off_scale(estimates_in_si.metrics, after.metrics, units, changed, near) == []
    roots = 1e-7  # beside what stands for no time in a cube root, attention of a few ns is not alone
    assert off_scale(estimates_in_si.quantities, after.quantities, declared(Step), changed, roots) == []
    for name, codes in estimates_in_si.labels.items():
        assert np.array_equal(after.labels[name], codes), name


@pytest.mark.parametrize("changed", UNITS)
def test_every_number_scales_by_its_unit(random_designs: Designs, in_si: Reading, changed: str) -> None:
    """Metrics by their register's unit, the step's quantities by their annotations, labels not at all."""
    register = metric_register(TASK, "ceiling")
    after = in_the_other_unit(random_designs, register, changed)
    before = {name: in_si.metrics[name] for name in register}
    assert off_scale(before, after.metrics, {name: one.unit for name, one in register.items()}, changed) == []
    assert off_scale(in_si.quantities, after.quantities, declared(Step), changed) == []
    for name, codes in in_si.labels.items():
        assert np.array_equal(after.labels[name], codes), name


def test_every_unit_is_somewhere(random_designs: Designs) -> None:
    """A unit that no metric is in would be rescaled without a trace."""
    units = [powers(one.unit) for one in metric_register(TASK, "ceiling").values()]
    assert {word for unit in units for word in unit} == set(UNITS)
    chip = random_designs.design().hardware
    assert {field.name for field in fields(chip)} == {*CATALOGUE, *TIERS}
    assert {field.name for field in fields(Tier)} == set(TIER)
    assert all(isinstance(getattr(chip, name), Tier) for name in TIERS)


@pytest.mark.parametrize("changed", ["byte", "s"])
def test_a_planted_error_is_found(random_designs: Designs, in_si: Reading, changed: str) -> None:
    register = {"tokens_per_second": metric_register(TASK, "ceiling")["tokens_per_second"], **PLANTED}
    after = in_the_other_unit(random_designs, register, changed)
    before = {name: in_si.metrics[name] for name in register}
    assert off_scale(before, after.metrics, {name: one.unit for name, one in register.items()}, changed) == [*PLANTED]


def no_annotation(design: Design, step: Step):  # noqa: ANN201
    """A law without a unit."""
    return step.time


def bare_number(design: Design, step: Step) -> float:
    """A law that says it is a number and no more."""
    return step.time


@pytest.mark.parametrize("law", [no_annotation, bare_number])
def test_a_law_without_a_unit_is_refused(law: Any) -> None:
    with pytest.raises(TypeError, match=f"{law.__name__} must state its unit"):
        unit_of(law)


@pytest.mark.parametrize(("unit", "expected"), [("1", {}), ("byte s-1", {"byte": 1, "s": -1}), ("USD", {"USD": 1})])
def test_units_are_products_of_powers(unit: str, expected: dict[str, int]) -> None:
    assert powers(unit) == expected
