"""`--explain`: the equations of a design with its numbers; results are those of the laws, not computed here."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import jax

from kvwall.objectives import paging
from kvwall.objectives.register import LABELS
from kvwall.spaces.axes import AXES
from kvwall.spaces.figures import FIGURES, Figure
from kvwall.spaces.record_columns import WRITE_OFF_SECONDS
from kvwall.sweep.equation import Explanation, Sheet, product
from kvwall.sweep.explain_compute import add_arithmetic, add_attention, add_gemm, flop_of_step
from kvwall.sweep.explain_estimate import RENAMED, add_estimate
from kvwall.sweep.explain_kv import add_keep, add_kv, end_of, evaluated_context
from kvwall.sweep.explain_load import add_devices, add_load, names_of
from kvwall.sweep.explain_memory import add_memory, effective_utilisation
from kvwall.sweep.explain_prefill import add_first_token, add_prompt
from kvwall.sweep.explain_quality import add_quality
from kvwall.sweep.explain_stores import declare_stores
from kvwall.sweep.explain_tiers import add_reload
from kvwall.sweep.explain_time import add_times, add_traffic, links_used, spread_symbol
from kvwall.sweep.explain_wall import WALL, add_crossover, add_distances
from kvwall.sweep.explain_weights import add_weights, declare_weights
from kvwall.sweep.quality.nearest import nearest_results
from kvwall.sweep.reasons import missing_figures, not_computed_reason, placed
from kvwall.sweep.single import SingleDesign, ceiling_of

_TOKENS: Final = "Tokens"
_REPLICA: Final = "The replica (all devices)"
_COST: Final = "Energy and cost"
_AXIS_SYMBOLS: Final = {
    "batch": "B", "context": "context", "output_tokens": "output_tokens", "activation_bits": "activation_bits",
    "key_bits": "key_bits", "value_bits": "value_bits", "kv_group_size": "group_size", "scale_bits": "scale_bits",
    "zero_bits": "zero_bits", "residual_window": "residual_window", "outlier_fraction": "outliers", "retention": "r",
    "sink_tokens": "sinks", "recent_tokens": "recent", "read_fraction": "read_fraction", "block_size": "block_size",
    "prefix_share": "prefix_share", "prefix_group": "prefix_group", "prefix_hit_rate": "hit_rate",
    "placement_host": "host", "placement_cxl": "cxl", "placement_nvme": "nvme", "placement_remote": "remote",
    "link_overlap": "overlap", "tensor_parallel": "TP", "pipeline_parallel": "PP", "context_parallel": "CP",
    "attention_data_parallel": "DP", "expert_parallel": "EP", "expert_skew": "skew", "draft_tokens": "drafts",
    "acceptance_rate": "accepted",
}  # fmt: skip


def explain(single: SingleDesign) -> Explanation:
    """The equations behind a report, in the order of computation, and the source of every input.

    Those of an estimate come after those of its ceiling, which it rests on. Last, the published results on quality that
    are nearest to the design.
    """
    if single.step.estimate is not None:
        explanation = _with_ceiling(single)
    else:
        sheet = Sheet()
        _fill(sheet, single)
        explanation = sheet.explanation()
    return replace(explanation, nearest=nearest_results(single))


def _with_ceiling(single: SingleDesign) -> Explanation:
    sheet = Sheet(RENAMED, "_ceiling")
    _fill(sheet, ceiling_of(single))
    if not _impossible(single):
        with jax.enable_x64(True):
            add_estimate(sheet.renaming_no_more(), single)
    return sheet.explanation()


def _fill(sheet: Sheet, single: SingleDesign) -> None:
    """The equations of a ceiling."""
    if _impossible(single):
        sheet.notes.append(f"no equations: {not_computed_reason(single)}")
        return
    with jax.enable_x64(True):
        declare_axes(sheet, single)
        _declare_model(sheet, single)
        _declare_hardware(sheet, single)
        _tokens(sheet, single)
        add_load(sheet, single)
        add_devices(sheet, single)
        add_kv(sheet, single)
        add_weights(sheet, single)
        _work_and_time(sheet, single)
        add_memory(sheet, single)
        add_crossover(sheet, single)
        _wall(sheet, single)
        _replica(sheet, single)
        _cost(sheet, single)
        add_quality(sheet, single)


def _impossible(single: SingleDesign) -> bool:
    return LABELS["status"].meanings[int(single.evaluation.labels["status"])] == "layout"


def _work_and_time(sheet: Sheet, single: SingleDesign) -> None:
    """Arithmetic, traffic and times; a prompt's work comes before them where a step holds some of it."""
    add_gemm(sheet, single)
    attended = add_attention(sheet, single)
    prompt = add_prompt(sheet, single) if names_of(single).arriving else None
    add_arithmetic(sheet, single, attended)
    sent = add_traffic(sheet, single)
    add_times(sheet, single, attended, sent)
    if not missing_figures(single, "time_to_first_token"):
        recompute, anew = add_first_token(sheet, single, prompt or add_prompt(sheet, single))
        add_reload(sheet, single, recompute, anew.attention)


