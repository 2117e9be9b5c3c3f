"""Why a design cannot be laid out, in words: each fault with its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from kvwall.sweep.readable import tokens_text
from kvwall.sweep.single import SingleDesign


def layout_faults(single: SingleDesign) -> tuple[str, ...]:
    """Every fault of a design's layout; none where the layout is possible."""
    found = [*_heads(single), *_layers(single), *_experts(single), *_placement(single), *_lengths(single)]
    return tuple(dict.fromkeys(found))


def _heads(single: SingleDesign) -> Iterator[str]:
    tensor, ranks = (int(single.number(name)) for name in ("tensor_parallel", "context_parallel"))
    product = f"tensor_parallel {tensor}" if ranks == 1 else f"tensor_parallel {tensor} x context_parallel {ranks}"
    for group in single.model.groups:
        if group.query_heads % (tensor * ranks):
            yield f"{product} does not divide {group.query_heads} query heads"
        heads = max(group.kv_heads, 1)
        if heads % tensor and tensor % heads:
            yield f"{heads} KV heads neither split nor replicate evenly over {tensor} devices"


def _layers(single: SingleDesign) -> Iterator[str]:
    stages, layers = int(single.number("pipeline_parallel")), single.model.decoder_layers
    if stages > layers:
        yield f"pipeline_parallel {stages} is more stages than the model's {layers} layers"


def _experts(single: SingleDesign) -> Iterator[str]:
    ranks, experts = int(single.number("expert_parallel")), single.model.experts
    names = ("tensor_parallel", "context_parallel", "attention_data_parallel")
    devices = 1
    for name in names:
        devices *= int(single.number(name))
    if ranks == 1:
        return
    if experts is None:
        yield f"expert_parallel {ranks}, but the model has no routed experts"
    elif ranks > experts.experts:
        yield f"expert_parallel {ranks} is more than the {experts.experts} experts of a layer"
    if devices % ranks:
        yield f"expert_parallel {ranks} does not divide the {devices} devices of {' x '.join(names)}"


def _placement(single: SingleDesign) -> Iterator[str]:
    total = sum(single.number(f"placement_{tier}") for tier in ("host", "cxl", "nvme", "remote"))
    if total > 1 + 1e-6:
        yield f"placements add up to {total:.6g}, and only 1 is there"
    elif single.inputs["access"] == "parked" and total >= 1 - 1e-6:
        yield "all KV is parked, so that no sequence decodes: leave some in device memory"


def _lengths(single: SingleDesign) -> Iterator[str]:
    end = int(single.number("context")) + int(single.number("output_tokens"))
    longest = single.inputs["max_model_length"]
    if not isinstance(longest, str) and end > float(longest):
        yield f"{tokens_text(end)} of context and output exceed max_model_length {float(longest):,.0f}"
    if single.inputs["serving_mode"] == "continuous" and single.number("output_tokens") < 1:
        yield "continuous serving needs output_tokens of at least 1: prompts arrive as outputs end"
