"""The KV of a step in an explanation: what each kind of layer reads and writes, what is stored, and the sums."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import kv, paging, sparse_read
from kvwall.sweep.equation import Sheet, bracketed, over, product
from kvwall.sweep.explain_load import names_of
from kvwall.sweep.explain_prefix import add_savings, common_entries
from kvwall.sweep.explain_stores import Extent, Store, entries_and_states, of_one, stores_of
from kvwall.sweep.single import SingleDesign

_ALL: Final = "KV of all layers (one device)"
_FORMAT: Final = "KV format"


def evaluated_context(single: SingleDesign) -> Any:
    """The context at which a step is evaluated."""
    return single.design.workload.context + single.design.workload.output_tokens / 2


def end_of(single: SingleDesign) -> Extent:
    """The end of the output."""
    end = single.design.workload.context + single.design.workload.output_tokens
    return Extent("", "C_end", end, "keep_end")


def add_keep(sheet: Sheet, single: SingleDesign, section: str, symbol: str, tokens: str, value: Any) -> None:
    """The share of the tokens that eviction keeps, where it does not keep all."""
    if single.number("retention") < 1:
        result = single.step.ledger.cache.kept_fraction(value)
        unit = "of the tokens, where eviction applies"
        sheet.add(section, symbol, f"r + (1 - r)*min(pinned/{tokens}, 1)", result, unit)


def add_kv(sheet: Sheet, single: SingleDesign) -> None:
    """What every kind of layer reads, writes and keeps, and the sums over the sequences of a device."""
    stores, ledger, names = stores_of(single), single.step.ledger, names_of(single)
    for symbol, axis, field in (("bits_K", "key_bits", "key_dim"), ("bits_V", "value_bits", "value_dim")):
        if any(getattr(store.group, field) for store in stores):
            _stored_bits(sheet, single, symbol, axis)
    add_savings(sheet, single, names)
    for store in stores:
        if store.holds_entries:
            _entry_bytes(sheet, single, store)
            _read(sheet, single, store)
            _stored(sheet, single, store, end_of(single))
            _written(sheet, single, store)
        if store.group.state_bytes:
            formula = store.named(over("layers#*state_bytes#", _tensor(single)))
            unit = "B per sequence, read and written whole"
            sheet.add(store.section, store.named("state#"), formula, store.state, unit)
    read = _per_sequence(single, "read", "drafts/decoder_layers")
    sheet.add(_ALL, "kv_read", product(names.mean, read), ledger.kv_read, "B")
    stored, resident = stored_of_sequence(single, end_of(single)), "B"
    if names.resident != "B":
        result = ledger.cache.stored(end_of(single).value, single.design.workload.output_tokens)
        sheet.add(_ALL, "kv_sequence", stored, result, "B per sequence, when the output is complete")
        stored, resident = "kv_sequence", "B/DP"
    sheet.add(_ALL, "kv_stored", product(resident, stored), ledger.kv_stored, "B, when the output is complete")
    written = written_of_sequence(single, names.scored)
    sheet.add(_ALL, "kv_written", product(names.mean, written), ledger.kv_written, "B")


def stored_of_sequence(single: SingleDesign, extent: Extent) -> str:
    """Bytes that a sequence stores, as a factor; its parts are equations already."""
    return _per_sequence(single, f"{extent.tag}stored", "1/decoder_layers")


def add_stored(sheet: Sheet, single: SingleDesign, section: str, extent: Extent) -> str:
    """The equations of what a sequence of so many tokens stores; returns the sum's formula."""
    add_keep(sheet, single, section, extent.keep, extent.tokens, extent.value)
    for store in stores_of(single):
        if store.holds_entries:
            _stored(sheet, single, store, extent, section)
    return stored_of_sequence(single, extent)


def written_of_sequence(single: SingleDesign, tokens: str) -> str:
    """Bytes that so many new tokens of a sequence write, as a factor."""
    return _per_sequence(single, "written", "1/decoder_layers", tokens)


def _per_sequence(single: SingleDesign, part: str, draft: str, tokens: str = "") -> str:
    entries, states = entries_and_states(single, part)
    terms = entries
    if entries:
        drafted = f"(1 + {draft})" if single.number("draft_tokens") > 0 else ""
        factors = [factor for factor in (tokens, drafted) if factor]
        ranks = "CP" if single.number("context_parallel") > 1 else ""
        if factors or ranks:
            terms = [over(product(*factors, bracketed(entries)), ranks)]
    return bracketed([*terms, *states])


def _tensor(single: SingleDesign) -> str:
    return "TP" if single.number("tensor_parallel") > 1 else ""


