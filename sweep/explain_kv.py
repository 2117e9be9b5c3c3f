"""The KV part of an explanation: each kind of layer by its own rules, their sum, and where KV passes the weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp

from kvwall.objectives import compute, kv
from kvwall.spaces.models.layers import LayerGroup
from kvwall.sweep.equation import Sheet
from kvwall.sweep.single import SingleDesign

_ALL: Final = "KV of all layers (one device)"
_WORDS: Final = {
    "full": "full attention",
    "window": "sliding window",
    "chunked": "chunked attention",
    "latent": "latents (MLA)",
    "sparse": "sparse attention, chosen by an index",
    "compressed": "compressed attention",
    "recurrent": "recurrent state",
}
_MEANINGS: Final = {
    "layers": "layers of this kind",
    "readers": "layers that read each store",
    "query_heads": "query heads",
    "kv_heads": "KV heads",
    "key_dim": "elements of a head's key",
    "value_dim": "elements of a head's value",
    "rope_dim": "elements of an entry that stay at 16 bits",
    "score_dim": "elements of a score's dot product",
    "mix_dim": "elements of a head's weighted sum",
    "window": "tokens of the sliding window",
    "stride": "tokens per stored entry",
    "top_k": "entries a step reads",
    "index_dim": "elements of an entry's index key, 16 bits",
    "index_heads": "heads of the index",
    "state_bytes": "bytes of a layer's state",
}


@dataclass(frozen=True)
class Store:
    """One kind of layer: its record, what its symbols end in, and its share of the design's cache."""

    group: LayerGroup
    suffix: str
    number: str
    """Among layers of one kind that differ in their numbers; empty where they are alike."""
    cache: kv.Cache

    @property
    def holds_entries(self) -> bool:
        """Whether it keeps something for each token, a recurrent state aside."""
        return self.group.key_dim + self.group.value_dim + self.group.rope_dim + self.group.index_dim > 0

    @property
    def is_latent(self) -> bool:
        """Whether an entry is one vector for all heads, which every device holds whole."""
        return self.group.kv_heads == 1 and self.group.value_dim == 0

    @property
    def section(self) -> str:
        """Heading of its equations."""
        each = f", an entry per {self.group.stride} tokens" if self.group.stride > 1 else ""
        return f"KV of {self.group.layers} layers, {_WORDS[self.group.kind]}{each} (one device)"

    def named(self, formula: str) -> str:
        """A formula with this store's symbols: `#` stands for the suffix, which a window's name does not repeat."""
        own = formula.replace("window#", f"window{self.number}").replace("chunk#", f"chunk{self.number}")
        return own.replace("#", self.suffix)

    def evicts(self, single: SingleDesign) -> bool:
        """Whether token eviction thins this store out."""
        return self.group.evictable and single.number("retention") < 1


def stores_of(single: SingleDesign) -> list[Store]:
    """The kinds of layers of a design's model, each with its slice of the cache."""
    groups, cache = single.model.groups, single.step.ledger.cache
    alike, seen = Counter(group.kind for group in groups), Counter[str]()
    stores = []
    for i, group in enumerate(groups):
        seen[group.kind] += 1
        number = str(seen[group.kind]) if alike[group.kind] > 1 else ""
        suffix = f"_{group.kind}{number}" if len(groups) > 1 else ""
        own, entry, full_entry = jax.tree.map(
            lambda leaf, i=i: leaf[i : i + 1], (cache.groups, cache.entry, cache.full_entry)
        )
        stores.append(Store(group, suffix, number, replace(cache, groups=own, entry=entry, full_entry=full_entry)))
    return stores


def declare_stores(sheet: Sheet, single: SingleDesign, source: str) -> None:
    """Every number of the layers as an input."""
    for store in stores_of(single):
        for name, meaning in _MEANINGS.items():
            value = getattr(store.group, name)
            if value is not None:
                sheet.given(store.named(f"{name}#"), value, meaning, source)
        sheet.given(store.named("latent_dim#"), store.group.key_dim, "elements of a latent", source)
        if store.group.chunked and store.group.window is not None:
            sheet.given(store.named("chunk#"), store.group.window, "tokens after which attention restarts", source)


