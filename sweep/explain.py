"""`--explain`: the equations of a design with its numbers; results are those of the laws, not computed here."""

from __future__ import annotations

from typing import Final

import jax

from kvwall.spaces.figures import FIGURES, Figure
from kvwall.spaces.record_columns import WRITE_OFF_SECONDS
from kvwall.sweep.equation import Explanation, Sheet
from kvwall.sweep.explain_kv import add_kv, declare_stores, evaluated_context
from kvwall.sweep.explain_quality import add_quality
from kvwall.sweep.explain_wall import add_crossover
from kvwall.sweep.explain_weights import FORMATS, add_arithmetic, add_weights, declare_weights
from kvwall.sweep.reasons import PEAKS, missing_figures, step_figures
from kvwall.sweep.single import SingleDesign

_TOKENS: Final = "Tokens"
_TRAFFIC: Final = "Traffic of a step (one device)"
_TIME: Final = "Time"
_MEMORY: Final = "Memory (fullest device)"
_WALL: Final = "The wall"
_COST: Final = "Energy and cost"
_AXIS_SYMBOLS: Final = {
    "batch": "B", "context": "context", "output_tokens": "output_tokens", "activation_bits": "activation_bits",
    "key_bits": "key_bits", "value_bits": "value_bits", "kv_group_size": "group_size", "scale_bits": "scale_bits",
    "zero_bits": "zero_bits", "residual_window": "residual_window", "outlier_fraction": "outliers", "retention": "r",
    "sink_tokens": "sinks", "recent_tokens": "recent", "placement_host": "host", "tensor_parallel": "n",
    "utilisation": "utilisation",
}  # fmt: skip


def explain(single: SingleDesign) -> Explanation:
    """The equations behind a report, in the order of computation, and the source of every input."""
    sheet = Sheet()
    with jax.enable_x64(True):
        _declare_axes(sheet, single)
        _declare_model(sheet, single)
        _declare_hardware(sheet, single)
        _tokens(sheet, single)
        add_kv(sheet, single)
        add_weights(sheet, single)
        _traffic(sheet, single)
        add_arithmetic(sheet, single)
        _time(sheet, single)
        _memory(sheet, single)
        _wall(sheet, single)
        _cost(sheet, single)
        add_quality(sheet, single)
    return sheet.explanation()


def axis_source(single: SingleDesign, axis: str) -> str:
    """Who chose the value of an axis."""
    return f"axis {axis}, {'user' if axis in single.stated else 'neutral'}"


def _declare_axes(sheet: Sheet, single: SingleDesign) -> None:
    for axis, symbol in _AXIS_SYMBOLS.items():
        sheet.given(symbol, single.inputs[axis], axis, axis_source(single, axis))


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
    for field, measure in FIGURES.items():
        figure: Figure | None = getattr(chip, field)
        if field == "fp8_flops" and figure is None:
            figure = chip.int8_ops
        if figure is None:
            continue
        note = f"; {figure.note}" if figure.note else ""
        unit = "" if measure.unit == "1" else f" ({measure.unit})"
        sheet.given(field, figure.value, f"{field} of {chip.name}{unit}", f"{figure.source}{note}")


def _tokens(sheet: Sheet, single: SingleDesign) -> None:
    work, cache = single.design.workload, single.step.ledger.cache
    context, end = evaluated_context(single), work.context + work.output_tokens
    sheet.add(_TOKENS, "C", "context + output_tokens/2", context, "tokens")
    sheet.add(_TOKENS, "C_end", "context + output_tokens", end, "tokens")
    if single.number("retention") < 1:
        sheet.add(_TOKENS, "pinned", "sinks + recent", cache.pinned, "tokens")
        for symbol, at, result in (("keep", "C", context), ("keep_end", "C_end", end)):
            formula = f"r + (1 - r)*min(pinned/{at}, 1)"
            sheet.add(_TOKENS, symbol, formula, cache.kept_fraction(result), "of the tokens, where eviction applies")


def _traffic(sheet: Sheet, single: SingleDesign) -> None:
    ledger = single.step.ledger
    offloaded = single.number("placement_host") > 0
    kv_read = "(1 - host)*kv_read" if offloaded else "kv_read"
    sheet.add(_TRAFFIC, "hbm_bytes", f"weights_read + {kv_read} + kv_written", ledger.hbm_bytes, "B")
    if offloaded:
        sheet.add(_TRAFFIC, "tier_bytes", "host*kv_read", ledger.tier_read, "B")
    if single.number("tensor_parallel") > 1:
        formula = "B*decoder_layers*reduces*2*(n - 1)/n*hidden*activation_bits/8"
        sheet.add(_TRAFFIC, "scale_up_bytes", formula, ledger.scale_up_bytes, "B")