def _stored_bits(sheet: Sheet, single: SingleDesign, symbol: str, axis: str) -> None:
    form = single.design.kv_format
    overhead = " + (scale_bits + zero_bits)/group_size" if single.number("kv_group_size") > 0 else ""
    outliers = f" + {kv.OUTLIER_BITS:g}*outliers" if single.number("outlier_fraction") > 0 else ""
    formula = f"{axis}{overhead}{outliers}" if single.number(axis) < kv.FULL_BITS else axis
    sheet.add(_FORMAT, symbol, formula, kv.stored_bits(getattr(form, axis), form), "bit")


def _entry_bytes(sheet: Sheet, single: SingleDesign, store: Store) -> None:
    """Bytes of one entry in one layer, and of what is read to choose entries."""
    cache, group = store.cache, store.group

    def add(symbol: str, formula: str, result: Any, unit: str) -> None:
        sheet.add(store.section, store.named(symbol), store.named(formula), of_one(result), unit)

    whole = ", whole on every device" if store.is_latent and _tensor(single) else ""
    add("entry#", _entry(single, store, "bits_K", "bits_V"), cache.entry, f"B per entry and layer{whole}")
    if store.recent(single):
        formula = _entry(single, store, "max(16, bits_K)", "max(16, bits_V)")
        add("full_entry#", formula, cache.full_entry, "B per entry and layer at 16 bits")
    if group.index_dim:
        add("index#", "index_dim#*16/8", kv.index_bytes(cache.groups), "B per entry and layer, read for every entry")
    if store.skips(single):
        heads = kv.device_heads(cache.groups, cache.devices)
        fraction, block = single.design.sparse_read.fraction, single.design.paging.block_size
        result = sparse_read.metadata_bytes(cache.groups, heads, fraction, block)
        dim = "latent_dim#" if store.is_latent else "key_dim#"
        formula = f"{sparse_read.KEYS_PER_PAGE:g}*{product(_heads(single, store), dim)}*16/8"
        formula = over(formula, "block_size" if single.number("block_size") > 1 else "")
        add("pages#", formula, result, "B per entry and layer: smallest and largest key of its page, always read")


def _heads(single: SingleDesign, store: Store) -> str:
    if store.is_latent:
        return ""
    return "ceil(kv_heads#/TP)" if _tensor(single) else "kv_heads#"


def _entry(single: SingleDesign, store: Store, key_bits: str, value_bits: str) -> str:
    rope = " + rope_dim#*16" if store.group.rope_dim else ""
    if store.is_latent:
        return f"(latent_dim#*{key_bits}{rope})/8"
    value = f" + value_dim#*{value_bits}" if store.group.value_dim else ""
    heads = f"{_heads(single, store)}*(key_dim#*{key_bits}{value})"
    return f"({heads}{rope})/8" if rope else f"{heads}/8"


def seen_formula(single: SingleDesign, store: Store) -> str:
    """Entries that a step may read; `C` where they are the tokens of the context."""
    context = evaluated_context(single)
    tokens = "C"
    if store.restarted(context):
        tokens = "(chunk# + 1)/2"
    elif store.limit and not store.group.chunked:
        tokens = "min(C, window#)"
    return store.named(f"{tokens}{'*keep' if store.evicts(single) else ''}{store.stride}")


def seen_symbol(single: SingleDesign, store: Store) -> str:
    """The symbol of the entries that a step may read."""
    return "C" if seen_formula(single, store) == "C" else store.named("seen#")


def chosen_symbol(single: SingleDesign, store: Store) -> str:
    """The symbol of the entries that a step reads."""
    fewer = store.group.top_k is not None or store.skips(single)
    return store.named("chosen#") if fewer else seen_symbol(single, store)


def _read(sheet: Sheet, single: SingleDesign, store: Store) -> None:
    """Entries that a step may read (seen) and that it reads (chosen), and their bytes."""
    context, cache = evaluated_context(single), store.cache
    (chosen, seen), unit = cache.read_entries(context), "entries" if store.group.stride > 1 else "tokens"
    may, reads = seen_symbol(single, store), chosen_symbol(single, store)
    if may != "C":
        told = ": on average half a chunk" if store.restarted(context) else ""
        sheet.add(store.section, may, seen_formula(single, store), of_one(seen), f"{unit} a step may read{told}")
    if reads != may:
        some = product("read_fraction" if store.skips(single) else "", may)
        formula = store.named(f"min({some}, top_k#)") if store.group.top_k is not None else some
        sheet.add(store.section, reads, formula, of_one(chosen), f"{unit} a step reads")
    guides = store.guides(single)
    terms = _sequence(single, store, reads, may)
    total = bracketed(terms)
    own_tokens = single.design.workload.output_tokens / 2
    shared = cache.shared_entries(context, own_tokens)
    if float(cache.read_saving) > 0 and of_one(shared) > 0 and not store.restarted(context):
        formula = common_entries(single, store, Extent("", "C", context, "keep"), store.limit)
        sheet.add(store.section, store.named("shared#"), formula, of_one(shared), f"{unit} of them in a common prefix")
        spared = [f"{bracketed(['entry#', *guides])}*shared#"]
        of_chosen, count = "shared#", of_one(shared)
        if reads != may:
            of_chosen, rho = "shared_chosen#", single.number("read_fraction") if store.skips(single) else 1.0
            limit = cache.groups.top_k * single.design.prefix.share
            count = min(of_one(shared) * rho, of_one(limit))
            formula = product("read_fraction" if rho < 1 else "", "shared#")
            formula = f"min({formula}, prefix_share*top_k#)" if store.group.top_k is not None else formula
            formula = store.named(formula)
            sheet.add(store.section, store.named(of_chosen), formula, count, f"{unit} of these that a step reads")
            spared = [f"entry#*{of_chosen}", *([f"{bracketed(guides)}*shared#"] if guides else [])]
        spared += _recent_too(single, store, of_chosen, count, reads, of_one(chosen))
        total = f"({' + '.join(terms)} - {bracketed(spared)}*spared_read)"
    result = cache.read(context, own_tokens) - store.state
    sheet.add(store.section, store.named("read#"), store.named(f"{store.times}*{total}"), result, "B per sequence")


