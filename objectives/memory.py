"""Memory of the fullest device: what it must hold, the margin left, and the largest batch and context that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp

from kvwall.objectives import engine_memory, inverse, paging, parallel, prefix, tiers, weights
from kvwall.objectives.known import surely
from kvwall.objectives.kv import BITS_PER_BYTE, Cache
from kvwall.spaces.design import NO_LIMIT, Design, ModelColumns
from kvwall.spaces.units import Bits, Bytes, Count, Flag, Ratio, Tokens


@dataclass(frozen=True)
class Sequences:
    """Reserved KV of the sequences of a device, all layers, as a function of how many they are."""

    alone: Bytes
    """A sequence's, without anything in common with others."""
    grouped: Bytes
    """A sequence's, where its whole group is there."""
    shared: Bytes
    """What a group has in common, once."""
    group: Count


@dataclass(frozen=True)
class Place:
    """Memory that holds a share of the KV of a device's sequences."""

    room: Bytes
    """For KV and activations."""
    share: Ratio
    """Of the KV of all layers."""
    beside: Bytes
    """Per sequence, besides KV: activations."""


@dataclass(frozen=True)
class Memory:
    """What the fullest device holds, and the places that limit it."""

    weights: Bytes
    reserved: Bytes
    """KV per sequence, all layers."""
    activations: Bytes
    """Per sequence."""
    margin: Bytes
    room: Bytes
    """Device memory for KV and, with the ideal engine, activations."""
    pool: Bytes
    """Device memory for KV."""
    pool_requests: Count
    """Requests of the longest length that the pool holds by their KV."""
    max_concurrency: Count
    max_batch: Count
    max_context: Tokens


def activation_bytes(model: ModelColumns, activation_bits: Bits, devices: Count) -> Bytes:
    """Bytes of live activations per sequence on one device: hidden state in and out, and the widest layer's inside."""
    widest = jnp.maximum(2 * model.intermediate, model.vocab)
    return (2 * model.hidden + widest / devices) * activation_bits / BITS_PER_BYTE


def memory_margin(place: Place, sequences: Count, reserved: Bytes) -> Bytes:
    """Bytes left; negative = does not fit.

    >>> memory_margin(Place(100.0, 0.5, 5.0), 3.0, 50.0)
    10.0
    """
    return place.room - sequences * (place.share * reserved + place.beside)


def sequences_held(place: Place, sequences: Sequences) -> Count:
    """Sequences that fit, not rounded; 0 if none. Less than a group of them still store a whole common prefix.

    >>> alike = Sequences(alone=30.0, grouped=30.0, shared=0.0, group=1.0)
    >>> float(sequences_held(Place(105.0, 1.0, 0.0), alike))
    3.5
    """
    grouped = place.room / (place.share * sequences.grouped + place.beside)
    own = place.share * (sequences.alone - sequences.shared) + place.beside
    some = (place.room - place.share * sequences.shared) / jnp.where(own > 0, own, 1.0)
    less_than_one = place.room / (place.share * sequences.alone + place.beside)
    some = jnp.where(some < 1, less_than_one, some)
    for_nothing = jnp.where(place.room >= place.share * sequences.shared, NO_LIMIT, less_than_one)
    fewer = jnp.minimum(jnp.where(own > 0, some, for_nothing), sequences.group)
    shares = jnp.logical_and(sequences.group > 1, grouped < sequences.group)
    return jnp.maximum(jnp.where(shares, fewer, grouped), 0.0)


def _limit_of(limits: Flag, place: Place, sequences: Sequences) -> Count:
    """Sequences that a place limits its device to, if it does."""
    safe = replace(place, share=jnp.where(limits, place.share, 1.0))
    return jnp.where(limits, sequences_held(safe, sequences), NO_LIMIT)


def pool_requests(holds: Flag, place: Place, resident: Count, longest: Sequences) -> Count:
    """Requests of the longest length that a place's pool holds: its room once activations are in."""
    pool = Place(jnp.maximum(place.room - resident * place.beside, 0.0), place.share, 0.0)
    return _limit_of(jnp.logical_and(holds, place.share > 0), pool, longest)


def unlimited_to_infinite(real: Flag, number: Count) -> Count:
    """Infinity for what nothing limits, which only happens with a real engine and all KV in tiers of unknown size."""
    return jnp.where(jnp.logical_and(real, number >= NO_LIMIT), jnp.inf, number)


def room_per_sequence(place: Place, sequences: Count) -> Bytes:
    """Bytes of KV, all layers, that the place has for each of the sequences; 0 where nothing is left.

    >>> float(room_per_sequence(Place(100.0, 0.5, 10.0), 2.0))
    80.0
    """
    return jnp.maximum(place.room / sequences - place.beside, 0.0) / place.share


def sequences_of(cache: Cache, design: Design, length: Tokens, own: Tokens) -> Sequences:
    """What sequences of so many tokens reserve on a device, the last `own` of them of no prompt."""
    group = design.prefix.group

    def reserved(saving: Ratio) -> Bytes:
        return engine_memory.reserved(design, replace(cache, stored_saving=saving), length, own)

    full = prefix.saving(jnp.maximum(group, 1.0))
    alone, grouped = reserved(0.0), reserved(full)
    shared = (alone - grouped) / jnp.where(group > 1, full, 1.0)
    return Sequences(alone, grouped, shared, group)


def longest_sequences(cache: Cache, design: Design) -> Sequences:
    """What requests of the longest length reserve."""
    whole = engine_memory.longest_of(design)
    return sequences_of(cache, design, whole, jnp.maximum(whole - design.workload.context, 0.0))


