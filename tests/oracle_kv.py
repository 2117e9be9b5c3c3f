"""The oracle's KV cache: bytes of one sequence on the worst device of a column of stages, all tiers together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tests.oracle_given import Given, Store


def heads_held(given: Given, store: Store) -> int:
    """KV heads of a store on the worst device: whole heads, never less than one."""
    return -(-store.kv_heads // given.tensor)


def kept(given: Given, context: float) -> float:
    """Tokens left of `context` after eviction."""
    always = given.axis("sink_tokens") + given.axis("recent_tokens")
    if context <= always:
        return context
    return always + given.axis("retention") * (context - always)


# Bytes of entries


def quantized_bits(given: Given, bits: float) -> float:
    """Bits of one quantized element with its share of scale, zero point and sparse outliers; none at 16 bits."""
    if bits >= 16:
        return bits
    group = given.axis("kv_group_size")
    scales = (given.axis("scale_bits") + given.axis("zero_bits")) / group if group > 0 else 0.0
    return bits + scales + 32 * given.axis("outlier_fraction")


def elements(given: Given, store: Store) -> tuple[tuple[float, int], ...]:
    """Payload bits and number, per entry and device, of keys and of values."""
    heads = heads_held(given, store)
    return (given.axis("key_bits"), heads * store.key_dim), (given.axis("value_bits"), heads * store.value_dim)


def entries_bytes(given: Given, store: Store, entries: float) -> float:
    """Bytes of so many entries of one store, the most recent of them plain."""
    plain = min(given.axis("residual_window") / store.stride, entries)
    bits = 16.0 * store.rope_dim * entries
    for payload, count in elements(given, store):
        bits += count * (plain * max(16.0, payload) + (entries - plain) * quantized_bits(given, payload))
    return bits / 8


def oldest_bytes(given: Given, store: Store, entries: float, shared: float) -> float:
    """Bytes of the oldest `shared` of so many entries: all that the younger ones do not take."""
    plain = min(given.axis("residual_window") / store.stride, entries)
    young = entries - shared
    bits = 16.0 * store.rope_dim * shared
    for payload, count in elements(given, store):
        new = max(plain - young, 0.0)
        bits += count * (new * max(16.0, payload) + (shared - new) * quantized_bits(given, payload))
    return bits / 8


def beside_bytes(given: Given, store: Store) -> float:
    """Bytes kept beside an entry to choose by: its sparse index, its part of a page's least and largest key."""
    index = 2.0 * store.index_dim
    if given.axis("read_fraction") >= 1 or not store.evictable:
        return index
    return index + 2 * 2 * store.key_dim * heads_held(given, store) / given.axis("block_size")


# Numbers of entries


def entries_held(given: Given, store: Store, context: float) -> float:
    """Entries that a store holds."""
    if store.evictable:
        return kept(given, context) / store.stride
    return (context if store.window is None else min(context, store.window)) / store.stride


def restarted(store: Store, context: float) -> bool:
    """Whether a chunk has been full and has begun again."""
    return store.chunked and store.window is not None and context > store.window


def entries_seen(given: Given, store: Store, context: float) -> float:
    """Entries a step may attend to: a chunk that has restarted is half full on average."""
    if restarted(store, context) and store.window is not None:
        return (store.window + 1) / 2 / store.stride
    return entries_held(given, store, context)


def entries_read(given: Given, store: Store, context: float) -> float:
    """Entries a step reads."""
    chosen = entries_seen(given, store, context)
    if store.evictable:
        chosen *= given.axis("read_fraction")
    return chosen if store.top_k is None else min(chosen, store.top_k)


def kept_of_first(given: Given, first: float, context: float) -> float:
    """Of the first so many of `context` tokens, those left by eviction: all sinks, all recent ones, some between."""
    start = min(given.axis("sink_tokens"), context)
    end = max(context - given.axis("recent_tokens"), start)
    sinks, recent = min(first, start), max(first - end, 0.0)
    return sinks + recent + given.axis("retention") * (first - sinks - recent)


def entries_shared(given: Given, store: Store, context: float, own: float) -> float:
    """Of the entries held, those of the common prefix; the last `own` tokens are not of the prompt."""
    prefix = given.axis("prefix_share") * max(context - max(own, 0.0), 0.0)
    if store.evictable:
        return kept_of_first(given, prefix, context) / store.stride
    gone = 0.0 if store.window is None else max(context - store.window, 0.0)
    return max(prefix - gone, 0.0) / store.stride


# Bytes of a sequence


