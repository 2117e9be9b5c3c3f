"""`--explain`: the equations of a design with its numbers; results are those of the laws, not computed here."""

from __future__ import annotations

import math
from typing import Final

import jax

from kvwall.objectives import compute, kv, weights
from kvwall.spaces.axes import NATIVE
from kvwall.spaces.columns import WRITE_OFF_SECONDS
from kvwall.spaces.figures import FIGURES, Figure
from kvwall.sweep.equation import Explanation, Sheet
from kvwall.sweep.explain_quality import add_quality
from kvwall.sweep.reasons import PEAKS, missing_figures, step_figures
from kvwall.sweep.single import SingleDesign

_TOKENS: Final = "Tokens"
_KV: Final = "KV cache (one device)"
_WEIGHTS: Final = "Weights (one device)"
_TRAFFIC: Final = "Traffic of a step (one device)"
_WORK: Final = "Arithmetic of a step (one device)"
_TIME: Final = "Time"
_MEMORY: Final = "Memory (fullest device)"
_WALL: Final = "The wall"
_COST: Final = "Energy and cost"
_FORMATS: Final = ("16", "8", "4")
_CLASSES: Final = {"query_output": "QO", "key_value": "PKV", "ffn": "FFN", "head": "HEAD"}
_AXIS_SYMBOLS: Final = {
    "batch": "B", "context": "context", "output_tokens": "output_tokens", "activation_bits": "activation_bits",
    "key_bits": "key_bits", "value_bits": "value_bits", "kv_group_size": "group_size", "scale_bits": "scale_bits",
    "zero_bits": "zero_bits", "residual_window": "window", "outlier_fraction": "outliers", "retention": "r",
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
        _kv_cache(sheet, single)
        _weights(sheet, single)
        _traffic(sheet, single)
        _arithmetic(sheet, single)
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
    for i, group in enumerate(model.groups):
        for name in ("layers", "query_heads", "kv_heads", "key_dim", "value_dim"):
            sheet.given(f"{name}{_suffix(single, i)}", getattr(group, name), name.replace("_", " "), source)
    for name, symbol in _CLASSES.items():
        matrices = getattr(numbers, name)
        bits = weights.matrix_bits(matrices, single.design.precision.weight_bits)
        sheet.given(symbol, matrices.elements, f"{name.replace('_', ' ')} matrix elements", source)
        chosen = source if single.inputs["weight_bits"] == NATIVE else axis_source(single, "weight_bits")
        sheet.given(f"bits_{symbol}", bits, "bits per element, scales included", chosen)
    for name in ("hidden", "intermediate", "vocab", "vectors", "vector_bits", "embedding_bits"):
        sheet.given(name, getattr(numbers, name), name.replace("_", " "), source)
    sheet.given("row", numbers.embedding_row, "elements of the input tables read per token", source)
    sheet.given("table", numbers.embedding_table, "elements of the input tables", source)
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


def _suffix(single: SingleDesign, group: int) -> str:
    return f"_{group + 1}" if len(single.model.groups) > 1 else ""


def _over_groups(single: SingleDesign, term: str) -> str:
    """The sum of a term over the layer groups; `#` stands for the group's suffix."""
    terms = [term.replace("#", _suffix(single, i)) for i in range(len(single.model.groups))]
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _tokens(sheet: Sheet, single: SingleDesign) -> None:
    ledger, design = single.step.ledger, single.design
    work = design.workload
    evaluated = work.context + work.output_tokens / 2
    sheet.add(_TOKENS, "C", "context + output_tokens/2", evaluated, "tokens")
    sheet.add(_TOKENS, "pinned", "sinks + recent", ledger.pinned, "tokens")
    sheet.add(_TOKENS, "kept", "C*(r + (1 - r)*min(pinned/C, 1))", ledger.kept, "tokens")
    end = work.context + work.output_tokens
    sheet.add(_TOKENS, "C_end", "context + output_tokens", end, "tokens")
    kept_end = kv.kept_fraction(design.eviction.retention, ledger.pinned, end) * end
    sheet.add(_TOKENS, "kept_end", "C_end*(r + (1 - r)*min(pinned/C_end, 1))", kept_end, "tokens")


def _kv_cache(sheet: Sheet, single: SingleDesign) -> None:
    form, ledger = single.design.kv_format, single.step.ledger
    for symbol, axis in (("bits_K", "key_bits"), ("bits_V", "value_bits")):
        overhead = " + (scale_bits + zero_bits)/group_size" if single.number("kv_group_size") > 0 else ""
        outliers = f" + {kv.OUTLIER_BITS:g}*outliers" if single.number("outlier_fraction") > 0 else ""
        formula = f"{axis}{overhead}{outliers}" if single.number(axis) < kv.FULL_BITS else axis
        sheet.add(_KV, symbol, formula, kv.stored_bits(getattr(form, axis), form), "bit")
    term = "layers#*ceil(kv_heads#/n)*(key_dim#*{K} + value_dim#*{V})/8"
    sheet.add(_KV, "token", _over_groups(single, term.format(K="bits_K", V="bits_V")), ledger.token_bytes, "B")
    windowed = single.number("residual_window") > 0
    if windowed:
        full = term.format(K="max(16, bits_K)", V="max(16, bits_V)")
        sheet.add(_KV, "full_token", _over_groups(single, full), ledger.full_token_bytes, "B")
    extra = " + (full_token - token)*min(window, {kept})" if windowed else ""
    for symbol, kept, result in (("kv_read", "kept", ledger.kv_read), ("kv_stored", "kept_end", ledger.kv_stored)):
        sheet.add(_KV, symbol, f"B*(token*{kept}{extra.format(kept=kept)})", result, "B")
    sheet.add(_KV, "kv_written", f"B*{'full_token' if windowed else 'token'}", ledger.kv_written, "B")


def _weights(sheet: Sheet, single: SingleDesign) -> None:
    model, devices = single.design.model, single.design.parallel.tensor
    bits = single.design.precision.weight_bits
    held = _over_groups(single, "layers#*ceil(kv_heads#/n)")
    whole = _over_groups(single, "layers#*kv_heads#")
    sheet.add(_WEIGHTS, "share", f"{held}/({whole})", weights.key_value_share(model, devices), "")
    split = " + ".join(
        f"{_CLASSES[name]}*bits_{_CLASSES[name]}"
        for name in ("query_output", "ffn", "head")
        if float(getattr(model, name).elements) > 0
    )
    formula = f"(({split})/n + PKV*bits_PKV*share + vectors*vector_bits)/8"
    sheet.add(_WEIGHTS, "streamed", formula, weights.matrix_bytes(model, bits, devices), "B")
    read = single.step.ledger.weights_read
    sheet.add(_WEIGHTS, "weights_read", "streamed + B*row*embedding_bits/8/n", read, "B")


def _traffic(sheet: Sheet, single: SingleDesign) -> None:
    ledger = single.step.ledger
    sheet.add(_TRAFFIC, "hbm_bytes", "weights_read + (1 - host)*kv_read + kv_written", ledger.hbm_bytes, "B")
    sheet.add(_TRAFFIC, "tier_bytes", "host*kv_read", ledger.tier_read, "B")
    layers = _over_groups(single, "layers#")
    formula = f"B*{layers}*reduces*2*(n - 1)/n*hidden*activation_bits/8"
    sheet.add(_TRAFFIC, "scale_up_bytes", formula, ledger.scale_up_bytes, "B")


def _arithmetic(sheet: Sheet, single: SingleDesign) -> None:
    design = single.design
    model, precision, form = design.model, design.precision, design.kv_format
    gemm = compute.gemm_flop_per_token(model, precision.weight_bits, precision.activation_bits)
    per_token = compute.attention_flop_per_kept_token(model.groups)
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    attention = compute.split_by_format(per_token, operand, precision.activation_bits)
    formula = "2*" + _over_groups(single, "layers#*query_heads#*(key_dim# + value_dim#)")
    sheet.add(_WORK, "attention", formula, per_token, "FLOP per query and kept token")
    for i, name in enumerate(_FORMATS):
        elements = [s for s in _CLASSES if _in_format(single, s, i)]
        terms = []
        if elements:
            total = " + ".join(_CLASSES[each] for each in elements)
            sheet.add(_WORK, f"gemm_{name}", f"2*({total})", gemm[i], f"FLOP per token in {name} bits")
            terms.append(f"gemm_{name}")
        if float(attention[i]) > 0:
            terms.append("kept*attention")
        if terms:
            sheet.add(_WORK, f"flop_{name}", f"B*({' + '.join(terms)})/n", single.step.ledger.flop_by_format[i], "FLOP")


def _in_format(single: SingleDesign, name: str, slot: int) -> bool:
    precision, matrices = single.design.precision, getattr(single.design.model, name)
    bits = weights.format_bits(matrices, precision.weight_bits)
    flop = compute.split_by_format(matrices.elements, bits, precision.activation_bits)
    return float(flop[slot]) > 0


def _time(sheet: Sheet, single: SingleDesign) -> None:
    times, metrics = single.step.times, single.evaluation.metrics
    sheet.add(_TIME, "t_hbm", "hbm_bytes/memory_bandwidth", times.hbm, "s")
    missing = missing_figures(single, "time_per_output_token")
    if missing:
        sheet.notes += missing
        return
    longest = ["t_hbm"]
    used = [(name, peak) for name, peak in zip(_FORMATS, PEAKS, strict=True) if peak in step_figures(single)]
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
    sheet.add(_MEMORY, "weights_stored", "streamed + table*embedding_bits/8/n", memory.weights, "B")
    formula = "(2*hidden + max(2*intermediate, vocab)/n)*activation_bits/8"
    sheet.add(_MEMORY, "activations", formula, memory.activations, "B")
    formula = "utilisation*memory_capacity - weights_stored - (1 - host)*kv_stored - B*activations"
    sheet.add(_MEMORY, "memory_margin", formula, memory.margin, "B")


def _flop(single: SingleDesign) -> str:
    """All FLOP of the step, as a formula."""
    formats = zip(_FORMATS, single.step.ledger.flop_by_format, strict=True)
    terms = [f"flop_{name}" for name, work in formats if float(work) > 0]
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _wall(sheet: Sheet, single: SingleDesign) -> None:
    design, ledger, metrics = single.design, single.step.ledger, single.evaluation.metrics
    window = design.kv_format.residual_window
    per_sequence = ledger.weights_read / design.workload.batch
    sheet.add(_WALL, "weights_per_sequence", "weights_read/B", per_sequence, "B")
    kept = kv.kept_of_bytes(per_sequence, ledger.token_bytes, ledger.full_token_bytes, window)
    formula = "weights_per_sequence/token"
    if single.number("residual_window") > 0:
        inside = "min(weights_per_sequence/full_token, window)"
        formula = f"{inside} + max(weights_per_sequence - full_token*window, 0)/token"
    sheet.add(_WALL, "kept_at_crossover", formula, kept, "tokens")
    crossover = metrics["crossover_context_bytes"]
    if math.isfinite(float(crossover)):
        formula = "min(kept_at_crossover, pinned) + max(kept_at_crossover - pinned, 0)/r"
        sheet.add(_WALL, "crossover_context", formula, crossover, "tokens")
    intensity = metrics["arithmetic_intensity"]
    sheet.add(_WALL, "arithmetic_intensity", f"{_flop(single)}/(hbm_bytes + tier_bytes)", intensity, "FLOP/B")


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