def _time(sheet: Sheet, single: SingleDesign) -> None:
    times, metrics = single.step.times, single.evaluation.metrics
    sheet.add(_TIME, "t_hbm", "hbm_bytes/memory_bandwidth", times.hbm, "s")
    missing = missing_figures(single, "time_per_output_token")
    if missing:
        sheet.notes += missing
        return
    longest = ["t_hbm"]
    used = [(name, peak) for name, peak in zip(FORMATS, PEAKS, strict=True) if peak in step_figures(single)]
    each = [f"flop_{name}/{peak}" for name, peak in used]
    sheet.add(_TIME, "t_compute", each[0] if len(each) == 1 else f"max({', '.join(each)})", times.compute, "s")
    longest.append("t_compute")
    for symbol, size, figure, result in (
        ("t_scale_up", "scale_up_bytes", "scale_up_bandwidth", times.scale_up),
        ("t_tier_link", "tier_bytes", "host_link_bandwidth", times.tier_link),
    ):
        if figure in step_figures(single):
            sheet.add(_TIME, symbol, f"{size}/{figure}", result, "s")
            longest.append(symbol)
    sheet.add(_TIME, "step", f"max({', '.join(longest)})", single.step.time, "s")
    sheet.add(_TIME, "tokens_per_second", "B/step", metrics["tokens_per_second"], "tok/s")
    per_device = metrics["tokens_per_second_per_device"]
    sheet.add(_TIME, "tokens_per_second_per_device", "tokens_per_second/n", per_device, "tok/s")


def _memory(sheet: Sheet, single: SingleDesign) -> None:
    memory = single.step.memory
    formula = "(2*hidden + max(2*intermediate, vocab)/n)*activation_bits/8"
    sheet.add(_MEMORY, "activations", formula, memory.activations, "B per sequence")
    kv_stored = "(1 - host)*kv_stored" if single.number("placement_host") > 0 else "kv_stored"
    formula = f"utilisation*memory_capacity - weights_stored - {kv_stored} - B*activations"
    sheet.add(_MEMORY, "memory_margin", formula, memory.margin, "B")


def _flop(single: SingleDesign) -> str:
    """All FLOP of the step, as a formula."""
    formats = zip(FORMATS, single.step.ledger.flop_by_format, strict=True)
    terms = [f"flop_{name}" for name, work in formats if float(work) > 0]
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _wall(sheet: Sheet, single: SingleDesign) -> None:
    add_crossover(sheet, single)
    moved = "(hbm_bytes + tier_bytes)" if single.number("placement_host") > 0 else "hbm_bytes"
    intensity = single.evaluation.metrics["arithmetic_intensity"]
    sheet.add(_WALL, "arithmetic_intensity", f"{_flop(single)}/{moved}", intensity, "FLOP/B")


def _cost(sheet: Sheet, single: SingleDesign) -> None:
    metrics = single.evaluation.metrics
    no_energy, no_cost = (missing_figures(single, name) for name in ("energy_per_token", "cost_per_million_tokens"))
    sheet.notes += [note for note in dict.fromkeys([*no_energy, *no_cost]) if note not in sheet.notes]
    if not no_energy:
        link = " + tier_bytes*link_energy" if single.number("placement_host") > 0 else ""
        formula = f"(hbm_bytes*memory_energy{link} + {_flop(single)}*flop_energy)*n/B"
        sheet.add(_COST, "energy_per_token", formula, metrics["energy_per_token"], "J")
    if not no_cost:
        basis = str(single.inputs["price_basis"])
        life = f"{WRITE_OFF_SECONDS:.0f}"
        per_second = f"list_price/{life}" if basis == "list" else f"{basis}_price/3600"
        sheet.add(_COST, "usd_per_second", per_second, single.design.usd_per_second.value, "USD/s per device")
        cost = metrics["cost_per_million_tokens"]
        sheet.add(_COST, "cost_per_million_tokens", "n*usd_per_second/tokens_per_second*1000000", cost, "USD")
