"""The quality part of an explanation: hazards of each remedy and the loss they compose to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final, TypeAlias

import jax.numpy as jnp

from kvwall.objectives import quality
from kvwall.objectives.kv import FULL_BITS
from kvwall.objectives.metrics import compression
from kvwall.spaces.quality_methods import reader_of
from kvwall.spaces.quality_record_columns import dropper_of
from kvwall.spaces.quality_tasks import TASKS, Task, task_named
from kvwall.spaces.units import Real
from kvwall.sweep.curve_evidence import Curve, curve_of
from kvwall.sweep.equation import Sheet
from kvwall.sweep.single import SingleDesign

_BIT_HAZARD: Final = "{scale}*(exp({slope}*(4 - {bits})) - exp(-12*{slope})) + {floor}*((16 - {bits})/8)**4"
_BIT_FIELDS: Final = ("scale", "slope", "floor", "spread", "noise")
_EVICTION_FIELDS: Final = ("exponent", "log_half", "ceiling", "spread", "noise")

Terms: TypeAlias = tuple[str, str]
"""What a remedy adds to the central and to the upper hazard."""


def add_quality(sheet: Sheet, single: SingleDesign) -> None:
    """Add the equations of the task's loss; nothing is lost where nothing is compressed."""
    task = task_named(single.task)
    for row in task.rows:
        terms = list(_terms(sheet, single, row))
        if not terms:
            sheet.notes.append("quality loss: 0, nothing is compressed")
            return
        _loss(sheet, single, row, terms)
    if len(task.rows) > 1:
        for end in ("", "_upper"):
            result = single.evaluation.metrics[f"quality_loss{end}"]
            sheet.add(_section(single.task), f"loss{end}", _made_of(task, end), result, "")


def _made_of(task: Task, end: str) -> str:
    losses = [f"loss{end}_{TASKS[row]}" for row in task.rows]
    if task.weights is None:
        return f"max({', '.join(losses)})"
    return " + ".join(
        f"{Fraction(weight).limit_denominator(100)}*{loss}" for weight, loss in zip(task.weights, losses, strict=True)
    )


def _section(task: str) -> str:
    return f"Quality, task {task}"


def _row(tasks: Real, row: int) -> float:
    """One task's number."""
    return float(jnp.broadcast_to(jnp.asarray(tasks), (len(TASKS), *jnp.shape(tasks)[1:])).reshape(len(TASKS))[row])


def _source(single: SingleDesign, curve: Curve) -> str:
    curves = single.catalogue.curves
    rests = f"{curve.evidence.rows} rows of {curve.evidence.sources} sources"
    remark = f", {curve.remark}" if curve.remark else ""
    return f"quality curves {curves.version}, fitted {curves.fitted}: {curve.text}, {rests}{remark}"


def _terms(sheet: Sheet, single: SingleDesign, row: int) -> Iterator[Terms]:
    """What each remedy in use adds to a task's hazards, its equations added."""
    task, curves, inputs = TASKS[row], single.catalogue.curves, single.inputs
    own, visible = single.design.quality, bool(inputs["question_visible"])
    asked = compression(single.design, single.step)
    quantizes = min(single.number("key_bits"), single.number("value_bits")) < FULL_BITS
    drops = float(asked.kept_fraction) < 1
    if quantizes:
        curve = curve_of(curves, "quantizer", str(inputs["quantizer"]), task)
        for kind in ("key", "value"):
            yield _of_bits(sheet, single, row, kind, getattr(own.cache, kind), curve)
    if drops:
        curve = curve_of(curves, "evictor", dropper_of(str(inputs["evictor"])), task, visible)
        yield _of_tokens(sheet, single, row, ("evict", "keep", asked.kept_fraction), own.evictor, curve)
    if quantizes and drops:
        yield _of_small_budget(sheet, single, row)
    if single.number("read_fraction") < 1:
        curve = curve_of(curves, "evictor", reader_of(str(inputs["evictor"])), task)
        yield _of_tokens(sheet, single, row, ("read", "read_fraction", asked.read_fraction), own.reader, curve)
    if 0 < float(single.design.precision.weight_bits) < FULL_BITS:
        curve = curve_of(curves, "weight_quantizer", str(inputs["weight_quantizer"]), task)
        yield _of_bits(sheet, single, row, "weight", own.weight, curve)
    if single.number("activation_bits") < FULL_BITS:
        curve = curve_of(curves, "activation", "activation", task)
        yield _of_bits(sheet, single, row, "activation", own.activation, curve)


