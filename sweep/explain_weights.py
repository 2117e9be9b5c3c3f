"""The weights in an explanation: bytes that a device reads and stores, and the routed experts that tokens meet."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import parallel, weights
from kvwall.objectives.memory import stored_weights
from kvwall.spaces.axes import NATIVE
from kvwall.sweep.equation import Sheet, bracketed, largest, over, product
from kvwall.sweep.explain_load import Names, names_of, worst_stage
from kvwall.sweep.explain_stores import stores_of
from kvwall.sweep.single import SingleDesign

_WEIGHTS: Final = "Weights (one device)"
_ROUNDING: Final = 1e-9
"""Of an expert: less is no difference between ranks."""
_CLASSES: Final = {"query_output": "QO", "key_value": "PKV", "ffn": "FFN", "router": "ROUTER", "head": "HEAD"}


def declare_weights(sheet: Sheet, single: SingleDesign, source: str) -> None:
    """Elements and bits of every class of weights, and the experts, as inputs."""
    numbers, asked = single.design.model, single.design.precision.weight_bits
    chosen = source if single.inputs["weight_bits"] == NATIVE else "axis weight_bits, user"
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


def add_weights(sheet: Sheet, single: SingleDesign) -> None:
    """Bytes that one device reads each step, and bytes that it stores."""
    model, design, names = single.design.model, single.design, names_of(single)
    asked, layout, load = design.precision.weight_bits, design.parallel, single.step.load
    unit = "B, decoder layers without routed experts"
    sheet.add(_WEIGHTS, "dense", _dense(sheet, single, names), weights.layer_bytes(model, asked, layout), unit)
    if float(model.head.elements) > 0:
        head = weights.head_bytes(model, asked, parallel.stage_devices(layout))
        sheet.add(_WEIGHTS, "head", over("HEAD*bits_HEAD/8", names.stage), head, "B, LM head")
    layers = ["dense", *add_met(sheet, single, _WEIGHTS, "", names.pass_tokens, load.tokens / load.micro)]
    if hot_symbol(single):
        unit = "tokens of the busiest expert rank over the mean"
        sheet.add(_WEIGHTS, "hot", "min(1 + sqrt(2*ln(EP)*skew*EP/E), EP)", hot_rank(single), unit)
    draft = _draft(sheet, single, names)
    ends = ["head"] if float(model.head.elements) > 0 else []
    ends += [f"drafts*{bracketed([draft, *ends])}"] if draft else []
    rows = row_bytes(single, names.tokens)
    ledger = single.step.ledger
    if names.micro:
        sheet.add(_WEIGHTS, "layers_read", f"M*{bracketed(layers)}", ledger.layers_read, "B, all stages together")
        end = [*([f"M*{bracketed(ends)}"] if ends else []), *rows]
        sheet.add(
            _WEIGHTS, "ends_read", " + ".join(end or ["0"]), ledger.ends_read, "B, what goes with an end of the model"
        )
        layers, ends, rows = ["layers_read"], ["ends_read"], []
    sheet.add(_WEIGHTS, "weights_read", " + ".join([*layers, *ends, *rows]), ledger.weights_read, "B")
    _stored(sheet, single, names)


def row_bytes(single: SingleDesign, tokens: str) -> list[str]:
    """What so many tokens read from the input tables."""
    row = over(f"{tokens}*row*embedding_bits/8", names_of(single).stage)
    return [row] if float(single.design.model.embedding_row) else []


def add_met(sheet: Sheet, single: SingleDesign, section: str, tag: str, tokens: str, count: Any) -> list[str]:
    """Equations of the experts that a pass of so many tokens reads; returns the symbol of their bytes, if any."""
    experts, asked, layout = single.design.model.experts, single.design.precision.weight_bits, single.design.parallel
    if single.model.experts is None:
        return []
    skew, ranks, names = single.design.workload.expert_skew, layout.expert, names_of(single)
    distinct, each = weights.distinct_experts(experts, count, skew), f"{tag}distinct"
    unit = "experts of a layer that the tokens of a pass meet, expected"
    sheet.add(section, each, _distinct(single, tokens, float(count)), distinct, unit)
    of_rank = f"{each}/EP" if single.number("expert_parallel") > 1 else each
    formula = over(f"moe_layers*{of_rank}*EXPERT*bits_EXPERT/8", names.expert_split)
    size = weights.expert_bytes(experts, asked, distinct / ranks, parallel.expert_tensor(layout))
    sheet.add(section, f"{tag}experts_read", formula, size, "B, routed experts")
    return [f"{tag}experts_read"]


def add_busiest_experts(sheet: Sheet, single: SingleDesign, section: str) -> tuple[str, str]:
    """What the busiest expert rank reads more than the mean in a step, as terms: (of the layers, of drafts).

    Empty where ranks are alike. A rank reads whole experts, and no more than it has.
    """
    load, micro = single.step.load, "M" if names_of(single).micro else ""
    layers = _add_more(sheet, single, section, "", load.tokens / load.micro)
    drafts = _add_more(sheet, single, section, "draft_", load.active / load.micro) if draft_tokens(single) else ""
    return (
        product(micro, layers) if layers else "",
        product(micro, "drafts", f"{drafts}/decoder_layers") if drafts else "",
    )


def draft_tokens(single: SingleDesign) -> float:
    """Tokens drafted for each step."""
    return single.number("draft_tokens")


def _add_more(sheet: Sheet, single: SingleDesign, section: str, tag: str, tokens: Any) -> str:
    design, names = single.design, names_of(single)
    experts, skew = design.model.experts, design.workload.expert_skew
    bits, layout = design.precision.weight_bits, design.parallel
    more = weights.experts_of_busiest(design.model, bits, tokens, skew, layout)
    met = weights.experts_read(experts, tokens, skew, layout.expert)
    one = weights.expert_bytes(experts, bits, 1.0, parallel.expert_tensor(layout))
    if float(more) <= _ROUNDING * float(one):
        return ""
    formula = f"min(max({tag}distinct/EP, ceil(k/EP)), ceil(E/EP))"
    sheet.add(section, f"{tag}met", formula, met, "of a layer's experts, read by the busiest rank: whole ones")
    formula = over(f"moe_layers*({tag}met - {tag}distinct/EP)*EXPERT*bits_EXPERT/8", names.expert_split)
    sheet.add(section, f"{tag}experts_more", formula, more, "B that it reads more than the mean")
    return f"{tag}experts_more"


def _distinct(single: SingleDesign, tokens: str, count: float) -> str:
    experts = single.model.experts
    if experts is None or experts.experts <= experts.active:
        return "E"
    if count <= 1:
        return "k"
    if single.number("expert_skew") == 0:
        return f"E*(1 - (1 - k/E)**{tokens if tokens.isidentifier() else f'({tokens})'})"
    return f"E*(1 - (1 - k/E)*(1 - skew*({tokens} - 1)*ln(1 - k/E))**(-1/skew))"


def _draft(sheet: Sheet, single: SingleDesign, names: Names) -> str:
    """The weights of one draft pass besides the head: one decoder layer; empty without drafts."""
    if single.number("draft_tokens") == 0:
        return ""
    design, load = single.design, single.step.load
    tokens, asked = load.active / load.micro, design.precision.weight_bits
    formula = f"{names.active}/M" if names.micro else names.active
    met = add_met(sheet, single, _WEIGHTS, "draft_", formula, tokens)
    skew = design.workload.expert_skew
    layer = weights.layers_streamed(design.model, asked, tokens, skew, design.parallel) / design.model.layers
    sheet.add(_WEIGHTS, "draft_layer", f"{bracketed(['dense', *met])}/decoder_layers", layer, "B, an average layer")
    return "draft_layer"


def _dense(sheet: Sheet, single: SingleDesign, names: Names) -> str:
    """What one device holds of the layers' weights that every token meets, as a formula."""
    model = single.design.model
    attention, ffn = (
        f"{_CLASSES[name]}*bits_{_CLASSES[name]}" if float(getattr(model, name).elements) > 0 else ""
        for name in ("query_output", "ffn")
    )
    if names.attending == names.stage:
        terms = [term for term in (attention, ffn) if term]
        split = terms if not names.stage else [f"{bracketed(terms)}/{names.stage}"] if terms else []
    else:
        split = [over(t, by) for t, by in ((attention, names.attending), (ffn, names.stage)) if t]
    if float(model.key_value.elements):
        split.append(f"PKV*bits_PKV{_share(sheet, single)}")
    split += ["ROUTER*bits_ROUTER"] if float(model.router.elements) else []
    return f"({' + '.join([*split, 'vectors*vector_bits'])})/8"


