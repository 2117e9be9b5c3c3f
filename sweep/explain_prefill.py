"""Prefill in an explanation: the work of one prompt, and the time to the first token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp

from kvwall.objectives import collectives, compute, parallel, prefill, tiers, weights
from kvwall.sweep.equation import Sheet, bracketed, largest, over
from kvwall.sweep.explain_collectives import Pass, add_sent
from kvwall.sweep.explain_compute import FORMATS, attention_slot, dims_of, elements_of, split_work
from kvwall.sweep.explain_kv import add_stored, written_of_sequence
from kvwall.sweep.explain_load import names_of, placed_share
from kvwall.sweep.explain_stores import Extent, Store, of_one, stores_of
from kvwall.sweep.explain_tiers import link_times
from kvwall.sweep.explain_weights import add_met, hot_rank, hot_symbol, row_bytes
from kvwall.sweep.reasons import PEAKS, devices_of, missing_figures, placed
from kvwall.sweep.single import SingleDesign


@dataclass(frozen=True)
class Prompt:
    """A prompt: what its symbols start with, the tokens that are computed, and its attention's symbol, if any."""

    tag: str
    section: str
    hit_rate: Any
    tokens: str
    attention: str


_PREFILL: Final = "Prefill of a prompt (one device)"
_ANEW: Final = "Prefill with nothing cached (one device)"


def add_prompt(sheet: Sheet, single: SingleDesign) -> Prompt:
    """The work of a prompt of the design's hit rate, the weights' traffic apart."""
    rate, names = single.design.prefix.hit_rate, names_of(single)
    if single.number("prefix_hit_rate") > 0:
        context = single.design.workload.context
        if not names.arriving:
            formula, unit = "context*(1 - hit_rate)", "tokens of a prompt that prefill computes"
            sheet.add(_PREFILL, "prompt_tokens", formula, context - rate * context, unit)
        sheet.add(_PREFILL, "cached", "context*hit_rate", rate * context, "tokens found cached")
    prompt = Prompt("", _PREFILL, rate, names.prompt, _attention(sheet, single, "", _PREFILL, rate))
    _work(sheet, single, prompt)
    return prompt


def add_prompt_anew(sheet: Sheet, single: SingleDesign) -> Prompt:
    """The work of the same prompt with nothing cached."""
    nothing = single.design.prefix.hit_rate * 0
    prompt = Prompt("anew_", _ANEW, nothing, "context", _attention(sheet, single, "anew_", _ANEW, nothing))
    _work(sheet, single, prompt)
    return prompt


def _attention(sheet: Sheet, single: SingleDesign, tag: str, section: str, rate: Any) -> str:
    """FLOP of a prompt's attention, each kind of layer, then all; returns the symbol of all, if there is any."""
    terms: list[str] = []
    total: Any = 0.0
    context = single.design.workload.context
    for store in stores_of(single):
        groups = store.cache.groups
        (chosen, seen), before = prefill.pairs(groups, context), prefill.pairs(groups, rate * context)
        chosen, seen = chosen - before[0], seen - before[1]
        result = compute.prefill_attention_flop(groups, chosen, seen)
        if float(result) == 0:
            continue
        total = total + result
        pairs, cached = store.named(f"{tag}pairs#"), float(rate * context)
        unit = f"pairs of a token and {'an entry' if store.group.stride > 1 else 'a token'} it reads, causal"
        sheet.add(section, pairs, _pairs(store, float(context), cached, True), of_one(chosen), unit)
        dims = "prefill_dim#" if store.group.prefill_dim else dims_of(store.group)
        own = [f"query_heads#*{dims}*{pairs}"]
        if store.group.index_dim:
            symbol = store.named(f"{tag}indexed#") if store.group.top_k is not None else pairs
            if symbol != pairs:
                formula = _pairs(store, float(context), cached, False)
                sheet.add(section, symbol, formula, of_one(seen), "pairs whose index is read")
            own.append(f"index_heads#*index_dim#*{symbol}")
        symbol = store.named(f"{tag}prompt_attention#")
        sheet.add(section, symbol, store.named(f"2*{store.times}*{bracketed(own)}"), result, "FLOP")
        terms.append(symbol)
    if len(terms) > 1:
        sheet.add(section, f"{tag}prompt_attention", " + ".join(terms), total, "FLOP")
    return f"{tag}prompt_attention" if len(terms) > 1 else "".join(terms)


