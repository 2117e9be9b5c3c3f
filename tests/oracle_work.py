"""The oracle's arithmetic and collectives: what a pass of tokens costs on the worst device of a column of stages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.oracle_given import Given, Store
from tests.oracle_kv import entries_read, entries_seen
from tests.oracle_weights import hottest_rank, multiplied, multiplied_bits


@dataclass(frozen=True)
class Pass:
    """Tokens that go through the layers together."""

    on_rank: float
    """On an attention rank."""
    together: float
    """On the replica."""
    scored: float
    """That the LM head sees."""
    attention: float
    """Attention FLOP of that rank."""


def number_format(bits: float) -> str:
    """The arithmetic format that operands of `bits` run in."""
    if bits > 8:
        return "compute16"
    return "compute8" if bits > 4 else "compute4"


def peak(given: Given, form: str) -> float | None:
    """FLOP/s of a format; 8 bit falls back on integer arithmetic."""
    if form == "compute16":
        return given.hardware["bf16_flops"]
    if form == "compute4":
        return given.hardware["fp4_flops"]
    eight = given.hardware["fp8_flops"]
    return given.hardware["int8_ops"] if eight is None else eight


def attention_format(given: Given) -> str:
    """The format of scores and mixing."""
    return number_format(max(given.axis("key_bits"), given.axis("value_bits"), given.axis("activation_bits")))


def weight_format(given: Given, kind: str) -> str:
    """The format a class of weights is multiplied in."""
    return number_format(max(multiplied_bits(given, kind), given.axis("activation_bits")))


def attention_flop(given: Given) -> float:
    """Attention FLOP of one token of a step: scores and mixing of what is read, the index of what is seen."""
    total = 0.0
    for store in given.stores:
        per_entry = 2 * store.query_heads * (store.score_dim + store.mix_dim)
        attended = entries_read(given, store, given.time_context) * per_entry
        indexed = entries_seen(given, store, given.time_context) * 2 * store.index_heads * store.index_dim
        total += store.layers * store.readers * (attended + indexed)
    return total


def limited(store: Store, tokens: float) -> float:
    """Tokens that a store's window, full or not, lets a token attend to, once so many are before it."""
    if store.window is None or tokens <= store.window:
        return tokens
    return (store.window + 1) / 2 if store.chunked else store.window


def prompt_entries(store: Store, start: float, end: float, most: float = math.inf) -> float:
    """Entries that the tokens from `start` to `end` of a prompt attend to, each no more than `most`.

    The number grows in straight pieces, so that the trapezoid between its corners is exact.
    """
    corners = {start, end}
    for corner in (store.window, most * store.stride):
        if corner is not None and start < corner < end:
            corners.add(corner)
    total, left = 0.0, start
    for right in sorted(corners)[1:]:
        # Just inside the piece: a chunk falls to a half when it restarts.
        middle = limited(store, (left + right) / 2)
        whole = middle if middle < (left + right) / 2 else None
        ends = [(point if whole is None else whole) / store.stride for point in (left, right)]
        total += (right - left) * (min(ends[0], most) + min(ends[1], most)) / 2
        left = right
    return total


def prompt_attention_flop(given: Given, start: float, end: float) -> float:
    """Attention FLOP of the prompt's tokens from `start` to `end`; nothing is evicted yet."""
    total = 0.0
    for store in given.stores:
        per_entry = 2 * store.query_heads * (store.prefill_dim or store.score_dim + store.mix_dim)
        most = math.inf if store.top_k is None else store.top_k
        attended = prompt_entries(store, start, end, most) * per_entry
        indexed = prompt_entries(store, start, end) * 2 * store.index_heads * store.index_dim
        total += store.layers * store.readers * (attended + indexed)
    return total


def step_pass(given: Given, on_rank: float) -> Pass:
    """The tokens whose arithmetic a step does: verified, drafted by a layer of its own, and of prompts.

    `on_rank` sequences are on the attention rank that is looked at.
    """
    each = given.verified + given.drafted / given.layers
    prompts, attention = 0.0, each * attention_flop(given)
    if given.arrivals:
        prompts = given.arrivals * given.new_prompt
        cached = given.axis("context") - given.new_prompt
        attention += given.arrivals * prompt_attention_flop(given, cached, given.axis("context"))
    return Pass(
        on_rank=on_rank * (each + prompts),
        together=given.active * (each + prompts),
        scored=given.active * (given.verified + given.drafted),
        attention=on_rank * attention,
    )


