"""The quality part of an explanation: hazards of each remedy and the loss they compose to."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp

from kvwall.objectives import kv, quality
from kvwall.spaces.quality import TASKS, Evidence, load_quality_curves, task_rows
from kvwall.spaces.units import Real
from kvwall.sweep.equation import Sheet, product
from kvwall.sweep.single import SingleDesign

_BIT_HAZARD: Final = "{scale}*(exp({slope}*(4 - {bits})) - exp(-12*{slope})) + {floor}*((16 - {bits})/8)**4"


def add_quality(sheet: Sheet, single: SingleDesign) -> None:
    """Add the equations of the task's loss; nothing is lost where nothing is compressed."""
    rows = task_rows(single.task)
    for row in rows:
        found = (law(sheet, single, row) for law in (_kv, _eviction, _weight))
        hazards = [each for each in found if each is not None]
        if not hazards:
            sheet.notes.append("quality loss: 0, nothing is compressed")
            return
        _loss(sheet, single, row, hazards)
    if len(rows) > 1:
        for end in ("", "_upper"):
            formula = f"max({', '.join(f'loss{end}_{TASKS[row]}' for row in rows)})"
            sheet.add(_section(single.task), f"loss{end}", formula, single.evaluation.metrics[f"quality_loss{end}"], "")


def _section(task: str) -> str:
    return f"Quality, task {task}"


def _row(tasks: Real, row: int) -> float:
    """One task's number."""
    return float(jnp.asarray(tasks)[row])


def _source(what: str, evidence: Evidence) -> str:
    borrowed = f", borrowed from {evidence.borrowed_from}" if evidence.borrowed_from else ""
    curves = load_quality_curves()
    fit = f"quality curves {curves.version}, fitted {curves.fitted}"
    return f"{fit}: {what}, {evidence.rows} rows of {evidence.sources} sources{borrowed}"


def _kv(sheet: Sheet, single: SingleDesign, row: int) -> str | None:
    if min(single.number("key_bits"), single.number("value_bits")) >= kv.FULL_BITS:
        return None
    task, name, curve = TASKS[row], str(single.inputs["quantizer"]), single.design.quality.quantizer
    source = _source(f"quantizer {name}", load_quality_curves().quantizer[name][task].evidence)
    for field in ("key_scale", "value_scale", "slope", "floor", "spread"):
        sheet.given(f"{field}_{task}", _row(getattr(curve, field), row), f"{field} of the KV curve", source)
    shared = {"slope": f"slope_{task}", "floor": f"floor_{task}/2"}
    key, value = (
        _BIT_HAZARD.format(scale=f"{kind}_scale_{task}", bits=f"{kind}_bits", **shared) for kind in ("key", "value")
    )
    form = single.design.kv_format
    result = _row(quality.quantization_hazard(form.key_bits, form.value_bits, curve), row)
    sheet.add(_section(task), f"hazard_KV_{task}", f"{key} + {value}", result, "")
    return f"hazard_KV_{task}*spread_{task}"


def _eviction(sheet: Sheet, single: SingleDesign, row: int) -> str | None:
    kept = single.step.ledger.kept_fraction * single.design.sparse_read.fraction
    if float(kept) >= 1:
        return None
    skips, evicts = single.number("read_fraction") < 1, single.number("retention") < 1
    used = product("keep" if evicts else "", "read_fraction" if skips else "")
    whole = f"({used})" if evicts and skips else used
    task, name, curve = TASKS[row], str(single.inputs["evictor"]), single.design.quality.evictor
    seen = "visible" if single.inputs["question_visible"] else "hidden"
    source = _source(f"evictor {name}, question {seen}", load_quality_curves().evictor[name][seen][task].evidence)
    for field in ("exponent", "log_half", "ceiling", "spread"):
        sheet.given(f"evict_{field}_{task}", _row(getattr(curve, field), row), f"{field} of the eviction curve", source)
    overload = jnp.exp(curve.exponent * (jnp.log((1 - kept) / kept) - curve.log_half))
    formula = f"exp(evict_exponent_{task}*(ln((1 - {used})/{whole}) - evict_log_half_{task}))"
    sheet.add(_section(task), f"overload_{task}", formula, _row(overload, row), "")
    formula = f"ln(1 + overload_{task}) - ln(1 + (1 - evict_ceiling_{task})*overload_{task})"
    result = _row(quality.eviction_hazard(kept, curve), row)
    sheet.add(_section(task), f"hazard_evict_{task}", formula, result, "")
    return f"hazard_evict_{task}*evict_spread_{task}"


def _weight(sheet: Sheet, single: SingleDesign, row: int) -> str | None:
    bits = single.design.precision.weight_bits
    if not 0 < float(bits) < kv.FULL_BITS:
        return None
    task, curve = TASKS[row], single.design.quality.weight
    source = _source("weight bits", load_quality_curves().weight[task].evidence)
    for field in ("scale", "slope", "floor", "spread"):
        sheet.given(f"weight_{field}_{task}", _row(getattr(curve, field), row), f"{field} of the weight curve", source)
    user = "axis weight_bits, user"
    sheet.given("weight_bits", bits, "weight_bits", user)
    parts = {name: f"weight_{name}_{task}" for name in ("scale", "slope", "floor")}
    formula = _BIT_HAZARD.format(**parts, bits="weight_bits")
    result = _row(quality.weight_hazard(bits, curve), row)
    sheet.add(_section(task), f"hazard_weight_{task}", formula, result, "")
    return f"hazard_weight_{task}*weight_spread_{task}"


def _loss(sheet: Sheet, single: SingleDesign, row: int, hazards: list[str]) -> None:
    """Central and upper loss of one task from its hazards, each written `hazard*spread`."""
    task, metrics = TASKS[row], single.evaluation.metrics
    for end, terms in (("", [each.split("*")[0] for each in hazards]), ("_upper", hazards)):
        total = " + ".join(terms)
        formula = total if task == "perplexity" else f"1 - exp(-({total}))"
        result: Any = metrics[f"quality_loss{end}_{task}"]
        sheet.add(_section(task), f"loss{end}_{task}", formula, result, "")
