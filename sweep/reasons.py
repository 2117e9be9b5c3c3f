"""Reasons in words: why a metric is null, why a design has its status and its phase."""

from __future__ import annotations

import math
from typing import Final

from kvwall.objectives import compute, engine_memory, parallel
from kvwall.objectives.register import BANDED, LABELS, band_of
from kvwall.objectives.status import computed
from kvwall.objectives.tiers import TIERS
from kvwall.spaces.assumptions import ROLES
from kvwall.spaces.figures import FIGURES
from kvwall.sweep.endless import no_crossover, stops_growing
from kvwall.sweep.layout_faults import layout_faults
from kvwall.sweep.readable import bytes_text, tokens_text
from kvwall.sweep.single import SingleDesign
from kvwall.sweep.veto_words import imposed_vetoes

PEAKS: Final = ("bf16_flops", "fp8_flops", "fp4_flops")
"""The figure behind each slot of `Ledger.flop_by_format`."""
_LIMITED: Final = frozenset({"max_batch", "max_concurrency", "kv_pool_blocks", "kv_pool_tokens"})
_STEP: Final = "time_per_output_token"
_BOUNDED: Final = {bound: name for name in BANDED for bound in band_of(name)}
"""Bound of a band -> the metric that it is of, and with which it is missing."""


def null_reason(single: SingleDesign, metric: str, value: float) -> str:
    """Why a metric of a design has no number."""
    missing = missing_figures(single, metric)
    if missing:
        return "; ".join(missing)
    if metric == "max_context" and value == math.inf:
        return f"no limit: {stops_growing(single.model) or 'no KV is kept where memory is limited'}"
    if metric in _LIMITED and value == math.inf:
        return "no limit: no KV is kept where memory is limited"
    if metric == "break_even_context" and value == math.inf:
        return "never: over this link reloading stays slower than computing again"
    if metric == "crossover_context_bytes" and value == math.inf:
        return no_crossover(single.model)
    return "it does not happen: no finite value exists for this design"


def not_computed_reason(single: SingleDesign) -> str:
    """Why a design has no phase, regime and bound_by."""
    fault = _layout_fault(single)
    return f"the layout is impossible: {fault}" if fault else "; ".join(missing_figures(single, _STEP))


def missing_figures(single: SingleDesign, metric: str) -> list[str]:
    """A sentence for each hardware figure that the metric needs and no source states."""
    if bool(single.evaluation.sourced[metric]):
        return []
    match _BOUNDED.get(metric, metric):
        case "ridge_point":
            needed = [_ffn_peak(single)]
        case "energy_per_token":
            needed = ["memory_energy", "flop_energy", *_streamed_energies(single)]
        case "cost_per_million_tokens":
            needed = [*step_figures(single), f"{single.inputs['price_basis']}_price"]
        case "reload_time" | "break_even_context":
            needed = [*step_figures(single), *(["host_link_bandwidth"] if not placed(single) else [])]
        case "tier_bandwidth":
            needed = [f"{tier}_link_bandwidth" for tier in placed(single) or ["host"]]
        case _:
            needed = step_figures(single)
    return [_no_source(single, field) for field in needed if _absent(single, field)]


def step_figures(single: SingleDesign) -> list[str]:
    """The bandwidths and peaks that the step's time needs."""
    links = [f"{tier}_link_bandwidth" for tier in placed(single)]
    stage, replica, domain = devices_of(single)
    links += ["scale_up_bandwidth"] if stage > 1 or 1 < replica <= domain else []
    links += ["scale_out_bandwidth"] if replica > domain else []
    links += ["memory_domains"] if single.inputs["die_placement"] == "pinned" else []
    flop = single.step.ledger.flop_by_format
    return ["memory_bandwidth", *links, *(peak for peak, work in zip(PEAKS, flop, strict=True) if float(work) > 0)]


def placed(single: SingleDesign) -> list[str]:
    """The tiers that hold KV."""
    return [tier for tier in TIERS if single.number(f"placement_{tier}") > 0]


def devices_of(single: SingleDesign) -> tuple[int, int, float]:
    """Devices of a stage and of the replica, and those that the scale-up link joins."""
    layout = single.design.parallel
    domain = float(single.design.hardware.scale_up_domain)
    return int(parallel.stage_devices(layout)), int(parallel.replica_devices(layout)), domain


def _streamed_energies(single: SingleDesign) -> list[str]:
    loads = single.inputs["serving_mode"] == "continuous" and single.number("prefix_hit_rate") > 0
    if single.inputs["access"] == "parked" and not loads:
        return []
    return ["link_energy" if tier == "host" else f"{tier}_energy" for tier in placed(single)]