def add_kv(sheet: Sheet, single: SingleDesign) -> None:
    """What every kind of layer keeps, reads and writes, and the sums over the batch."""
    stores, ledger = stores_of(single), single.step.ledger
    for symbol, axis, field in (("bits_K", "key_bits", "key_dim"), ("bits_V", "value_bits", "value_dim")):
        if any(getattr(store.group, field) for store in stores):
            _stored_bits(sheet, single, symbol, axis)
    for store in stores:
        if store.holds_entries:
            _entries(sheet, single, store)
            _bytes(sheet, single, store)
        if store.group.state_bytes:
            state = kv.state_bytes(store.cache.groups, store.cache.devices)
            formula = store.named("layers#*state_bytes#/n")
            sheet.add(store.section, store.named("state#"), formula, state, "B per sequence, read and written whole")
    for symbol, part, result in (
        ("kv_read", "read", ledger.kv_read),
        ("kv_stored", "stored", ledger.kv_stored),
        ("kv_written", "written", ledger.kv_written),
    ):
        terms = [store.named(f"{part}#") for store in stores if store.holds_entries]
        terms += [store.named("state#") for store in stores if store.group.state_bytes]
        sheet.add(_ALL, symbol, f"B*{bracketed(terms)}", result, "B")


def of_one(groups: Any) -> float:
    """The number of a law over groups that was given one."""
    return float(jnp.asarray(groups)[0])


def bracketed(terms: list[str]) -> str:
    """A sum as a factor."""
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _stored_bits(sheet: Sheet, single: SingleDesign, symbol: str, axis: str) -> None:
    form = single.design.kv_format
    overhead = " + (scale_bits + zero_bits)/group_size" if single.number("kv_group_size") > 0 else ""
    outliers = f" + {kv.OUTLIER_BITS:g}*outliers" if single.number("outlier_fraction") > 0 else ""
    formula = f"{axis}{overhead}{outliers}" if single.number(axis) < kv.FULL_BITS else axis
    sheet.add("KV format", symbol, formula, kv.stored_bits(getattr(form, axis), form), "bit")


def _entries(sheet: Sheet, single: SingleDesign, store: Store) -> None:
    """Entries that exist for a step (seen), that it reads (chosen), and that are held at the end."""
    context = evaluated_context(single)
    chosen, seen = store.cache.read_entries(context)
    unit = "entries" if store.group.stride > 1 else "tokens"
    formula = _seen(single, store)
    if formula != "C":
        told = ": on average half a chunk" if _restarted(store, context) else ""
        sheet.add(store.section, store.named("seen#"), formula, of_one(seen), f"{unit} a step may read{told}")
    if store.group.top_k is not None:
        formula = store.named(f"min({_symbol(single, store)}, top_k#)")
        sheet.add(store.section, store.named("chosen#"), formula, of_one(chosen), f"{unit} a step reads")
    formula = _held(single, store)
    if formula != "C_end":
        end = single.design.workload.context + single.design.workload.output_tokens
        groups = store.cache.groups
        held = kv.entries(kv.held_tokens(end, groups.window), store.cache.kept_fraction(end), groups)
        sheet.add(store.section, store.named("held#"), formula, of_one(held), f"{unit} held at the end")


def evaluated_context(single: SingleDesign) -> Any:
    """The context at which a step is evaluated."""
    return single.design.workload.context + single.design.workload.output_tokens / 2


def _restarted(store: Store, context: Any) -> bool:
    return store.group.chunked and store.group.window is not None and float(context) > store.group.window


def _seen(single: SingleDesign, store: Store) -> str:
    if _restarted(store, evaluated_context(single)):
        tokens = "(chunk# + 1)/2"
    elif store.group.window is not None and not store.group.chunked:
        tokens = "min(C, window#)"
    else:
        tokens = "C"
    return _thinned(single, store, tokens, "keep")


def _held(single: SingleDesign, store: Store) -> str:
    window = "chunk#" if store.group.chunked else "window#"
    tokens = "C_end" if store.group.window is None else f"min(C_end, {window})"
    return _thinned(single, store, tokens, "keep_end")


def _thinned(single: SingleDesign, store: Store, tokens: str, keep: str) -> str:
    evicted = f"*{keep}" if store.evicts(single) else ""
    stride = "/stride#" if store.group.stride > 1 else ""
    return store.named(f"{tokens}{evicted}{stride}")


def _symbol(single: SingleDesign, store: Store) -> str:
    """The symbol of the entries a step may read."""
    return "C" if _seen(single, store) == "C" else store.named("seen#")