def _recent_too(single: SingleDesign, store: Store, shared: str, count: float, held: str, of_held: float) -> list[str]:
    """What of a common prefix is in the residual window, and so at 16 bits: a term where there is any."""
    recent = store.recent(single)
    if not recent or count - max(of_held - of_one(store.cache.recent), 0.0) <= 0:
        return []
    return [f"(full_entry# - entry#)*max({shared} - max({held} - {recent}, 0), 0)"]


def _sequence(single: SingleDesign, store: Store, entries: str, guided: str) -> list[str]:
    """Bytes of one layer and sequence, as terms of a sum."""
    terms = [f"entry#*{entries}"]
    if recent := store.recent(single):
        terms.append(f"(full_entry# - entry#)*min({recent}, {entries})")
    if guides := store.guides(single):
        terms.append(f"{bracketed(guides)}*{guided}")
    return terms


def _stored(sheet: Sheet, single: SingleDesign, store: Store, extent: Extent, section: str = "") -> None:
    """Entries that are held (and those of a common prefix), and their bytes."""
    block, section, unit = extent.block, section or store.section, "entries" if store.group.stride > 1 else "tokens"
    cache, tag = paging.paged(store.cache, single.design.paging) if block > 1 else store.cache, extent.tag
    window = store.named(store.limit)
    if window and block > 1:
        rounded = f"{tag}{window}"
        sheet.add(section, rounded, f"ceil({window}/block_size)*block_size", of_one(cache.groups.window), "tokens")
        window = rounded
    tokens = f"min({extent.tokens}, {window})" if window else extent.tokens
    formula = store.named(f"{tokens}{f'*{extent.keep}' if store.evicts(single) else ''}{store.stride}")
    held = extent.tokens if formula == extent.tokens else store.named(f"{tag}held#")
    if held != extent.tokens:
        kept = cache.kept_fraction(extent.value)
        result = kv.entries(kv.held_tokens(extent.value, cache.groups.window), kept, cache.groups)
        sheet.add(section, held, formula, of_one(result), f"{unit} held{'' if tag else ' at the end'}")
    terms = _sequence(single, store, held, held)
    total = bracketed(terms)
    own = extent.value - single.design.workload.context
    shared = cache.shared_entries(extent.value, own)
    if not extent.alone and float(cache.stored_saving) > 0 and of_one(shared) > 0:
        symbol = f"{tag}common#"
        formula = common_entries(single, store, extent, window)
        sheet.add(section, store.named(symbol), formula, of_one(shared), f"{unit} of them in a common prefix")
        spared = [f"{bracketed(['entry#', *store.guides(single)])}*{symbol}"]
        entries_held = of_one(kv.entries(kv.held_tokens(extent.value, cache.groups.window),
                                         cache.kept_fraction(extent.value), cache.groups))  # fmt: skip
        spared += _recent_too(single, store, symbol, of_one(shared), held, entries_held)
        total = f"({' + '.join(terms)} - {bracketed(spared)}*spared)"
    result = (cache.alone if extent.alone else cache).stored(extent.value, own) - store.state
    sheet.add(section, store.named(f"{tag}stored#"), store.named(f"layers#*{total}"), result, "B per sequence")


def _written(sheet: Sheet, single: SingleDesign, store: Store) -> None:
    new = ["full_entry#" if store.recent(single) else "entry#", *store.guides(single)]
    result = store.cache.written(1.0) - store.state
    unit = "B per new token"
    sheet.add(
        store.section, store.named("written#"), store.named(f"layers#*{bracketed(new)}{store.stride}"), result, unit
    )
