"""The wall in an explanation: where KV reads reach weight reads, and how far a design is from every boundary."""

from __future__ import annotations

import math
import re
from typing import Final

import jax
import jax.numpy as jnp

from kvwall.objectives.time import RESOURCES
from kvwall.sweep.boundaries import HeldPlace, boundaries_of
from kvwall.sweep.endless import no_crossover
from kvwall.sweep.equation import Sheet, bracketed, largest, over, product
from kvwall.sweep.explain_load import names_of
from kvwall.sweep.explain_memory import explained_places, margin_symbol, size_symbol
from kvwall.sweep.explain_stores import Store, of_one, stores_of
from kvwall.sweep.single import SingleDesign

WALL: Final = "The wall"


def add_distances(sheet: Sheet, single: SingleDesign) -> None:
    """Signed distances to the boundaries, those of times as far as the times are known."""
    found = boundaries_of(single)
    if found["kv"] is not None:
        unit = "(above 0: a step reads more KV than weights)"
        sheet.add(WALL, "distance_kv", "ln(kv_read/weights_read)", found["kv"], unit)
    used = {name: distance for name in RESOURCES if (distance := found[name]) is not None}
    for name, distance in used.items():
        if len(used) > 2 or distance > 0:  # of two, the other's is the negative
            others = largest([f"t_{other}" for other in used if other != name])
            sheet.add(WALL, f"distance_{name}", f"ln(t_{name}/{others})", distance, "(above 0: it binds)")
    places = explained_places(single)
    each = [_needed(single, place, len(places)) for place in places]
    sheet.add(WALL, "distance_capacity", largest(each), found["capacity"], "(above 0: it does not fit)")


def _needed(single: SingleDesign, place: HeldPlace, count: int) -> str:
    """ln(bytes needed / bytes usable) of a place, as a formula."""
    size = size_symbol(single, place)
    return f"ln(({size} - {margin_symbol(place, count)})/{size})"


def add_crossover(sheet: Sheet, single: SingleDesign) -> None:
    """KV bytes read are `fixed + growth*context` around the crossover; where there is none a note says why."""
    ledger, found = single.step.ledger, float(single.evaluation.metrics["crossover_context_bytes"])
    if not math.isfinite(found):
        sheet.notes.append(f"crossover: {no_crossover(single.model)}")
        return
    if found <= 1:
        sheet.notes.append("crossover: KV is most of the traffic from the first token on")
        return
    names, load = names_of(single), single.step.load
    per_sequence = f"weights_read/{names.mean}" if "/" not in names.mean else f"weights_read*DP/{names.active}"
    sheet.add(WALL, "weights_per_sequence", per_sequence, ledger.weights_read / load.mean_sequences, "B")
    if not all(_straight(single, store, found) for store in stores_of(single)):
        sheet.notes.append("crossover_context: where a sequence reads weights_per_sequence, on no straight piece")
        return
    pieces = [_piece(single, store, found) for store in stores_of(single)]
    constants = [constant for constant, _ in pieces if constant]
    slopes = [slope for _, slope in pieces if slope]
    states = [store.named("state#") for store in stores_of(single) if store.group.state_bytes]
    context = jnp.asarray(found)
    own = single.design.workload.output_tokens / 2
    read, growth = jax.jvp(lambda tokens: ledger.cache.read(tokens, own), (context,), (jnp.ones_like(context),))
    fixed = [*([_divided(single, constants)] if constants else []), *states]
    if fixed:
        unit = "B per sequence, KV that does not grow there"
        sheet.add(WALL, "fixed", " + ".join(fixed), read - growth * context, unit)
    sheet.add(WALL, "growth", _divided(single, slopes), growth, "B per sequence and further token")
    formula = "(weights_per_sequence - fixed)/growth" if fixed else "weights_per_sequence/growth"
    sheet.add(WALL, "crossover_context", formula, found, "tokens")


def _straight(single: SingleDesign, store: Store, context: float) -> bool:
    """Whether what a store reads is a straight line around a context: not all of a common prefix is."""
    if not store.holds_entries or not _shares(single, store, context):
        return True
    chosen = of_one(store.cache.read_entries(jnp.asarray(context))[0])
    own = single.number("output_tokens") / 2
    shared = of_one(store.cache.shared_entries(jnp.asarray(context), jnp.asarray(own)))
    of_chosen = shared * (single.number("read_fraction") if store.skips(single) else 1.0)
    if store.group.top_k is not None:
        of_chosen = min(of_chosen, store.group.top_k * single.number("prefix_share"))
    in_residual = bool(store.recent(single)) and of_chosen > max(chosen - of_one(store.cache.recent), 0.0)
    prefix = single.number("prefix_share") * max(context - own, 0.0)
    among_recent = store.evicts(single) and prefix > context - single.number("recent_tokens")
    return not in_residual and not among_recent and context > own


def _shares(single: SingleDesign, store: Store, context: float) -> bool:
    """Whether some of a common prefix is read once there."""
    own = jnp.asarray(single.number("output_tokens") / 2)
    shared = of_one(store.cache.shared_entries(jnp.asarray(context), own))
    return float(store.cache.read_saving) > 0 and shared > 0 and not store.restarted(context)


