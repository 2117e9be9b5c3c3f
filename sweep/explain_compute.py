"""The arithmetic in an explanation: FLOP of attention and of the weights, by the format that multiplies them."""

from __future__ import annotations

from typing import Final

import jax.numpy as jnp

from kvwall.objectives import compute
from kvwall.objectives.prefill import Prompt, prompt_of
from kvwall.objectives.step import flop_of
from kvwall.spaces.models.layers import LayerGroup
from kvwall.sweep.equation import Sheet, bracketed, over, product
from kvwall.sweep.explain_kv import chosen_symbol, evaluated_context, seen_symbol
from kvwall.sweep.explain_load import Names, awaited, names_of, rank_prompts
from kvwall.sweep.explain_stores import stores_of
from kvwall.sweep.explain_weights import hot_rank, hot_symbol
from kvwall.sweep.single import SingleDesign

_TOKEN: Final = "Arithmetic of a token (all layers)"
_WORK: Final = "Arithmetic of a step (one device)"
FORMATS: Final = ("16", "8", "4")
"""Bits of the slots of `Ledger.flop_by_format`."""
_ATTENTION: Final = ("QO", "PKV")
_DENSE: Final = ("FFN", "ROUTER")
_EXPERTS: Final = "moe_layers*k*EXPERT"
_MULTIPLIED: Final = (*_ATTENTION, *_DENSE, _EXPERTS, "HEAD")
"""In the order of `compute.multiplied_weights`."""


def elements_of(single: SingleDesign, slot: int) -> list[str]:
    """Elements that a token is multiplied by in one format."""
    precision = single.design.precision
    multiplied = compute.multiplied_weights(single.design.model, precision.weight_bits)
    return [
        symbol
        for symbol, (elements, bits) in zip(_MULTIPLIED, multiplied, strict=True)
        if float(compute.split_by_format(elements, bits, precision.activation_bits)[slot]) > 0
    ]


def attention_slot(single: SingleDesign) -> int:
    """The format that multiplies queries with keys."""
    form, bits = single.design.kv_format, single.design.precision.activation_bits
    operand = compute.attention_operand_bits(form.key_bits, form.value_bits)
    return [float(part) for part in compute.split_by_format(jnp.asarray(1.0), operand, bits)].index(1.0)


def add_attention(sheet: Sheet, single: SingleDesign) -> str:
    """FLOP of one token's attention: each kind of layer, then all; returns the symbol of all, if there is any."""
    context, terms = evaluated_context(single), []
    for store in stores_of(single):
        result = compute.attention_flop(store.cache.groups, *store.cache.read_entries(context))
        if float(result) > 0:
            own = [f"query_heads#*{dims_of(store.group)}*{chosen_symbol(single, store)}"]
            own += [f"index_heads#*index_dim#*{seen_symbol(single, store)}"] if store.group.index_dim else []
            formula = store.named(f"2*{store.times}*{bracketed(own)}")
            sheet.add(_TOKEN, store.named("attention#"), formula, result, "FLOP per token")
            terms.append(store.named("attention#"))
    if len(terms) > 1:
        total = compute.attention_flop(single.design.model.groups, *single.step.ledger.cache.read_entries(context))
        sheet.add(_TOKEN, "attention", " + ".join(terms), total, "FLOP per token")
    return attention_symbol(single, "attention")


def attention_symbol(single: SingleDesign, name: str) -> str:
    """The symbol of all layers' attention; empty where no layer attends."""
    terms = []
    for store in stores_of(single):
        if float(compute.attention_flop(store.cache.groups, 1.0, 1.0)) > 0:
            terms.append(store.named(f"{name}#"))
    return name if len(terms) > 1 else "".join(terms)


def dims_of(group: LayerGroup) -> str:
    """Elements of a pair of a query and an entry in a decode step."""
    usual = (group.score_dim, group.mix_dim) == (group.key_dim, group.value_dim)
    return "(key_dim# + value_dim#)" if usual else "(score_dim# + mix_dim#)"