def _bytes(sheet: Sheet, single: SingleDesign, store: Store) -> None:
    """Bytes of one entry in one layer; of a sequence in all layers of this kind: read, stored, written."""
    windowed, group, cache = single.number("residual_window") > 0, store.group, store.cache

    def add(symbol: str, formula: str, result: Any, unit: str) -> None:
        sheet.add(store.section, store.named(symbol), store.named(formula), result, unit)

    whole = ", whole on every device" if store.is_latent else ""
    add("entry#", _entry(store, "bits_K", "bits_V"), of_one(cache.entry), f"B per entry and layer{whole}")
    if windowed:
        formula = _entry(store, "max(16, bits_K)", "max(16, bits_V)")
        add("full_entry#", formula, of_one(cache.full_entry), "B per entry and layer at 16 bits")
    if group.index_dim:
        unit = "B per entry and layer, read for every entry"
        add("index#", "index_dim#*16/8", of_one(kv.index_bytes(cache.groups)), unit)
    seen = _symbol(single, store)
    chosen = "chosen#" if group.top_k is not None else seen
    held = "C_end" if _held(single, store) == "C_end" else "held#"
    state = kv.state_bytes(cache.groups, cache.devices)
    end = single.design.workload.context + single.design.workload.output_tokens
    read = cache.read(evaluated_context(single)) - state
    add("read#", f"{_times(store)}*{_sequence(windowed, group, chosen, seen)}", read, "B per sequence")
    add("stored#", f"layers#*{_sequence(windowed, group, held, held)}", cache.stored(end) - state, "B per sequence")
    new = ["full_entry#" if windowed else "entry#", *(["index#"] if group.index_dim else [])]
    stride = "/stride#" if group.stride > 1 else ""
    add("written#", f"layers#*{bracketed(new)}{stride}", cache.written() - state, "B per sequence")


def _times(store: Store) -> str:
    return "layers#*readers#" if store.group.readers > 1 else "layers#"


def _entry(store: Store, key_bits: str, value_bits: str) -> str:
    rope = " + rope_dim#*16" if store.group.rope_dim else ""
    if store.is_latent:
        return f"(latent_dim#*{key_bits}{rope})/8"
    value = f" + value_dim#*{value_bits}" if store.group.value_dim else ""
    heads = f"ceil(kv_heads#/n)*(key_dim#*{key_bits}{value})"
    return f"({heads}{rope})/8" if rope else f"{heads}/8"


def _sequence(windowed: bool, group: LayerGroup, entries: str, indexed: str) -> str:
    """Bytes of one layer and sequence."""
    terms = [f"entry#*{entries}"]
    if windowed:
        terms.append(f"(full_entry# - entry#)*min({recent_entries(group)}, {entries})")
    if group.index_dim:
        terms.append(f"index#*{indexed}")
    return bracketed(terms)


def recent_entries(group: LayerGroup) -> str:
    """Entries of the residual window, as a formula."""
    return "residual_window/stride#" if group.stride > 1 else "residual_window"


def add_attention(sheet: Sheet, single: SingleDesign, section: str) -> str:
    """FLOP of one token's attention: each kind of layer, then all; returns the symbol of all."""
    context, terms = evaluated_context(single), []
    for store in stores_of(single):
        chosen, seen = store.cache.read_entries(context)
        result = compute.attention_flop(store.cache.groups, chosen, seen)
        if float(result) > 0:
            symbol = "chosen#" if store.group.top_k is not None else _symbol(single, store)
            own = [f"query_heads#*{_dims(store.group)}*{symbol}"]
            own += [f"index_heads#*index_dim#*{_symbol(single, store)}"] if store.group.index_dim else []
            formula = store.named(f"2*{_times(store)}*{bracketed(own)}")
            sheet.add(section, store.named("attention#"), formula, result, "FLOP per token")
            terms.append(store.named("attention#"))
    if len(terms) > 1:
        total = compute.attention_flop(single.design.model.groups, *single.step.ledger.cache.read_entries(context))
        sheet.add(section, "attention", " + ".join(terms), total, "FLOP per token")
    return terms[0] if len(terms) == 1 else "attention"


def _dims(group: LayerGroup) -> str:
    usual = (group.score_dim, group.mix_dim) == (group.key_dim, group.value_dim)
    return "(key_dim# + value_dim#)" if usual else "(score_dim# + mix_dim#)"