def _divided(single: SingleDesign, terms: list[str]) -> str:
    """A sum over the stores as one device reads it: with a draft's layers, its part of the tokens."""
    drafted = "(1 + drafts/decoder_layers)" if single.number("draft_tokens") > 0 else ""
    ranks = "CP" if single.number("context_parallel") > 1 else ""
    if not drafted and not ranks:
        return " + ".join(terms)
    return over(product(drafted, bracketed(terms)), ranks)


def _piece(single: SingleDesign, store: Store, context: float) -> tuple[str, str]:
    """What a kind of layer reads around a context: (bytes that do not depend on it, bytes per token)."""
    if not store.holds_entries:
        return "", ""
    chosen = of_one(store.cache.read_entries(jnp.asarray(context))[0])
    constant, slope = may = _seen_piece(single, store, context)
    guide = bracketed(store.guides(single) or [""])
    guided = [(f"{guide}*{part}" if part and guide else "") for part in may]
    rho = "read_fraction" if store.skips(single) else ""
    top_k = store.group.top_k
    capped = top_k is not None and chosen >= top_k
    if capped:
        constant, slope = "top_k#", ""
    else:
        constant, slope = (product(rho, part) if part else "" for part in may)
    entry, extra, window = "entry#", "", single.number("residual_window") / store.group.stride
    window = window if store.recent(single) else 0.0
    if window > 0 and chosen > window:
        extra = f"(full_entry# - entry#)*{store.recent(single)}"
    elif window > 0:
        entry = "full_entry#"
    fixed = [f"{entry}*{constant}" if constant else "", extra, guided[0]]
    grows = [f"{entry}*{slope}" if slope else "", guided[1]]
    spared = _spared(single, store, context, rho)

    def of_sequence(terms: list[str], saved: str) -> str:
        some = [term for term in terms if term]
        if saved:
            own = f"{' + '.join(some)} - {saved}" if some else f"-{saved}"
            return store.named(f"{store.times}*({own})")
        return store.named(f"{store.times}*{bracketed(some)}") if some else ""

    return of_sequence(fixed, spared[0]), re.sub(r"\*1\b", "", of_sequence(grows, spared[1]))


def _spared(single: SingleDesign, store: Store, context: float, rho: str) -> tuple[str, str]:
    """What prefix-aware attention spares of a common prefix around a context: (fixed bytes, bytes per token)."""
    if not _shares(single, store, context):
        return "", ""
    guide = bracketed(store.guides(single) or [""])
    own = jnp.asarray(single.number("output_tokens") / 2)
    shared = of_one(store.cache.shared_entries(jnp.asarray(context), own))
    constant, slope = _shared_piece(single, store, context)
    top_k = store.group.top_k
    share = single.number("read_fraction") if rho else 1.0
    if top_k is not None and shared * share >= top_k * single.number("prefix_share"):
        fixed = ["entry#*prefix_share*top_k#", f"{guide}*{constant}" if guide and constant else ""]
        return _times_spared([term for term in fixed if term]), _times_spared([f"{guide}*{slope}"] if guide else [])
    per_entry = bracketed([product("entry#", rho), *([guide] if guide else [])])
    return (
        _times_spared([f"{per_entry}*{constant}"] if constant else []),
        _times_spared([f"{per_entry}*{slope}"]),
    )


def _times_spared(terms: list[str]) -> str:
    return f"{bracketed(terms)}*spared_read" if terms else ""


def _shared_piece(single: SingleDesign, store: Store, context: float) -> tuple[str, str]:
    """Entries of a common prefix around a context: (their constant part, entries per token).

    The last output_tokens/2 of the context are of no prompt.
    """
    own = "prefix_share*output_tokens/2" if single.number("output_tokens") > 0 else ""
    if store.limit and context >= float(store.group.window or 0):  # the window leaves the prefix behind
        held = f"({store.limit} - {own})" if own else store.limit
        return f"{held}{store.stride}", f"(prefix_share - 1){store.stride}"
    sinks = single.number("sink_tokens")
    prefix = single.number("prefix_share") * (context - single.number("output_tokens") / 2)
    if store.evicts(single) and prefix > sinks:
        terms = "(1 - r)*sinks" if sinks else ""
        constant = f"({terms or 0} - r*{own})" if own else terms
        return f"{constant}{store.stride}" if constant else "", f"r*prefix_share{store.stride}"
    return f"(-{own}){store.stride}" if own else "", f"prefix_share{store.stride}"


def _seen_piece(single: SingleDesign, store: Store, context: float) -> tuple[str, str]:
    """Entries a step may read around a context: (their constant part, entries per token)."""
    window = store.group.window
    if window is not None and context >= window:
        return ("(chunk# + 1)/2" if store.group.chunked else "window#") + store.stride, ""
    if not store.evicts(single):
        return "", f"1{store.stride}"
    pinned = single.number("sink_tokens") + single.number("recent_tokens")
    if context <= pinned:
        return "", f"1{store.stride}"
    return (f"(1 - r)*pinned{store.stride}" if pinned else ""), f"r{store.stride}"
