"""The kinds of layers in an explanation: what each keeps, its symbols, and its share of a design's cache."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp

from kvwall.objectives import kv
from kvwall.spaces.models.layers import LayerGroup
from kvwall.sweep.equation import Sheet
from kvwall.sweep.single import SingleDesign

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
    "prefill_dim": "elements of a head's score and weighted sum in prefill, where heads are whole",
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
    """Of this kind alone, before context parallelism divides tokens, without a draft's layers."""
    divided: bool
    """Whether context parallelism divides tokens."""

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
        device = "one device, before CP divides the tokens" if self.divided else "one device"
        each = f", an entry per {self.group.stride} tokens" if self.group.stride > 1 else ""
        return f"KV of {self.group.layers} layers, {_WORDS[self.group.kind]}{each} ({device})"

    @property
    def times(self) -> str:
        """Layers that read, as a factor."""
        return "layers#*readers#" if self.group.readers > 1 else "layers#"

    @property
    def stride(self) -> str:
        """What turns tokens into entries."""
        return "/stride#" if self.group.stride > 1 else ""

    @property
    def limit(self) -> str:
        """The symbol of its window; empty where it keeps all tokens."""
        if self.group.window is None:
            return ""
        return "chunk#" if self.group.chunked else "window#"

    def named(self, formula: str) -> str:
        """A formula with this store's symbols: `#` stands for the suffix, which a window's name does not repeat."""
        own = formula.replace("window#", f"window{self.number}").replace("chunk#", f"chunk{self.number}")
        return own.replace("#", self.suffix)

    def evicts(self, single: SingleDesign) -> bool:
        """Whether token eviction thins this store out."""
        return self.group.evictable and single.number("retention") < 1

    def skips(self, single: SingleDesign) -> bool:
        """Whether read sparsity leaves out some of its entries."""
        return self.group.evictable and single.number("read_fraction") < 1

    def restarted(self, context: Any) -> bool:
        """Whether attention is in chunks and the first is full."""
        return self.group.chunked and self.group.window is not None and float(context) > self.group.window

    @property
    def state(self) -> Any:
        """Bytes of its recurrent state of a sequence."""
        return kv.state_bytes(self.cache.groups, self.cache.devices)

    def guides(self, single: SingleDesign) -> list[str]:
        """Symbols of what is read to choose entries: an index, page metadata of read sparsity."""
        return [*(["index#"] if self.group.index_dim else []), *(["pages#"] if self.skips(single) else [])]

    def recent(self, single: SingleDesign) -> str:
        """Entries of the residual window, as a formula; empty where there is none, or it is as the rest."""
        differs = of_one(self.cache.entry) != of_one(self.cache.full_entry)
        return f"residual_window{self.stride}" if differs and single.number("residual_window") > 0 else ""


@dataclass(frozen=True)
class Extent:
    """A number of tokens for which KV is stored: what its symbols start with, its symbol and its number."""

    tag: str
    tokens: str
    value: Any
    keep: str
    """Symbol of the share that eviction keeps."""
    block: float = 1.0
    """Windows are whole blocks of so many tokens."""
    alone: bool = False
    """Whether it is a sequence that has nothing in common with others."""


def stores_of(single: SingleDesign) -> list[Store]:
    """The kinds of layers of a design's model, each with its slice of the cache."""
    groups, cache = single.model.groups, single.step.ledger.cache
    alike, seen = Counter(group.kind for group in groups), Counter[str]()
    stores = []
    for i, group in enumerate(groups):
        seen[group.kind] += 1
        number = str(seen[group.kind]) if alike[group.kind] > 1 else ""
        suffix = f"_{group.kind}{number}" if len(groups) > 1 else ""
        own, entry, full_entry, guide = jax.tree.map(
            lambda leaf, i=i: leaf[i : i + 1], (cache.groups, cache.entry, cache.full_entry, cache.guide)
        )
        one = jnp.asarray(1.0)
        sliced = replace(cache, groups=own, entry=entry, full_entry=full_entry, guide=guide, token_ranks=one)
        own_cache = replace(sliced, draft_layers=one * 0, draft_reads=one * 0)
        stores.append(Store(group, suffix, number, own_cache, single.number("context_parallel") > 1))
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


def of_one(groups: Any) -> float:
    """The number of a law over groups that was given one."""
    return float(jnp.asarray(groups)[0])


def entries_and_states(single: SingleDesign, part: str) -> tuple[list[str], list[str]]:
    """Symbols of all stores' part (`read`, `stored`) and of their states."""
    stores = stores_of(single)
    entries = [store.named(f"{part}#") for store in stores if store.holds_entries]
    return entries, [store.named("state#") for store in stores if store.group.state_bytes]
