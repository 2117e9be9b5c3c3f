"""Traffic between devices in an explanation: every collective of a pass, inside a scale-up domain and across."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp

from kvwall.objectives import collectives, parallel
from kvwall.objectives.kv import BITS_PER_BYTE
from kvwall.sweep.equation import Sheet, bracketed, over, product
from kvwall.sweep.explain_load import Names, names_of, prompt_tokens
from kvwall.sweep.explain_stores import stores_of
from kvwall.sweep.explain_weights import hot_symbol
from kvwall.sweep.reasons import devices_of
from kvwall.sweep.single import SingleDesign

BETWEEN: Final = "Between devices (bytes that one device sends)"
_MESSAGE: Final = "hidden*activation_bits/8"


@dataclass(frozen=True)
class Pass:
    """Tokens that go through the model together, and what their symbols start with."""

    tag: str
    rank_tokens: str
    rank_count: Any
    tokens: str
    count: Any
    share: str
    """Of the layers' collectives, that a step waits for; empty = all."""
    share_value: Any


@dataclass(frozen=True)
class _Part:
    """One kind of collective: its symbol, formula before what the devices make of it, and the same as numbers."""

    symbol: str
    what: str
    formula: str
    size: Any
    """Bytes of all its messages."""
    devices: str
    count: float
    rounds: int
    domain: float

    @property
    def crosses(self) -> bool:
        return self.count > self.domain

    @property
    def sent(self) -> collectives.Sent:
        numbers = (jnp.asarray(each) for each in (self.size, self.count, self.rounds, self.domain))
        return collectives.sent_by_collective(*numbers)

    @property
    def inside(self) -> str:
        near = "scale_up_domain" if self.crosses else self.devices
        return f"{self._rounds}({near} - 1)/{near}*{self.formula}"

    @property
    def across(self) -> str:
        domains = f"ceil({self.devices}/scale_up_domain)"
        return f"{self._rounds}({domains} - 1)/{domains}*{self.formula}/scale_up_domain"

    @property
    def _rounds(self) -> str:
        return f"{self.rounds}*" if self.rounds > 1 else ""


@dataclass(frozen=True)
class _Dispatch(_Part):
    """Between expert ranks, each of which may be several devices: domains join so many whole ranks."""

    split: str
    split_count: int
    visits: tuple[Any, Any]
    """Shares of the tokens that visit a rank, and a domain."""

    @property
    def crosses(self) -> bool:
        return self.count * self.split_count > self.domain

    @property
    def sent(self) -> collectives.Sent:
        size, *numbers = (jnp.asarray(each) for each in (self.size, self.count, self.split_count, self.domain))
        return collectives.sent_to_experts(size, self.visits, *numbers)

    @property
    def inside(self) -> str:
        if not self.crosses:
            return f"{super().inside}*visit"
        near = over("scale_up_domain", self.split)
        near = f"min(EP, max(floor({near}), 1))" if self.split else "min(EP, scale_up_domain)"
        return f"{self._rounds}({near} - 1)/{near}*{self.formula}*visit"

    @property
    def across(self) -> str:
        domains = f"ceil({product('EP', self.split)}/scale_up_domain)"
        return f"{self._rounds}({domains} - 1)/{domains}*{self.formula}*visit_domain/scale_up_domain"


def step_pass(single: SingleDesign) -> Pass:
    """The pass of a step."""
    load, names, layout = single.step.load, names_of(single), single.design.parallel
    share = ""
    if names.micro:
        full = float(load.micro) >= single.number("pipeline_parallel")
        share = "most" if full else "max(most, 1/M)"
    layers = parallel.layers_of_stage(single.design.model.layers, layout.pipeline)
    awaited = parallel.pipelined(layers, 1.0, load.micro, layout.pipeline)
    rank = load.rank_sequences * load.scored + load.prompts_of(load.rank_sequences) * prompt_tokens(single)
    return Pass("", names.rank_tokens, rank, names.tokens, load.tokens, share, awaited)


def add_sent(sheet: Sheet, single: SingleDesign, section: str, of: Pass, sent: collectives.Sent) -> tuple[str, str]:
    """Equations of what a device sends in a pass; returns the symbols of what stays inside and what crosses."""
    parts, names = list(_parts(single, of)), names_of(single)
    stage, replica, domain = devices_of(single)
    handed = f"{of.tokens}*{_MESSAGE}/{names.stage}" if names.stage else f"{of.tokens}*{_MESSAGE}"
    symbols: list[str] = []
    for where, total, symbol, chosen in (
        ("inside", sent.inside, f"{of.tag}scale_up_bytes", parts),
        ("across", sent.across, f"{of.tag}scale_out_bytes", [part for part in parts if part.crosses]),
    ):
        hands = names.micro and (replica > domain) == (where == "across")
        several = len(chosen) + bool(hands) > 1
        terms = []
        for part in chosen:
            formula, each = (
                product(of.share, getattr(part, where)),
                f"{part.symbol}{'' if where == 'inside' else '_out'}",
            )
            if several:
                unit = f"B, {part.what}{'' if where == 'inside' else ', across domains'}"
                sheet.add(section, f"{of.tag}{each}", formula, getattr(part.sent, where) * of.share_value, unit)
            terms.append(f"{of.tag}{each}" if several else formula)
        if hands and several:
            size = of.count * _message(single) / stage
            sheet.add(section, f"{of.tag}handed", handed, size, "B, activations handed to the next stage")
        if hands:
            terms.append(f"{of.tag}handed" if several else handed)
        if terms:
            sheet.add(section, symbol, " + ".join(terms), total, "B")
        symbols.append(symbol if terms else "")
    return symbols[0], symbols[1]


def _message(single: SingleDesign) -> Any:
    return single.design.model.hidden * single.design.precision.activation_bits / BITS_PER_BYTE