def _pairs(store: Store, context: float, cached: float, chosen: bool) -> str:
    """Sum over a prompt's new tokens of the entries each reads."""
    now = _seen_by_all(store, "context", context, chosen)
    if cached > 0:
        now = f"{now} - {_bracket(_seen_by_all(store, 'cached', cached, chosen))}"
    return store.named(f"({now}){store.stride}" if store.group.stride > 1 and " " in now else f"{now}{store.stride}")


def _bracket(formula: str) -> str:
    return f"({formula})" if " + " in formula else formula


def _seen_by_all(store: Store, tokens: str, count: float, chosen: bool) -> str:
    """Sum over the tokens of a context of those each attends to."""
    window, group = store.group.window, store.group
    if group.chunked and window is not None and count > window:
        return f"chunk#**2/2 + ({tokens} - chunk#)*(chunk# + 1)/2"
    limits = [] if window is None else [(float(window), store.limit)]
    if chosen and group.top_k is not None:
        limits.append((float(group.top_k * group.stride), f"top_k#{store.stride.replace('/', '*')}"))
    limit, symbol = min(limits, default=(float("inf"), ""))
    return f"{tokens}**2/2" if count <= limit else f"{symbol}*({tokens} - {symbol}/2)"


def _work(sheet: Sheet, single: SingleDesign, prompt: Prompt) -> None:
    """FLOP of a prompt on all devices, and its KV on each that attends to it."""
    cache, layout = single.step.ledger.cache, single.design.parallel
    found = prefill.prompt_of(single.design, cache, prompt.hit_rate)
    attending, stage = parallel.attention_devices(layout), parallel.stage_devices(layout)
    for slot, name in enumerate(FORMATS):
        terms = _flop_terms(single, prompt, slot)
        if terms:
            whole = found.attending[slot] * attending + (found.dense[slot] + found.routed[slot]) * stage
            unit = f"FLOP in {name} bits, all devices together"
            sheet.add(prompt.section, f"{prompt.tag}prompt_{name}", " + ".join(terms), whole, unit)
    terms = [written_of_sequence(single, prompt.tokens)]
    if float(prompt.hit_rate) > 0:
        cached = prompt.hit_rate * single.design.workload.context
        formula = add_stored(
            sheet, single, prompt.section, Extent("cached_", "cached", cached, "cached_keep", alone=True)
        )
        sheet.add(prompt.section, "cached_kv", formula, cache.alone.stored(cached, 0.0), "B of a sequence's cached KV")
        streamed = placed_share(single) if single.inputs["access"] == "streamed" else ""
        terms.append(f"(1 - {streamed})*cached_kv" if streamed else "cached_kv")
    unit = "B of KV written" + (", and read in device memory of what was cached" if len(terms) > 1 else "")
    sheet.add(prompt.section, f"{prompt.tag}prompt_kv", " + ".join(terms), found.kv_bytes, unit)


def _flop_terms(single: SingleDesign, prompt: Prompt, slot: int) -> list[str]:
    gemm = any(each != "HEAD" for each in elements_of(single, slot))
    terms = [f"{prompt.tokens}*gemm_{FORMATS[slot]}"] if gemm else []
    return [*terms, prompt.attention] if prompt.attention and attention_slot(single) == slot else terms


def add_first_token(sheet: Sheet, single: SingleDesign, prompt: Prompt) -> tuple[str, Prompt]:
    """Time to the first token; returns the symbol of prefill with nothing cached, and that prompt."""
    if missing_figures(single, "time_to_first_token"):
        return "", prompt
    metric, placement = single.evaluation.metrics["time_to_first_token"], single.design.placement
    cached = float(prompt.hit_rate) > 0
    away = cached and bool(placed(single))
    symbol = "t_prefill" if away else "time_to_first_token"
    found = prefill.prefill_time(single.design, single.step.ledger.cache, prompt.hit_rate)
    _time(sheet, single, prompt, symbol, found)
    if not cached:
        return symbol, prompt
    anew = add_prompt_anew(sheet, single)
    nothing = prefill.prefill_time(single.design, single.step.ledger.cache, anew.hit_rate)
    _time(sheet, single, anew, "t_anew", nothing)
    if away:
        cached_tokens = prompt.hit_rate * single.design.workload.context
        stored = single.step.ledger.cache.alone.stored(cached_tokens, 0.0)
        load = tiers.slowest_transfer(stored, placement, single.design.hardware)
        sheet.add(_PREFILL, "t_load", largest(link_times(single, "cached_kv")), load, "s")
        formula = f"min({_exposed(single, 't_prefill', 't_load')}, t_anew)"
        sheet.add(_PREFILL, "time_to_first_token", formula, metric, "s, whichever is faster")
    return "t_anew", anew