def add_gemm(sheet: Sheet, single: SingleDesign) -> None:
    """FLOP of one token in the decoder layers' matrices, by format."""
    precision, one = single.design.precision, jnp.asarray(1.0)
    arguments = single.design.model, precision.weight_bits, precision.activation_bits
    found = compute.layers_flop(*arguments, (one, one, one))
    for slot, name in enumerate(FORMATS):
        elements = [each for each in elements_of(single, slot) if each != "HEAD"]
        if elements:
            unit = f"FLOP per token in {name} bits, decoder layers"
            sheet.add(_TOKEN, f"gemm_{name}", f"2*{bracketed(elements)}", found[slot], unit)


def prompt_of_step(single: SingleDesign) -> Prompt:
    """The prompt that arrives, of which the hit rate is cached."""
    return prompt_of(single.design, single.step.ledger.cache, single.design.prefix.hit_rate)


def add_arithmetic(sheet: Sheet, single: SingleDesign, attended: str) -> None:
    """FLOP of a step by format: on the mean device, and on the busiest where devices differ."""
    names, load, design = names_of(single), single.step.load, single.design
    hot, share = hot_rank(single), load.active / design.parallel.attention_data
    prompt, cache = prompt_of_step(single), single.step.ledger.cache
    if single.number("draft_tokens") > 0:
        passes = load.scored + design.speculation.draft_tokens / design.model.layers
        unit = "passes of a sequence through the layers, a drafted token's through one"
        sheet.add(_WORK, "passes", "scored + drafts/decoder_layers", passes, unit)
    mean, mean_ends = flop_of(design, load, cache, prompt, share, 1.0)
    busy, _ = flop_of(design, load, cache, prompt, load.rank_sequences, hot)
    for slot, name in enumerate(FORMATS):
        layers, ends = _layers(single, names, slot, attended), _ends(single, names, slot)
        if not layers and not ends:
            continue
        if names.micro and layers and ends:
            sheet.add(_WORK, f"layers_{name}", layers, mean[slot], "FLOP, all stages together")
            sheet.add(_WORK, f"ends_{name}", ends, mean_ends[slot], "FLOP, LM head")
            formula = f"layers_{name} + ends_{name}"
        else:
            formula = _together(single, names, slot, attended) or " + ".join(part for part in (layers, ends) if part)
        sheet.add(_WORK, f"flop_{name}", formula, single.step.ledger.flop_by_format[slot], "FLOP")
        if layers and uneven(single):
            unit = "FLOP of the layers, busiest device"
            sheet.add(_WORK, f"busy_{name}", _busiest(single, names, slot, attended), busy[slot], unit)
            if ends and not names.micro:
                sheet.add(_WORK, f"ends_{name}", ends, mean_ends[slot], "FLOP, LM head")


def uneven(single: SingleDesign) -> bool:
    """Whether sequences or tokens of experts fall unevenly on the devices."""
    load = single.step.load
    return float(load.rank_sequences) != float(load.mean_sequences) or bool(hot_symbol(single))


def awaited_flop(single: SingleDesign, slot: int, attended: str) -> str:
    """The FLOP of a format that a step waits for, as a formula; empty where the format is not used."""
    names, name = names_of(single), FORMATS[slot]
    layers, ends = _layers(single, names, slot, attended), _ends(single, names, slot)
    if not layers and not ends:
        return ""
    busy = layers and uneven(single)
    if names.micro and not layers:
        return f"flop_{name}"  # one stage's, for all micro-batches
    if not names.micro and not busy:
        return f"flop_{name}"
    first = f"busy_{name}" if busy else f"layers_{name}" if ends else f"flop_{name}"
    return awaited(single, first, f"ends_{name}" if ends else "")