def _given(sheet: Sheet, single: SingleDesign, row: int, kind: str, columns: Any, curve: Curve) -> Callable[[str], str]:
    """Name the fields of a curve as inputs; the answer makes a symbol of a field."""
    source = _source(single, curve)
    fields = _EVICTION_FIELDS if hasattr(columns, "ceiling") else _BIT_FIELDS
    for field in fields:
        symbol, meaning = f"{kind}_{field}_{TASKS[row]}", f"{field} of {curve.text}"
        sheet.given(symbol, _row(getattr(columns, field), row), meaning, source)
    return lambda field: f"{kind}_{field}_{TASKS[row]}"


def _of_bits(sheet: Sheet, single: SingleDesign, row: int, kind: str, columns: Any, curve: Curve) -> Terms:
    task, bits = TASKS[row], float(single.number(f"{kind}_bits"))
    symbol = _given(sheet, single, row, kind, columns, curve)
    sheet.given(f"{kind}_bits", bits, f"{kind}_bits", f"axis {kind}_bits, user")
    parts = {field: symbol(field) for field in ("scale", "slope", "floor")}
    result = _row(quality.bit_hazard(bits, columns, upper=False), row)
    hazard = f"hazard_{kind}_{task}"
    sheet.add(_section(task), hazard, _BIT_HAZARD.format(**parts, bits=f"{kind}_bits"), result, "")
    noise = f"{symbol('noise')}*((16 - {kind}_bits)/12)**5"
    return hazard, f"{symbol('spread')}*{hazard} + {noise}"


def _of_tokens(
    sheet: Sheet, single: SingleDesign, row: int, share: tuple[str, str, Any], columns: Any, curve: Curve
) -> Terms:
    (kind, used, kept), task = share, TASKS[row]
    symbol = _given(sheet, single, row, kind, columns, curve)
    overload = jnp.exp(columns.exponent * (jnp.log((1 - kept) / kept) - columns.log_half))
    formula = f"exp({symbol('exponent')}*(ln((1 - {used})/{used}) - {symbol('log_half')}))"
    sheet.add(_section(task), f"{kind}_overload_{task}", formula, _row(overload, row), "")
    hazard = f"hazard_{kind}_{task}"
    formula = f"ln(1 + {kind}_overload_{task}) - ln(1 + (1 - {symbol('ceiling')})*{kind}_overload_{task})"
    sheet.add(_section(task), hazard, formula, _row(quality.eviction_hazard(kept, columns, upper=False), row), "")
    return hazard, f"{symbol('spread')}*{hazard} - {symbol('noise')}*ln({used})"


def _of_small_budget(sheet: Sheet, single: SingleDesign, row: int) -> Terms:
    """What few bits with few tokens lose beyond the product."""
    task, columns = TASKS[row], single.design.quality.small_budget
    budget = single.catalogue.curves.small_budget
    source = f"quality curves {single.catalogue.curves.version}: rows of 2-bit caches of evicted tokens"
    sheet.given("few_hazard", budget.hazard, "hazard of 2 bits with few tokens", source)
    sheet.given("few_kept", budget.kept, "fraction of the tokens that is few", source)
    bits = min(single.number("key_bits"), single.number("value_bits"))
    kept = compression(single.design, single.step).kept_fraction
    fewness = "min(2, max(0, 1 - ln(keep/few_kept)/ln(4)))"
    narrow = f"min(1, max(0, (4 - {bits:g})/2))"
    formula = f"few_hazard*(1 - keep)*{fewness}*{narrow}**2"
    hazard = f"hazard_few_{task}"
    sheet.add(_section(task), hazard, formula, _row(quality.small_budget_hazard(bits, kept, columns), row), "")
    return hazard, f"key_spread_{task}*{hazard}"


def _loss(sheet: Sheet, single: SingleDesign, row: int, terms: list[Terms]) -> None:
    """Central and upper loss of one task from its hazards."""
    task, metrics = TASKS[row], single.evaluation.metrics
    for end, place in (("", 0), ("_upper", 1)):
        total = " + ".join(each[place] for each in terms)
        formula = total if task == "perplexity" else f"1 - exp(-({total}))"
        result: Any = metrics[f"quality_loss{end}_{task}"]
        sheet.add(_section(task), f"loss{end}_{task}", formula, result, "")
