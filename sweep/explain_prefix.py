"""Common prefixes in an explanation: what of them a store holds, and what one copy for a group spares."""

from __future__ import annotations

from typing import Final

from kvwall.objectives import paging, prefix
from kvwall.sweep.equation import Sheet
from kvwall.sweep.explain_load import Names, at_least_one
from kvwall.sweep.explain_stores import Extent, Store
from kvwall.sweep.single import SingleDesign

_PREFIX: Final = "Common prefixes"


def add_savings(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    """What a sequence is spared of a common prefix."""
    if single.number("prefix_share") == 0 or single.number("prefix_group") == 1:
        return
    cache, group, load = single.step.ledger.cache, single.design.prefix.group, single.step.load
    tokens = single.design.prefix.share * single.design.workload.context
    sheet.add(_PREFIX, "prefix", "prefix_share*context", tokens, "tokens of prompts that a group has in common")
    for symbol, saved, sequences, count, unit in (
        ("spared", cache.stored_saving, names.resident, load.resident, "stores"),
        ("spared_read", cache.read_saving, names.sequences, load.rank_sequences, "reads, attention being prefix-aware"),
    ):
        if float(saved) > 0:
            copies = f"min(prefix_group, {at_least_one(sequences, count)})"
            unit = f"of a common prefix that a sequence no longer {unit}: one copy for a group"
            sheet.add(_PREFIX, symbol, f"1 - 1/{copies}", prefix.saving(prefix.copies(group, count)), unit)


def common_entries(single: SingleDesign, store: Store, extent: Extent, window: str) -> str:
    """Entries of a common prefix that a store holds, as a formula."""
    limit = store.group.window
    if store.evicts(single):
        tokens = _kept_of_prefix(single, extent)
    elif limit is not None and float(extent.value) > float(paging.whole_blocks(limit, extent.block)):
        tokens = f"(prefix - ({extent.tokens} - {window}))"
    else:
        tokens = "prefix"
    bracket = " + " in tokens and store.stride
    return store.named(f"({tokens}){store.stride}" if bracket else f"{tokens}{store.stride}")


def _kept_of_prefix(single: SingleDesign, extent: Extent) -> str:
    """What eviction keeps of the prefix, which is the first part of a sequence: sinks first, recent tokens last."""
    sinks, recent = single.number("sink_tokens"), single.number("recent_tokens")
    shared = single.number("prefix_share") * single.number("context")
    if shared > float(extent.value) - recent:
        between = f"min(max(prefix - sinks, 0), max({extent.tokens} - sinks - recent, 0))"
        return f"min(prefix, sinks) + r*{between} + max(prefix - max({extent.tokens} - recent, sinks), 0)"
    return "min(prefix, sinks) + r*max(prefix - sinks, 0)" if sinks else "r*prefix"