def _exposed(single: SingleDesign, work: str, transfer: str) -> str:
    if single.number("link_overlap") == 1:
        return f"max({work}, {transfer})"
    return f"max({work}, overlap*{transfer}) + (1 - overlap)*{transfer}"


def _time(sheet: Sheet, single: SingleDesign, prompt: Prompt, symbol: str, result: Any) -> None:
    """Prefill of a prompt alone on the replica, through all stages: its slowest resource."""
    design, tag, section = single.design, prompt.tag, prompt.section
    names, bits = names_of(single), design.precision
    stage = parallel.stage_devices(design.parallel)
    found = prefill.prompt_of(design, single.step.ledger.cache, prompt.hit_rate)
    read = ["dense", *add_met(sheet, single, section, f"{tag}prompt_", prompt.tokens, found.tokens)]
    read += ["head"] if float(design.model.head.elements) > 0 else []
    read += [*row_bytes(single, prompt.tokens), f"{tag}prompt_kv"]
    streamed = weights.layers_streamed(
        design.model, bits.weight_bits, found.tokens, design.workload.expert_skew, design.parallel
    )
    moved = streamed + weights.head_bytes(design.model, bits.weight_bits, stage) + found.kv_bytes
    moved = moved + found.tokens * weights.embedding_row_bytes(design.model, stage)
    unit = "B, all stages together" if names.micro else "B"
    sheet.add(section, f"{tag}prefill_bytes", " + ".join(read), moved, unit)
    longest = [f"{tag}prefill_bytes/memory_bandwidth"]
    for slot, peak in enumerate(PEAKS):
        work = _work_of_device(sheet, single, prompt, slot)
        longest += [f"{work}/{peak}"] if work else []
    if devices_of(single)[1] > 1:
        sent = collectives.sent_in_step(design, found.tokens, found.tokens, 1.0)
        of = Pass(f"{tag}prefill_", prompt.tokens, found.tokens, prompt.tokens, found.tokens, "", jnp.asarray(1.0))
        symbols = add_sent(sheet, single, section, of, sent)
        figures = ("scale_up_bandwidth", "scale_out_bandwidth")
        longest += [f"{size}/{figure}" for size, figure in zip(symbols, figures, strict=True) if size]
    sheet.add(section, symbol, largest(longest), result, "s")


def _work_of_device(sheet: Sheet, single: SingleDesign, prompt: Prompt, slot: int) -> str:
    """FLOP of a prompt and its first token on the busiest device in one format; empty where the format is not used.

    With attention ranks only those of one attend to it, the others take part in the FFN.
    """
    names, tag, name, hot = names_of(single), prompt.tag, FORMATS[slot], hot_symbol(single)
    head = ["2*HEAD"] if "HEAD" in elements_of(single, slot) else []
    terms = _flop_terms(single, prompt, slot)
    if not terms or (names.attending == names.stage and not hot):
        some = [*([f"{tag}prompt_{name}"] if terms else []), *head]
        return over(bracketed(some), names.stage) if some else ""
    found = prefill.prompt_of(single.design, single.step.ledger.cache, prompt.hit_rate)
    own, all_devices = split_work(single, slot, prompt.tokens, prompt.attention)
    parts = [over(bracketed(own), names.attending)] if own else []
    parts += [over(bracketed([*all_devices, *head]), names.stage)] if [*all_devices, *head] else []
    ends = compute.head_flop(
        single.design.model, single.design.precision.weight_bits, single.design.precision.activation_bits,
        1 / parallel.stage_devices(single.design.parallel),
    )  # fmt: skip
    result = found.flop(1.0, 1.0, hot_rank(single))[slot] + ends[slot]
    unit = f"FLOP in {name} bits, a device that attends to it"
    sheet.add(prompt.section, f"{tag}prefill_{name}", " + ".join(parts), result, unit)
    return f"{tag}prefill_{name}"