def flop(given: Given, done: Pass, hottest: float = 1.0) -> dict[str, tuple[float, float]]:
    """FLOP of a device by the format that does them: of the decoder layers, of the LM head.

    Its experts are met `hottest` times as often as the mean.
    """
    tokens = {
        "query_output": done.on_rank / given.rank_devices,
        "key_value": done.on_rank / given.rank_devices,
        "ffn": done.together / given.stage_devices,
        "router": done.together / given.stage_devices,
        "routed": done.together / given.stage_devices * hottest,
        "head": done.scored / given.stage_devices,
    }
    work = [(weight_format(given, kind), 2 * count * tokens[kind], kind) for kind, count in multiplied(given).items()]
    work.append((attention_format(given), done.attention / given.rank_devices, "attention"))
    total: dict[str, tuple[float, float]] = {}
    for form, each, kind in work:
        if each > 0:
            body, end = total.get(form, (0.0, 0.0))
            total[form] = (body, end + each) if kind == "head" else (body + each, end)
    return total


# Collectives


@dataclass(frozen=True)
class Sent:
    """Bytes a device sends."""

    inside: float = 0.0
    """Over the scale-up link."""
    across: float = 0.0
    """Between scale-up domains."""

    def __add__(self, other: Sent) -> Sent:
        """Both."""
        return Sent(self.inside + other.inside, self.across + other.across)

    def times(self, factor: float) -> Sent:
        """So many of it."""
        return Sent(self.inside * factor, self.across * factor)


def domain(given: Given) -> float:
    """Devices that the scale-up link joins."""
    found = given.hardware["scale_up_domain"]
    return math.inf if found is None else found


def exchange(given: Given, members: float, message: float) -> Sent:
    """A reduce-scatter or gather of a message over so many devices: first inside of domains, then between them."""
    size = domain(given)
    here = min(members, size)
    inside = message * (here - 1) / here
    if members <= size:
        return Sent(inside)
    domains = math.ceil(members / size)
    return Sent(inside, message * (domains - 1) / domains / size)


def to_experts(given: Given, message: float) -> Sent:
    """What is sent to the expert ranks of a stage: those that fit into a domain are near."""
    ranks, size = given.expert_ranks, domain(given)
    if ranks == 1:
        return Sent()
    group = given.stage_devices / ranks
    near = 1
    while near < ranks and (near + 1) * group <= size:
        near += 1
    inside = message * (near - 1) / near
    if given.stage_devices <= size:
        return Sent(inside)
    domains = math.ceil(given.stage_devices / size)
    return Sent(inside, message * (domains - 1) / domains / size)


def layer_collectives(given: Given, on_rank: float, together: float) -> Sent:
    """What all decoder layers send for so many tokens of the worst rank, of the replica."""
    one, activation = given.routed, given.axis("activation_bits") / 8
    reduces, expert_layers = given.model["reduces_per_layer"] / 2, one.layers if one else 0
    token = given.model["hidden"] * activation
    sent = exchange(given, given.rank_devices, token * on_rank).times(2 * reduces * given.layers)
    dense = exchange(given, given.stage_devices, token * together)
    sent += dense.times(2 * reduces * (given.layers - expert_layers))
    if one:
        visited = 1 - (1 - min(hottest_rank(given) / given.expert_ranks, 1)) ** one.active
        each = to_experts(given, token * together)
        each += exchange(given, given.stage_devices / given.expert_ranks, token * together)
        sent += each.times(2 * reduces * one.layers * visited)
    if given.splits > 1:
        parts = sum(
            store.layers * store.readers * store.query_heads / given.tensor * (store.score_dim + store.mix_dim)
            for store in given.stores
        )
        sent += exchange(given, given.splits, on_rank * activation * parts)
    return sent


def handed_on(given: Given, together: float) -> Sent:
    """What a stage hands to the next."""
    if given.stages == 1:
        return Sent()
    each = together * given.model["hidden"] * given.axis("activation_bits") / 8 / given.stage_devices
    return Sent(inside=each) if given.devices <= domain(given) else Sent(across=each)


def step_collectives(given: Given) -> Sent:
    """What a device of the worst stage sends per step."""
    prompts = given.arrivals * given.new_prompt
    on_rank = given.sequences * (given.verified + prompts)
    together = given.active * (given.verified + prompts)
    return layer_collectives(given, on_rank, together).times(given.waited(1.0)) + handed_on(given, together)


def messages(given: Given) -> float:
    """Messages a device sends per step, one after another."""
    one, group = given.routed, given.stage_devices
    reduces, expert_layers = given.model["reduces_per_layer"] / 2, one.layers if one else 0
    experts = (given.expert_ranks - 1) + (group / given.expert_ranks - 1)
    total = 2 * reduces * given.layers * (given.rank_devices - 1)
    total += 2 * reduces * ((given.layers - expert_layers) * (group - 1) + expert_layers * experts)
    total += sum(store.layers * store.readers * (given.splits - 1) for store in given.stores)
    return total + given.stages - 1
