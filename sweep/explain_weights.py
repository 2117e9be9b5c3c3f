"""The weights in an explanation: bytes read and stored, routed experts, and the arithmetic of a step."""

from __future__ import annotations

from typing import Final

from kvwall.objectives import compute, weights
from kvwall.spaces.axes import NATIVE
from kvwall.sweep.equation import Sheet
from kvwall.sweep.explain_kv import add_attention, bracketed, evaluated_context, stores_of
from kvwall.sweep.single import SingleDesign

_WEIGHTS: Final = "Weights (one device)"
_WORK: Final = "Arithmetic of a step (one device)"
FORMATS: Final = ("16", "8", "4")
"""Bits of the slots of `Ledger.flop_by_format`."""
_SPLIT: Final = {"query_output": "QO", "ffn": "FFN", "head": "HEAD"}
_CLASSES: Final = {**_SPLIT, "key_value": "PKV", "router": "ROUTER"}
_EXPERTS: Final = "moe_layers*{each}*EXPERT"
_MULTIPLIED: Final = ("QO", "PKV", "FFN", "HEAD", "ROUTER", _EXPERTS.format(each="k"))
"""In the order of `compute.multiplied_weights`."""


def declare_weights(sheet: Sheet, single: SingleDesign, source: str) -> None:
    """Elements and bits of every class of weights, and the experts, as inputs."""
    numbers, asked = single.design.model, single.design.precision.weight_bits
    chosen = source if single.inputs["weight_bits"] == NATIVE else f"axis weight_bits, {_who(single)}"
    for name, symbol in _CLASSES.items():
        matrices = getattr(numbers, name)
        sheet.given(symbol, matrices.elements, f"{name.replace('_', ' ')} matrix elements", source)
        own = name == "router"  # stays in its own format
        bits = matrices.native_bits if own else weights.matrix_bits(matrices, asked)
        sheet.given(f"bits_{symbol}", bits, "bits per element, scales included", source if own else chosen)
    experts = numbers.experts
    sheet.given("moe_layers", experts.layers, "layers with routed experts", source)
    sheet.given("E", experts.routed, "routed experts of a layer", source)
    sheet.given("k", experts.active, "routed experts a token meets in a layer", source)
    sheet.given("EXPERT", experts.elements, "elements of one expert in one layer", source)
    sheet.given("bits_EXPERT", weights.matrix_bits(experts, asked), "bits per element, scales included", chosen)
    for name in ("vectors", "vector_bits", "embedding_bits"):
        sheet.given(name, getattr(numbers, name), name.replace("_", " "), source)
    sheet.given("row", numbers.embedding_row, "elements of the input tables read per token", source)
    sheet.given("table", numbers.embedding_table, "elements of the input tables that are not the head", source)


def _who(single: SingleDesign) -> str:
    return "user" if "weight_bits" in single.stated else "neutral"


def add_weights(sheet: Sheet, single: SingleDesign) -> None:
    """Bytes that one device reads each step, and bytes that it stores."""
    model, devices = single.design.model, single.design.parallel.tensor
    asked, batch = single.design.precision.weight_bits, single.design.workload.batch
    sheet.add(_WEIGHTS, "dense", _dense(sheet, single), weights.matrix_bytes(model, asked, devices), "B")
    read, stored = ["dense"], ["dense"]
    if single.model.experts is not None:
        met = weights.distinct_experts(model.experts, batch)
        formula = "E*(1 - (1 - k/E)**B)" if single.model.experts.experts > single.model.experts.active else "E"
        unit = "experts of a layer that B tokens meet, expected at uniform routing"
        sheet.add(_WEIGHTS, "distinct", formula, met, unit)
        for symbol, each, count in (("experts_read", "distinct", met), ("experts_stored", "E", model.experts.routed)):
            formula = f"{_EXPERTS.format(each=each)}*bits_EXPERT/8/n"
            sheet.add(_WEIGHTS, symbol, formula, weights.expert_bytes(model.experts, asked, count, devices), "B")
        read, stored = [*read, "experts_read"], [*stored, "experts_stored"]
    read += ["B*row*embedding_bits/8/n"] if float(model.embedding_row) else []
    stored += ["table*embedding_bits/8/n"] if float(model.embedding_table) else []
    sheet.add(_WEIGHTS, "weights_read", " + ".join(read), single.step.ledger.weights_read, "B")
    sheet.add(_WEIGHTS, "weights_stored", " + ".join(stored), single.step.memory.weights, "B")


def _dense(sheet: Sheet, single: SingleDesign) -> str:
    """What one device holds of the weights that every token meets, as a formula."""
    model = single.design.model
    split = [f"{s}*bits_{s}" for name, s in _SPLIT.items() if float(getattr(model, name).elements) > 0]
    terms = [f"{bracketed(split)}/n"]
    if float(model.key_value.elements):
        terms.append(f"PKV*bits_PKV{_share(sheet, single)}")
    terms += ["ROUTER*bits_ROUTER"] if float(model.router.elements) else []
    return f"({' + '.join([*terms, 'vectors*vector_bits'])})/8"


def _share(sheet: Sheet, single: SingleDesign) -> str:
    """The factor by which K and V projections follow the KV heads; nothing where one device has all."""
    heads = [store for store in stores_of(single) if store.group.key_dim > 0]
    if single.number("tensor_parallel") == 1 or not heads:
        return ""
    held, whole = (
        " + ".join(store.named(term) for store in heads) for term in ("layers#*ceil(kv_heads#/n)", "layers#*kv_heads#")
    )
    unit = "of the projections to K, V and latents: they follow the KV heads"
    share = weights.key_value_share(single.design.model, single.design.parallel.tensor)
    sheet.add(_WEIGHTS, "share", f"({held})/({whole})", share, unit)
    return "*share"


def add_arithmetic(sheet: Sheet, single: SingleDesign) -> None:
    """FLOP of attention and of the weights, by the format that multiplies them."""
    design = single.design
    model, precision, form = design.model, design.precision, design.kv_format
    gemm = compute.gemm_flop_per_token(model, precision.weight_bits, precision.activation_bits)
    flop = compute.attention_flop(model.groups, *single.step.ledger.cache.read_entries(evaluated_context(single)))
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    attention = compute.split_by_format(flop, operand, precision.activation_bits)
    attended = add_attention(sheet, single, _WORK)
    for i, name in enumerate(FORMATS):
        elements = [*_elements(single, i)]
        terms = []
        if elements:
            formula = f"2*{bracketed(elements)}"
            sheet.add(_WORK, f"gemm_{name}", formula, gemm[i], f"FLOP per token in {name} bits")
            terms.append(f"gemm_{name}")
        if float(attention[i]) > 0:
            terms.append(attended)
        if terms:
            result = single.step.ledger.flop_by_format[i]
            sheet.add(_WORK, f"flop_{name}", f"B*{bracketed(terms)}/n", result, "FLOP")


def _elements(single: SingleDesign, slot: int) -> list[str]:
    """Elements that a token is multiplied by in one format."""
    precision = single.design.precision
    multiplied = compute.multiplied_weights(single.design.model, precision.weight_bits)
    return [
        symbol
        for symbol, (elements, bits) in zip(_MULTIPLIED, multiplied, strict=True)
        if float(compute.split_by_format(elements, bits, precision.activation_bits)[slot]) > 0
    ]