def stored_weights(design: Design) -> tuple[Bytes, Bytes]:
    """Bytes of weights that one device holds: decoder layers, and the larger end (embedding; head and draft)."""
    model, bits, layout = design.model, design.precision.weight_bits, design.parallel
    stage = parallel.stage_devices(layout)
    layers = weights.layers_stored(model, bits, layout)
    head, table = weights.head_bytes(model, bits, stage), weights.embedding_table_bytes(model, stage)
    last = head + jnp.where(design.speculation.draft_tokens > 0, layers / model.layers, 0.0)
    return layers, jnp.where(layout.pipeline > 1, jnp.maximum(last, table), last + table)


def places(design: Design, beside: Bytes) -> tuple[tuple[Flag, Place], ...]:
    """Every place that holds KV, and whether it does: device memory of two kinds of stages, then tiers of known size.

    A stage has the most layers, or fewer and an end of the model; with one stage both are all of it.
    """
    layers, end = stored_weights(design)
    stages, count = design.parallel.pipeline, design.model.layers
    several = stages > 1
    most, fewest = parallel.stage_shares(count, stages)
    in_hbm = jnp.maximum(1 - tiers.placed_fraction(design.placement), 0.0)
    fraction = jnp.where(several, fewest, 1.0)
    last = Place(engine_memory.pool_of(design, layers * fraction + end), in_hbm * fraction, beside)
    middle = Place(engine_memory.pool_of(design, layers * most), in_hbm * most, beside)
    share = parallel.layers_of_stage(count, stages)
    held = [
        (jnp.logical_and(placed > 0, tier.capacity < NO_LIMIT), Place(tier.capacity, placed * share, 0.0))
        for placed, tier in tiers.placed_tiers(design.placement, design.hardware)
    ]
    return (True, last), (several, middle), *held


def memory_of(design: Design, cache: Cache, resident: Count) -> Memory:
    """What the fullest device holds, and what still fits.

    Args:
        design: the design.
        cache: its cache.
        resident: sequences of the fullest attention rank.
    """
    model, work = design.model, design.workload
    stage = parallel.stage_devices(design.parallel)
    each = activation_bytes(model, design.precision.activation_bits, stage)
    reserved = engine_memory.reserved(design, cache, work.context + work.output_tokens, work.output_tokens)
    real = engine_memory.starts_up(design)
    beside = jnp.where(real, 0.0, each * tiers.active_share(design.placement))
    there = places(design, beside)
    sequences = sequences_of(cache, design, work.context + work.output_tokens, work.output_tokens)
    longest, ranks = longest_sequences(cache, design), design.parallel.attention_data
    margins = [jnp.where(holds, memory_margin(place, resident, reserved), NO_LIMIT) for holds, place in there]
    # with a real engine activations are not the sequences': a place without KV limits none
    limiting = [
        (jnp.logical_and(holds, jnp.logical_or(jnp.logical_not(real), place.share > 0)), place)
        for holds, place in there
    ]
    batches = [jnp.floor(_limit_of(limits, place, sequences)) for limits, place in limiting]
    requests = [_limit_of(limits, place, longest) for limits, place in limiting]
    layers, ends = stored_weights(design)
    held = parallel.worst_stage(layers, ends, 0.0, model.layers, design.parallel.pipeline)
    return Memory(
        weights=held,
        reserved=reserved,
        activations=each,
        margin=_least(margins),
        room=engine_memory.pool_of(design, held),
        pool=_least([jnp.where(holds, place.room - resident * place.beside, NO_LIMIT) for holds, place in there[:2]]),
        pool_requests=_least([pool_requests(holds, place, resident, longest) for holds, place in there[:2]]),
        max_concurrency=unlimited_to_infinite(real, ranks * _least(requests)),
        max_batch=unlimited_to_infinite(real, ranks * _least(batches)),
        max_context=max_context(design, cache, there, resident),
    )


def max_context(design: Design, cache: Cache, there: tuple[tuple[Flag, Place], ...], resident: Count) -> Tokens:
    """The longest whole context that fits with its output still to come; 0 if none, infinite where KV stops growing."""
    rooms = []
    for holds, place in there:
        counts = jnp.logical_and(holds, place.share > 0)
        safe = replace(place, share=jnp.where(place.share > 0, place.share, 1.0))
        limited = jnp.logical_or(place.share > 0, place.room >= resident * place.beside)
        room = jnp.where(limited, NO_LIMIT, 0.0)  # without KV here only the rest must fit
        rooms.append(jnp.where(counts, room_per_sequence(safe, resident), jnp.where(holds, room, NO_LIMIT)))
    size = _least(rooms)
    output = design.workload.output_tokens
    own_blocks = engine_memory.paging_of(design)
    fitting = inverse.context_stored_in(size, paging.paged(cache, own_blocks), output)
    if not surely(design.engine.starts_up, 0.0):
        in_blocks = engine_memory.context_reserved_in(size, design, cache, output)
        fitting = jnp.where(engine_memory.starts_up(design), in_blocks, fitting)
    fitting = jnp.where(size >= NO_LIMIT, jnp.inf, fitting)
    whole = cache.stored(design.paging.max_model_length, output)
    whole_blocks = replace(
        own_blocks, block_size=jnp.where(engine_memory.starts_up(design), 1.0, own_blocks.block_size)
    )
    longest = paging.longest_reserved_in(fitting, whole, size, whole_blocks)
    return jnp.maximum(jnp.floor(longest - output), 0.0)


def _least(numbers: Sequence[Bytes]) -> Bytes:
    found = numbers[0]
    for number in numbers[1:]:
        found = jnp.minimum(found, number)
    return found