def _layers(single: SingleDesign, names: Names, slot: int, attended: str) -> str:
    terms = _of_token(single, slot, attended)
    per_token = over(f"{product(names.active, _passes(single))}*{bracketed(terms)}", names.stage) if terms else ""
    return " + ".join(part for part in (per_token, _prompts(single, names, slot, attended)) if part)


def _ends(single: SingleDesign, names: Names, slot: int) -> str:
    if "HEAD" not in elements_of(single, slot):
        return ""
    scored = "(scored + drafts)" if single.number("draft_tokens") > 0 else ""
    return over(product(names.active, scored, "2*HEAD"), names.stage)


def _together(single: SingleDesign, names: Names, slot: int, attended: str) -> str:
    """Layers and head in one bracket, where each sequence has one token; empty where not."""
    terms = _of_token(single, slot, attended)
    if single.number("draft_tokens") > 0 or "HEAD" not in elements_of(single, slot) or not terms:
        return ""
    formula = over(f"{names.active}*{bracketed([*terms, '2*HEAD'])}", names.stage)
    return " + ".join(part for part in (formula, _prompts(single, names, slot, attended)) if part)


def _of_token(single: SingleDesign, slot: int, attended: str) -> list[str]:
    """FLOP of a token in the layers, in one format."""
    gemm = any(each != "HEAD" for each in elements_of(single, slot))
    terms = [f"gemm_{FORMATS[slot]}"] if gemm else []
    return [*terms, attended] if attended and attention_slot(single) == slot else terms


def _passes(single: SingleDesign) -> str:
    return "passes" if single.number("draft_tokens") > 0 else ""


def _prompts(single: SingleDesign, names: Names, slot: int, attended: str) -> str:
    if not names.arriving or not _of_token(single, slot, attended):
        return ""
    return over(f"{names.arriving}*prompt_{FORMATS[slot]}", names.stage)


def _busiest(single: SingleDesign, names: Names, slot: int, attended: str) -> str:
    """FLOP of the layers on the device with most sequences and the busiest experts, prompts included."""
    found, hot = elements_of(single, slot), hot_symbol(single)
    matrices = [each for each in found if each in _ATTENTION]
    own = [f"2*{bracketed(matrices)}"] if matrices else []
    prompt = [f"{names.prompt}*{own[0]}"] if own else []
    if attended and attention_slot(single) == slot:
        own, prompt = [*own, attended], [*prompt, attention_symbol(single, "prompt_attention")]
    dense = [each for each in found if each in _DENSE]
    dense += [product(hot, _EXPERTS)] if _EXPERTS in found else []
    terms = []
    if own:
        some = [product(names.sequences, _passes(single), bracketed(own))]
        some += [f"{rank_prompts(single)}*{bracketed(prompt)}"] if names.arriving else []
        terms.append(over(bracketed(some), names.attending))
    if dense:
        count = product(names.active, _passes(single))
        tokens = f"({count} + {names.arriving}*{names.prompt})" if names.arriving else count
        terms.append(over(f"{tokens}*2*{bracketed(dense)}", names.stage))
    return " + ".join(terms)


def split_work(single: SingleDesign, slot: int, tokens: str, attention: str) -> tuple[list[str], list[str]]:
    """FLOP of a prompt in one format: (of its attention rank, of all devices), each as terms of a sum."""
    found = elements_of(single, slot)
    matrices = [each for each in found if each in _ATTENTION]
    own = [f"{tokens}*2*{bracketed(matrices)}"] if matrices else []
    own += [attention] if attention and attention_slot(single) == slot else []
    others = [each for each in found if each in _DENSE]
    others += [product(hot_symbol(single), _EXPERTS)] if _EXPERTS in found else []
    return own, [f"{tokens}*2*{bracketed(others)}"] if others else []


def flop_of_step(single: SingleDesign) -> str:
    """All FLOP of the step on a device, as a formula."""
    formats = zip(FORMATS, single.step.ledger.flop_by_format, strict=True)
    return bracketed([f"flop_{name}" for name, work in formats if float(work) > 0])