def _ffn_peak(single: SingleDesign) -> str:
    precision = single.design.precision
    bits = compute.ffn_format_bits(single.design.model, precision.weight_bits)
    if bool(compute.uses_16_bit(bits, precision.activation_bits)):
        return "bf16_flops"
    return "fp4_flops" if bool(compute.uses_4_bit(bits, precision.activation_bits)) else "fp8_flops"


def _absent(single: SingleDesign, field: str) -> bool:
    chip = single.hardware
    if field == "memory_domains" and chip.compute_dies is not None:
        return False
    return getattr(chip, field) is None and not (field == "fp8_flops" and chip.int8_ops is not None)


def _no_source(single: SingleDesign, field: str) -> str:
    written = f'--assume {field}="{FIGURES[field].example}"'
    missing = f"{field} of {single.inputs['hardware']} has no source: give its true value, written like {written}"
    link = field.removesuffix("_bandwidth")
    word = link if link in ROLES else link.removesuffix("_link")
    return f"{missing}, or a technology of `kvwall catalog tiers`, --assume {word}=NAME" if word in ROLES else missing


def why(single: SingleDesign) -> str:
    """Status and, where the step can be computed, phase of a design in plain sentences."""
    status = LABELS["status"].meanings[int(single.evaluation.labels["status"])]
    match status:
        case "layout":
            first = f"Cannot be laid out: {_layout_fault(single)}."
        case "unsourced_input":
            first = f"The step's time is unknown: {'; '.join(missing_figures(single, _STEP))}."
        case "memory":
            first = f"Does not fit: {_shortage(single)}."
        case "veto":
            first = f"Vetoed: {imposed_vetoes(single)}."
        case _:
            spare = bytes_text(float(single.step.memory.margin))
            first = f"Fits with {spare} to spare on the fullest device."
    return f"{first} {_traffic(single)}"


def _layout_fault(single: SingleDesign) -> str:
    return "; ".join(layout_faults(single))


def _shortage(single: SingleDesign) -> str:
    short = bytes_text(-float(single.step.memory.margin))
    batch, context = (float(single.evaluation.metrics[name]) for name in ("max_batch", "max_context"))
    if tier := _full_tier(single):
        return tier
    if float(single.step.memory.room) <= 0:
        usable = float(engine_memory.utilisation_of(single.design) * engine_memory.memory_seen(single.design))
        weights_stored = bytes_text(float(single.step.memory.weights))
        return f"{short} short; the weights alone take {weights_stored} of a device's {bytes_text(usable)}"
    batches = f"{short} short on the fullest device; at most {batch:,.0f} sequences fit at this context"
    return f"{batches}, or {tokens_text(context)} at this batch" if math.isfinite(context) else batches


def _full_tier(single: SingleDesign) -> str:
    """The tier that is too small, in words; empty where it is the device that is."""
    need = float(single.step.memory.reserved) * float(single.step.load.resident)
    need *= float(parallel.layers_of_stage(single.design.model.layers, single.design.parallel.pipeline))
    for tier in placed(single):
        figure = getattr(single.hardware, f"{tier}_capacity")
        kept = single.number(f"placement_{tier}") * need
        if figure is not None and kept > figure.value:
            return f"{tier} memory is {bytes_text(kept - figure.value)} short for a device's {bytes_text(kept)} of KV"
    return ""


def _traffic(single: SingleDesign) -> str:
    ledger = single.step.ledger
    weight, kv_read = float(ledger.weights_read), float(ledger.kv_read)
    share = kv_read / (weight + kv_read)
    known = bool(computed(int(single.evaluation.labels["status"])))
    phase = "KV" if kv_read > weight else "weight"
    crossover = float(single.evaluation.metrics["crossover_context_bytes"])
    finite = math.isfinite(crossover)
    where = f"crossover at {tokens_text(crossover)}" if finite else f"crossover {no_crossover(single.model)}"
    fits = float(single.step.memory.margin) >= 0
    told = f": the step is in the {phase} phase" if fits else ", and what does not fit is in the capacity phase"
    told = told if known else ""
    sentence = f"KV is {100 * share:.3g} % of the bytes read{told}; {where}."
    if not known:
        return sentence
    bound = LABELS["bound_by"].meanings[int(single.evaluation.labels["bound_by"])]
    return f"{sentence} Bound by {bound}."
