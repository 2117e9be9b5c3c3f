"""The wall in an explanation: the context at which KV reads reach weight reads, on the straight piece it lies on."""

from __future__ import annotations

import math
import re
from typing import Final

import jax
import jax.numpy as jnp

from kvwall.sweep.endless import no_crossover
from kvwall.sweep.equation import Sheet
from kvwall.sweep.explain_kv import Store, bracketed, of_one, recent_entries, stores_of
from kvwall.sweep.single import SingleDesign

_WALL: Final = "The wall"


def add_crossover(sheet: Sheet, single: SingleDesign) -> None:
    """KV bytes read are `fixed + growth*context` around the crossover; where there is none a note says why."""
    ledger, found = single.step.ledger, float(single.evaluation.metrics["crossover_context_bytes"])
    if not math.isfinite(found):
        sheet.notes.append(f"crossover: {no_crossover(single.model)}")
        return
    if found <= 1:
        sheet.notes.append("crossover: KV is most of the traffic from the first token on")
        return
    per_sequence = ledger.weights_read / single.design.workload.batch
    sheet.add(_WALL, "weights_per_sequence", "weights_read/B", per_sequence, "B")
    pieces = [_piece(single, store, found) for store in stores_of(single)]
    constants = [constant for constant, _ in pieces if constant]
    slopes = [slope for _, slope in pieces if slope]
    context = jnp.asarray(found)
    read, growth = jax.jvp(ledger.cache.read, (context,), (jnp.ones_like(context),))
    if constants:
        unit = "B per sequence, KV that does not grow there"
        sheet.add(_WALL, "fixed", " + ".join(constants), read - growth * context, unit)
    sheet.add(_WALL, "growth", " + ".join(slopes), growth, "B per sequence and further token")
    formula = "(weights_per_sequence - fixed)/growth" if constants else "weights_per_sequence/growth"
    sheet.add(_WALL, "crossover_context", formula, found, "tokens")


def _piece(single: SingleDesign, store: Store, context: float) -> tuple[str, str]:
    """What a kind of layer reads around a context: (bytes that do not depend on it, bytes per token)."""
    state = store.named("state#") if store.group.state_bytes else ""
    if not store.holds_entries:
        return state, ""
    chosen, seen = (of_one(each) for each in store.cache.read_entries(jnp.asarray(context)))
    constant, slope = _seen_piece(single, store, context)
    indexed = [(f"index#*{part}" if part else "") for part in (constant, slope)] if store.group.index_dim else ["", ""]
    if store.group.top_k is not None and seen >= store.group.top_k:
        constant, slope = "top_k#", ""
    entry, extra = "entry#", ""
    window = single.number("residual_window") / store.group.stride
    if window > 0 and chosen > window:
        extra = f"(full_entry# - entry#)*{recent_entries(store.group)}"
    elif window > 0:
        entry = "full_entry#"
    times = "layers#*readers#" if store.group.readers > 1 else "layers#"

    def of_sequence(*terms: str) -> str:
        some = [term for term in terms if term]
        return store.named(f"{times}*{bracketed(some)}") if some else ""

    fixed = of_sequence(f"{entry}*{constant}" if constant else "", extra, indexed[0])
    grows = of_sequence(f"{entry}*{slope}" if slope else "", indexed[1])
    return " + ".join(part for part in (state, fixed) if part), re.sub(r"\*1\b", "", grows)


def _seen_piece(single: SingleDesign, store: Store, context: float) -> tuple[str, str]:
    """Entries a step may read around a context: (their constant part, entries per token)."""
    window, stride = store.group.window, "/stride#" if store.group.stride > 1 else ""
    if window is not None and context >= window:
        return ("(chunk# + 1)/2" if store.group.chunked else "window#") + stride, ""
    if not store.evicts(single):
        return "", f"1{stride}"
    pinned = single.number("sink_tokens") + single.number("recent_tokens")
    if context <= pinned:
        return "", f"1{stride}"
    return (f"(1 - r)*pinned{stride}" if pinned else ""), f"r{stride}"