def axis_source(single: SingleDesign, axis: str) -> str:
    """Who chose the value of an axis."""
    return f"axis {axis}, {'user' if axis in single.stated else 'neutral'}"


def declare_axes(sheet: Sheet, single: SingleDesign) -> None:
    """Every axis of an equation as an input; a word, which has no number, by the number it stands for."""
    for axis, symbol in _AXIS_SYMBOLS.items():
        sheet.given(symbol, single.inputs[axis], axis, axis_source(single, axis))
    for axis, number, whose in (
        ("utilisation", effective_utilisation(single), "the engine's own"),
        ("max_model_length", paging.longest(single.design.paging, end_of(single).value), "what the sequence needs"),
    ):
        source = axis_source(single, axis)
        sheet.given(axis, number, axis, f"{source}: {whose}" if single.inputs[axis] == AXES[axis].word else source)


def _declare_model(sheet: Sheet, single: SingleDesign) -> None:
    model, numbers = single.model, single.design.model
    source = f"model {model.name}, {model.source}"
    declare_stores(sheet, single, source)
    declare_weights(sheet, single, source)
    sheet.given("decoder_layers", numbers.layers, "decoder layers", source)
    for name in ("hidden", "intermediate", "vocab"):
        sheet.given(name, getattr(numbers, name), name, source)
    sheet.given("reduces", numbers.reduces_per_layer, "all-reduces per layer", source)


def _declare_hardware(sheet: Sheet, single: SingleDesign) -> None:
    chip = single.hardware
    stands_in = {"fp8_flops": chip.int8_ops, "memory_domains": chip.compute_dies}
    for field, measure in FIGURES.items():
        figure: Figure | None = getattr(chip, field) or stands_in.get(field)
        if figure is None:
            continue
        note = f"; {figure.note}" if figure.note else ""
        unit = "" if measure.unit == "1" else f" ({measure.unit})"
        sheet.given(field, figure.value, f"{field} of {chip.name}{unit}", f"{figure.source}{note}")


def _tokens(sheet: Sheet, single: SingleDesign) -> None:
    context, end = evaluated_context(single), end_of(single)
    sheet.add(_TOKENS, "C", "context + output_tokens/2", context, "tokens")
    sheet.add(_TOKENS, end.tokens, "context + output_tokens", end.value, "tokens")
    if single.number("retention") < 1:
        sheet.add(_TOKENS, "pinned", "sinks + recent", single.step.ledger.cache.pinned, "tokens")
        add_keep(sheet, single, _TOKENS, "keep", "C", context)
        add_keep(sheet, single, _TOKENS, end.keep, end.tokens, end.value)


def _wall(sheet: Sheet, single: SingleDesign) -> None:
    add_distances(sheet, single)
    moved = "(hbm_bytes + tier_bytes)" if links_used(single) else "hbm_bytes"
    intensity = single.evaluation.metrics["arithmetic_intensity"]
    sheet.add(WALL, "arithmetic_intensity", f"{flop_of_step(single)}/{moved}", intensity, "FLOP/B")


def _replica(sheet: Sheet, single: SingleDesign) -> None:
    """The metrics that are sums over devices, where there are several."""
    names, found = names_of(single), single.evaluation.metrics
    for metric, one in (("weight_bytes_read", "weights_read"), ("kv_bytes_read", "kv_read"),
                        ("kv_bytes_stored", "kv_stored")):  # fmt: skip
        if names.stage:
            sheet.add(_REPLICA, metric, f"{names.stage}*{one}", found[metric], "B")


def _cost(sheet: Sheet, single: SingleDesign) -> None:
    found, names = single.evaluation.metrics, names_of(single)
    no_energy, no_cost = (missing_figures(single, name) for name in ("energy_per_token", "cost_per_million_tokens"))
    sheet.notes += [note for note in dict.fromkeys([*no_energy, *no_cost]) if note not in sheet.notes]
    if not no_energy:
        links = ""
        if links_used(single):
            energies = {tier: "link_energy" if tier == "host" else f"{tier}_energy" for tier in placed(single)}
            links = "".join(f" + {tier}*{spread_symbol(single)}*{energy}" for tier, energy in energies.items())
        device = f"(hbm_bytes*memory_energy{links} + {flop_of_step(single)}*flop_energy)"
        tokens = product(names.active, names.yielded)
        formula = f"{product(device, names.stage)}/{f'({tokens})' if '*' in tokens else tokens}"
        sheet.add(_COST, "energy_per_token", formula, found["energy_per_token"], "J")
    if not no_cost:
        basis = str(single.inputs["price_basis"])
        life = f"{WRITE_OFF_SECONDS:.0f}"
        per_second = f"list_price/{life}" if basis == "list" else f"{basis}_price/3600"
        sheet.add(_COST, "usd_per_second", per_second, single.design.usd_per_second.value, "USD/s per device")
        formula = f"{product(names.replica, 'usd_per_second')}/tokens_per_second*1000000"
        sheet.add(_COST, "cost_per_million_tokens", formula, found["cost_per_million_tokens"], "USD")