def _parts(single: SingleDesign, of: Pass) -> Iterator[_Part]:
    """The collectives that are more than nothing."""
    model, names, layout = single.design.model, names_of(single), single.design.parallel
    domain = float(single.design.hardware.scale_up_domain)
    stage, attending = int(parallel.stage_devices(layout)), int(parallel.attention_devices(layout))
    half, size = model.reduces_per_layer / 2, _message(single)
    spread = single.number("expert_parallel") > 1
    expert_layers = float(model.experts.layers) if spread else 0.0
    dense_layers = float(model.layers) - expert_layers

    def part(symbol: str, what: str, formula: str, amount: Any, devices: str, count: int, rounds: int = 2) -> _Part:
        return _Part(symbol, what, formula, amount, devices, float(count), rounds, domain)

    layers = "(decoder_layers - moe_layers)" if spread else "decoder_layers"
    if attending > 1 and attending == stage and not spread:
        formula = f"decoder_layers*reduces*{of.tokens}*{_MESSAGE}"
        amount = model.layers * 2 * half * of.count * size
        yield part("reduced", "all-reduces of attention and FFN", formula, amount, names.stage, stage)
    else:
        if attending > 1:
            formula = f"decoder_layers*reduces/2*{of.rank_tokens}*{_MESSAGE}"
            amount = model.layers * half * of.rank_count * size
            yield part(
                "reduced_attention",
                "all-reduces of attention, half of a layer's",
                formula,
                amount,
                names.attending,
                attending,
            )
        if stage > 1 and dense_layers > 0:
            formula = f"{layers}*reduces/2*{of.tokens}*{_MESSAGE}"
            amount = dense_layers * half * of.count * size
            what = f"all-reduces of the FFN, {'where no experts are routed' if spread else 'the other half'}"
            yield part("reduced_FFN", what, formula, amount, names.stage, stage)
    if spread:
        yield from _of_experts(single, of, names, part)
    if single.number("context_parallel") > 1:
        formula = f"{of.rank_tokens}*exchanged"
        amount = of.rank_count * collectives.partial_results(single.design)
        ranks = int(single.number("context_parallel"))
        yield part("exchanged_CP", "queries and partial results of attention", formula, amount, "CP", ranks, 1)


def _of_experts(single: SingleDesign, of: Pass, names: Names, part: Callable[..., _Part]) -> Iterator[_Part]:
    model, layout = single.design.model, single.design.parallel
    ranks, split = int(single.number("expert_parallel")), int(parallel.expert_tensor(layout))
    formula = f"moe_layers*reduces/2*{of.tokens}*{_MESSAGE}"
    amount = model.experts.layers * model.reduces_per_layer / 2 * of.count * _message(single)
    visits = collectives.expert_visits(single.design)
    domain = float(single.design.hardware.scale_up_domain)
    what = "dispatch to expert ranks and combine"
    yield _Dispatch(
        "dispatched", what, formula, amount, "EP", float(ranks), 2, domain, names.expert_split, split, visits
    )
    if split > 1:
        visited, formula = amount * visits[0], f"{formula}*visit"
        yield part("reduced_experts", "all-reduces of experts that are split", formula, visited, "split", split)


def add_shares(sheet: Sheet, single: SingleDesign) -> None:
    """What expert ranks and context ranks make of a token's message."""
    if single.number("expert_parallel") > 1:
        hot, (to_rank, to_domain) = hot_symbol(single), collectives.expert_visits(single.design)
        missed = f"min({hot}/EP, 1)" if hot else "1/EP"
        unit = "of the tokens that have an expert on a rank" + (", the busiest" if hot else "")
        sheet.add(BETWEEN, "visit", f"1 - (1 - {missed})**k", to_rank, unit)
        stage, _, domain = devices_of(single)
        if stage > domain:
            places = f"min(EP, ceil({names_of(single).stage}/scale_up_domain))"
            unit = "of the tokens that have an expert in a scale-up domain"
            sheet.add(BETWEEN, "visit_domain", f"1 - (1 - 1/{places})**k", to_domain, unit)
    if single.number("context_parallel") > 1:
        terms = []
        for store in stores_of(single):
            if store.group.score_dim + store.group.mix_dim:
                terms.append(store.named(f"{store.times}*query_heads#*(score_dim# + mix_dim#)"))
        ranks = "TP" if single.number("tensor_parallel") > 1 else ""
        formula = over(bracketed(terms or ["0"]), ranks) + "*activation_bits/8"
        sheet.add(
            BETWEEN,
            "exchanged",
            formula,
            collectives.partial_results(single.design),
            "B per token, queries and partial results",
        )


def add_messages(sheet: Sheet, single: SingleDesign) -> None:
    """Hops of a step that wait for each other."""
    names, spread = names_of(single), single.number("expert_parallel") > 1
    stage, replica, _ = devices_of(single)
    if replica == 1:
        return
    half = "decoder_layers*reduces"
    terms = [f"{half}*({names.attending} - 1)"] if names.attending else []
    if stage > 1:
        layers = "(decoder_layers - moe_layers)" if spread else "decoder_layers"
        terms.append(f"{layers}*reduces*({names.stage} - 1)")
    if spread:
        hops = "EP - 1 + split - 1" if names.expert_split else "EP - 1"
        terms.append(f"moe_layers*reduces*({hops})")
    if single.number("context_parallel") > 1:
        readers = [store.named(store.times) for store in stores_of(single)]
        terms.append(f"{bracketed(readers)}*(CP - 1)")
    terms += ["(PP - 1)"] if names.micro else []
    result = collectives.messages_in_step(single.design)
    sheet.add(BETWEEN, "messages_per_step", " + ".join(terms), result, "hops that wait for each other")