@dataclass(frozen=True)
class Shared:
    """A prefix of which so many sequences have one copy; the last `own` tokens of each are its own."""

    copies: float
    own: float


def draft_layers(given: Given, passes: float) -> float:
    """What one more layer, met `passes` times, adds to what all layers hold."""
    return 1 + passes / given.layers


def states(given: Given) -> float:
    """Bytes of a sequence's recurrent states."""
    return sum(store.layers * store.state_bytes for store in given.stores) / given.tensor


def stored(given: Given, tokens: float, shared: Shared | None = None, page: float = 1) -> float:
    """Bytes a sequence of so many tokens stores, windows of whole pages; of what is shared, its part of the copy."""
    total = 0.0
    for each in given.stores:
        store = each if each.window is None else replace(each, window=math.ceil(each.window / page) * page)
        held, beside = entries_held(given, store, tokens), beside_bytes(given, store)
        total += store.layers * (entries_bytes(given, store, held) + beside * held)
        if shared:
            common = entries_shared(given, store, tokens, shared.own)
            copied = oldest_bytes(given, store, held, common) + beside * common
            total -= store.layers * copied * (1 - 1 / shared.copies)
    return total / given.splits * draft_layers(given, min(given.drafted, 1)) + states(given)


def reserved(given: Given, context: float, copies: float) -> float:
    """Bytes set apart for a sequence of a prompt and its output: whole pages, or the longest length at once."""
    length = context + given.axis("output_tokens")
    if given.axes["reservation"] == "contiguous":
        length = given.axis("max_model_length") or length
    return set_apart(given, length, context, copies)


def set_apart(given: Given, length: float, prompt: float, copies: float) -> float:
    """Bytes set apart for so many tokens, of which the first are a prompt; what pages are not full of is not shared."""
    if given.axes["reservation"] == "contiguous":
        return stored(given, length, Shared(copies, length - prompt))
    page = given.axis("block_size")
    paged = math.ceil(length / page) * page
    return stored(given, paged, Shared(copies, paged - prompt), page)


def read(given: Given, context: float, copies: float) -> float:
    """Bytes a step reads of one sequence of `context` tokens; every reader reads, `copies` share what they have."""
    total, own = 0.0, given.axis("output_tokens") / 2
    for store in given.stores:
        seen, chosen = entries_seen(given, store, context), entries_read(given, store, context)
        shared = 0.0 if restarted(store, context) else entries_shared(given, store, context, own)
        beside = beside_bytes(given, store)
        whole = entries_bytes(given, store, chosen) + beside * seen
        # The chosen are spread evenly; where they are so many of any context, as if all of it were the prompt.
        common = shared * (given.axis("read_fraction") if store.evictable else 1.0)
        if store.top_k is not None:
            common = min(common, store.top_k * given.axis("prefix_share"))
        saved = (oldest_bytes(given, store, chosen, common) + beside * shared) * (1 - 1 / copies)
        total += store.layers * store.readers * (whole - saved)
    return total / given.splits * draft_layers(given, given.drafted) + states(given)


def written(given: Given, tokens: float) -> float:
    """Bytes that so many new tokens of a sequence write, its states once."""
    total = 0.0
    for store in given.stores:
        entry = 16.0 * store.rope_dim + 8 * beside_bytes(given, store)
        for payload, count in elements(given, store):
            fresh = max(16.0, payload) if given.axis("residual_window") > 0 else quantized_bits(given, payload)
            entry += count * fresh
        total += store.layers * entry / 8 / store.stride
    return tokens * total / given.splits * draft_layers(given, min(given.drafted, 1)) + states(given)


# Bytes per decoding sequence of a step


def read_by_step(given: Given, context: float) -> float:
    """KV bytes a step reads at `context` tokens, all tiers."""
    copies = given.copies(given.sequences) if given.axes["prefix_aware_attention"] else 1.0
    return read(given, context, copies)


def written_by_step(given: Given) -> float:
    """KV bytes a step writes: of the sequence, and of the prompts that arrive in its place."""
    return written(given, given.verified) + given.arrivals * written(given, given.new_prompt)


def found_by_step(given: Given) -> float:
    """KV bytes of the prompts that arrive in a sequence's place which are found cached, and moved once."""
    return given.arrivals * found(given)


def found(given: Given) -> float:
    """KV bytes of the part of a prompt that is found cached."""
    cached = given.axis("context") - given.new_prompt
    return stored(given, cached) if cached > 0 else 0.0


def in_hbm(given: Given) -> float:
    """Share of the KV that is read from HBM by what decodes; parked sequences have come back before."""
    return 1.0 if given.parked else 1 - given.outside