def _share(sheet: Sheet, single: SingleDesign) -> str:
    """The factor by which K and V projections follow the KV heads; nothing where one device has all."""
    heads = [store for store in stores_of(single) if store.group.key_dim > 0]
    if single.number("tensor_parallel") == 1 or not heads:
        return ""
    share = weights.key_value_share(single.design.model, single.design.parallel.tensor)
    if all(store.is_latent for store in heads):
        return ""  # whole on every device
    held, whole = (
        " + ".join(store.named(term) for store in heads) for term in ("layers#*ceil(kv_heads#/TP)", "layers#*kv_heads#")
    )
    unit = "of the projections to K, V and latents: they follow the KV heads"
    sheet.add(_WEIGHTS, "share", f"({held})/({whole})", share, unit)
    return "*share"


def _stored(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    design, model = single.design, single.design.model
    layers_stored, ends_stored = stored_weights(design)
    layers, drafted = ["dense"], single.number("draft_tokens") > 0
    if single.model.experts is not None:
        ranks = single.number("expert_parallel")
        held = weights.layers_stored(model, design.precision.weight_bits, design.parallel)
        held -= weights.layer_bytes(model, design.precision.weight_bits, design.parallel)
        formula = over(f"moe_layers*{'ceil(E/EP)' if ranks > 1 else 'E'}*EXPERT*bits_EXPERT/8", names.expert_split)
        sheet.add(_WEIGHTS, "experts_stored", formula, held, "B, routed experts")
        layers.append("experts_stored")
    table = [over("table*embedding_bits/8", names.stage)] if float(model.embedding_table) else []
    head = ["head"] if float(model.head.elements) > 0 else []
    draft = [f"{bracketed(layers)}/decoder_layers"] if drafted else []
    if not names.micro:
        formula = " + ".join([*layers, *head, *table, *draft])
        sheet.add(_WEIGHTS, "weights_stored", formula, single.step.memory.weights, "B")
        return
    stored = stored_layers(single)
    if stored != "dense":
        sheet.add(_WEIGHTS, stored, " + ".join(layers), layers_stored, "B, all stages together")
    last = [*head, *([f"{stored}/decoder_layers"] if drafted else [])]
    ends = [" + ".join(last)] if last else []
    if ends or table:
        unit = "B, what goes with an end of the model"
        sheet.add(_WEIGHTS, "ends_stored", largest([*ends, *table]), ends_stored, unit)
    formula = worst_stage(single, stored, "ends_stored" if ends or table else "")
    sheet.add(_WEIGHTS, "weights_stored", formula, single.step.memory.weights, "B, the stage that has most")


def stored_layers(single: SingleDesign) -> str:
    """The symbol of the weights of all layers of a pipeline."""
    return "dense" if single.model.experts is None else "layers_stored"


def hot_symbol(single: SingleDesign) -> str:
    """The symbol of the busiest expert rank's load over the mean; empty where ranks are alike."""
    return "hot" if hot_rank(single) != 1 else ""


def hot_rank(single: SingleDesign) -> float:
    """Load of the busiest expert rank over the mean."""
    design = single.design
    return float(parallel.hot_rank(design.model.experts, design.workload.expert_skew, design.parallel.expert))
