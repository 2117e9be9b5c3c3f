"""The oracle's weights: bytes on the worst device of a column of stages, stored and streamed."""

from __future__ import annotations

import math

from tests.oracle_given import MATRICES, Given
from tests.oracle_kv import heads_held


def kv_projection_share(given: Given) -> float:
    """Share of the K and V projections on the worst device: they follow the heads; all heads weigh the same."""
    projected = [store for store in given.stores if store.key_dim]
    heads = sum(store.layers * store.kv_heads for store in projected)
    return sum(store.layers * heads_held(given, store) for store in projected) / heads if heads else 1.0


def bits(given: Given, kind: str) -> float:
    """Bits per weight of a tensor class: an explicit width moves the streamed matrices only."""
    if kind in MATRICES and given.axes["weight_bits"] is not None:
        return given.axis("weight_bits")
    return float(given.model[f"{kind}_bits"])


def multiplied_bits(given: Given, kind: str) -> float:
    """Bits of a class's weights as the multiplier sees them: without scales."""
    if kind in (*MATRICES, "routed") and given.axes["weight_bits"] is not None:
        return given.axis("weight_bits")
    if kind == "routed" and given.routed:
        return given.routed.payload_bits
    stored = given.model.get(f"{kind}_bits", 16)
    return float(given.model.get(f"{kind}_payload_bits", stored))


def multiplied(given: Given) -> dict[str, float]:
    """Weights one token is multiplied by, by class."""
    found = {kind: given.model[kind] for kind in MATRICES}
    if given.routed:
        found["router"] = given.model["router"]
        found["routed"] = given.routed.layers * given.routed.active * given.routed.elements
    return found


# Routed experts


def experts_met(given: Given, tokens: float) -> float:
    """Expected distinct experts of a layer that so many tokens meet.

    An expert of popularity p is missed by all but the first token with exp(-p * misses); over a gamma
    distribution of popularity, of squared coefficient of variation `expert_skew`, that is a power.
    """
    one = given.routed
    if one is None:
        return 0.0
    if one.active == one.experts:
        return one.experts
    once = 1 - one.active / one.experts
    skew, misses = given.axis("expert_skew"), -(max(tokens, 1.0) - 1) * math.log(once)
    others = math.exp(-misses if skew == 0 else -math.log1p(skew * misses) / skew)
    return one.experts * (1 - once * others)


def experts_read(given: Given, tokens: float, busiest: bool) -> float:
    """Experts of a layer that an expert rank reads for so many tokens, the busiest or the mean one."""
    one, ranks = given.routed, given.expert_ranks
    if one is None:
        return 0.0
    mean = experts_met(given, tokens) / ranks
    if ranks == 1 or not busiest:
        return mean
    return min(math.ceil(one.experts / ranks), max(mean, math.ceil(one.active / ranks)))


def experts_bytes(given: Given, each_layer: float) -> float:
    """Bytes on a device of `each_layer` experts of its rank in every expert layer."""
    one = given.routed
    if one is None:
        return 0.0
    width = one.bits if given.axes["weight_bits"] is None else given.axis("weight_bits")
    shared_by = given.stage_devices / given.expert_ranks
    return one.layers * each_layer * one.elements * width / 8 / shared_by


def hottest_rank(given: Given) -> float:
    """Tokens of the worst expert rank as a multiple of the mean."""
    one, ranks = given.routed, given.expert_ranks
    if one is None or ranks == 1:
        return 1.0
    return min(1 + math.sqrt(2 * math.log(ranks) * given.axis("expert_skew") * ranks / one.experts), ranks)


# Bytes


def class_bytes(given: Given, kind: str, share: float) -> float:
    """Bytes of a device's share of one class."""
    return float(given.model[kind]) * bits(given, kind) / 8 * share


def dense_body(given: Given) -> float:
    """Bytes of all decoder layers but the routed experts."""
    total = class_bytes(given, "query_output", 1 / given.rank_devices)
    total += class_bytes(given, "key_value", kv_projection_share(given))
    total += class_bytes(given, "ffn", 1 / given.stage_devices) + class_bytes(given, "vectors", 1.0)
    return total + (class_bytes(given, "router", 1.0) if given.routed else 0.0)


def body_read(given: Given, tokens: float, busiest: bool = False) -> float:
    """Bytes of the decoder layers that one pass of so many tokens streams."""
    return dense_body(given) + experts_bytes(given, experts_read(given, tokens, busiest))


def head(given: Given) -> float:
    """Bytes of the LM head."""
    return class_bytes(given, "head", 1 / given.stage_devices)


def rows(given: Given, tokens: float) -> float:
    """Bytes of the input rows of so many tokens."""
    return tokens * given.model["embedding_rows"] * bits(given, "embedding") / 8 / given.stage_devices


def streamed(given: Given, busiest: bool = False) -> tuple[float, float]:
    """Bytes a step streams of the decoder layers and of what belongs to the ends, all micro-batches together."""
    waves = given.waves
    prompts = given.active * given.arrivals * given.new_prompt
    body = waves * body_read(given, (given.active * given.verified + prompts) / waves, busiest)
    end = waves * head(given) + rows(given, given.active * given.verified + prompts)
    if given.drafted:
        draft = body_read(given, given.active / waves, busiest) / given.layers + head(given)
        end += given.drafted * waves * draft
    return body, end


def weights_read(given: Given) -> float:
    """Weight bytes per step and mean device of a column, the input rows of the batch included."""
    return sum(streamed(given))


def resting(given: Given) -> tuple[float, float]:
    """Bytes that rest on a device: of the decoder layers, of the ends."""
    one, ranks = given.routed, given.expert_ranks
    body = dense_body(given) + (experts_bytes(given, math.ceil(one.experts / ranks)) if one else 0.0)
    table = 0.0 if given.model["tied_embeddings"] else given.model["embedding"] * bits(given, "embedding") / 8
    table += given.model.get("layer_embedding", 0.0) * bits(given, "embedding") / 8
    first, last = table / given.stage_devices, head(given)
    if given.drafted:
        last += body / given.layers
    return body, first + last if given.stages == 1 else max(first, last)
