"""The load in an explanation: sequences, tokens and devices, and what its equations call them.

A name is that of the plainest symbol that is right for the design: `B` for the active sequences where none is parked,
nothing for a divisor of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kvwall.objectives import parallel
from kvwall.sweep.equation import Sheet, product
from kvwall.sweep.reasons import placed
from kvwall.sweep.single import SingleDesign

_LOAD: Final = "Sequences and tokens of a step"
_DEVICES: Final = "Devices"
_RANKS: Final = {
    "tensor_parallel": "TP",
    "context_parallel": "CP",
    "attention_data_parallel": "DP",
    "pipeline_parallel": "PP",
}
"""Axes whose product the devices of a replica are."""


@dataclass(frozen=True)
class Names:
    """What equations call the load and the devices of one design; empty = 1."""

    active: str
    """Sequences that decode."""
    resident: str
    """Sequences that the fullest attention rank keeps."""
    sequences: str
    """Those of them that decode."""
    mean: str
    """Those of an attention rank on average."""
    scored: str
    yielded: str
    arriving: str
    """Prompts that arrive per step; empty = none."""
    prompt: str
    """Tokens of a prompt that prefill computes."""
    tokens: str
    """Tokens of a step, all attention ranks."""
    rank_tokens: str
    """Those of the fullest attention rank."""
    pass_tokens: str
    """Those of one pass of a micro-batch."""
    micro: str
    attending: str
    """Devices that attend to a sequence."""
    stage: str
    replica: str
    expert_split: str
    """Devices that split an expert."""


def names_of(single: SingleDesign) -> Names:
    """What the equations of a design call its load and devices."""
    load, ranks = single.step.load, single.number("attention_data_parallel") > 1
    active = "active" if parked_share(single) else "B"
    sequences = "S" if ranks else active
    uneven = float(load.rank_sequences) != float(load.mean_sequences)
    drafted, arrives = single.number("draft_tokens") > 0, float(load.arriving) > 0
    more = drafted or arrives
    tokens = "tokens" if more else active
    micro = "M" if single.number("pipeline_parallel") > 1 else ""
    stage_name = "stage" if micro else "devices"
    attending = _devices(single, ("tensor_parallel", "context_parallel"), "attending")
    stage = _devices(single, ("tensor_parallel", "context_parallel", "attention_data_parallel"), stage_name)
    stage = attending if not ranks else stage
    return Names(
        active=active,
        resident="resident" if ranks else "B",
        sequences=sequences,
        mean=f"{active}/DP" if uneven else sequences,
        scored="scored" if drafted else "",
        yielded="yielded" if drafted else "",
        arriving="arriving" if arrives else "",
        prompt="prompt_tokens" if single.number("prefix_hit_rate") > 0 else "context",
        tokens=tokens,
        rank_tokens=("rank_tokens" if ranks else "tokens") if more else sequences,
        pass_tokens=f"{tokens}/M" if micro else tokens,
        micro=micro,
        attending=attending,
        stage=stage,
        replica=_devices(single, tuple(_RANKS), "devices") if micro else stage,
        expert_split=_expert_split(single, stage),
    )


def parked_share(single: SingleDesign) -> str:
    """The share of the sequences that is parked, as a factor; empty where none is."""
    return placed_share(single) if single.inputs["access"] == "parked" else ""


def placed_share(single: SingleDesign) -> str:
    """The share of the KV that lies in tiers, as a factor; empty where none does."""
    tiers = placed(single)
    return f"({' + '.join(tiers)})" if len(tiers) > 1 else "".join(tiers)


def _devices(single: SingleDesign, axes: tuple[str, ...], symbol: str) -> str:
    used = [_RANKS[axis] for axis in axes if single.number(axis) > 1]
    return symbol if len(used) > 1 else "".join(used)


def _expert_split(single: SingleDesign, stage: str) -> str:
    if single.number("expert_parallel") == 1:
        return stage
    return "split" if float(parallel.expert_tensor(single.design.parallel)) > 1 else ""


def at_least_one(symbol: str, value: Any) -> str:
    """A count of sequences or tokens, of which a law takes one where there are fewer."""
    return symbol if float(value) >= 1 else f"max({symbol}, 1)"


def add_load(sheet: Sheet, single: SingleDesign) -> None:
    """Sequences and tokens of a step, as far as they are not the batch."""
    names, load = names_of(single), single.step.load

    def add(used: object, symbol: str, formula: str, result: Any, unit: str) -> None:
        if used:
            sheet.add(_LOAD, symbol, formula, result, unit)

    parked, ranks = parked_share(single), single.number("attention_data_parallel") > 1
    add(parked, "active", f"B*(1 - {parked})", load.active, "sequences that decode; the tiers hold the others")
    add(ranks, "resident", "ceil(B/DP)", load.resident, "sequences of the fullest attention rank")
    unit = "of them decode" if parked else "of them, all decode"
    add(ranks, "S", f"ceil({names.active}/DP)", load.rank_sequences, unit)
    add(names.scored, "scored", "1 + drafts", load.scored, "tokens per sequence that a step scores")
    formula = _yielded(single.number("acceptance_rate"))
    add(names.yielded, "yielded", formula, load.yielded, "tokens per sequence that come out, expected")
    if names.arriving:
        work = single.design.workload
        if names.prompt != "context":
            tokens = work.context * (1 - single.design.prefix.hit_rate)
            add(True, "prompt_tokens", "context*(1 - hit_rate)", tokens, "tokens of a prompt that prefill computes")
        formula = f"{product(names.active, names.yielded)}/output_tokens"
        add(True, "arriving", formula, load.arriving, "prompts that are prefilled per step")
    _tokens(sheet, single, names)
    floor = at_least_one(names.sequences, load.rank_sequences)
    add(names.micro, "M", f"min(PP, {floor})", load.micro, "micro-batches in flight; each reads the weights again")


def _yielded(rate: float) -> str:
    """The sum of a^i for i = 0..drafts."""
    if 0 < rate < 1:
        return "(1 - accepted**(drafts + 1))/(1 - accepted)"
    return "1 + drafts" if rate > 0 else "1"


def _tokens(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    load = single.step.load
    tokens = prompt_tokens(single)
    for symbol, sequences, count, prompts in (
        ("tokens", names.active, load.active, names.arriving),
        ("rank_tokens", names.sequences, load.rank_sequences, rank_prompts(single)),
    ):
        if symbol in (names.tokens, names.rank_tokens):
            formula = product(sequences, names.scored)
            formula += f" + {prompts}*{names.prompt}" if names.arriving else ""
            unit = "tokens of a step" + (", fullest attention rank" if symbol == "rank_tokens" else "")
            sheet.add(_LOAD, symbol, formula, count * load.scored + load.prompts_of(count) * tokens, unit)


def rank_prompts(single: SingleDesign) -> str:
    """Prompts that the fullest attention rank prefills meanwhile."""
    names, load = names_of(single), single.step.load
    if not names.arriving or names.sequences != "S":
        return names.arriving
    even = float(load.rank_sequences) == float(load.mean_sequences)
    return f"{names.arriving}/DP" if even else f"{names.arriving}*S/{names.active}"


def prompt_tokens(single: SingleDesign) -> Any:
    """Tokens of a prompt that prefill computes."""
    return single.design.workload.context * (1 - single.design.prefix.hit_rate)


def add_devices(sheet: Sheet, single: SingleDesign) -> None:
    """Devices as divisors, as far as they are not one axis; the shares of the layers that stages have."""
    names, layout = names_of(single), single.design.parallel
    for symbol, axes, result, unit in (
        ("attending", ("tensor_parallel", "context_parallel"), parallel.attention_devices(layout),
         "devices that attend to a sequence"),
        ("stage", tuple(_RANKS)[:3], parallel.stage_devices(layout), "devices of a pipeline stage"),
        ("devices", tuple(_RANKS), parallel.replica_devices(layout), "devices of the replica"),
    ):  # fmt: skip
        if symbol in (names.attending, names.stage, names.replica):
            used = [_RANKS[axis] for axis in axes if single.number(axis) > 1]
            sheet.add(_DEVICES, symbol, "*".join(used), result, unit)
    if names.expert_split == "split":
        result = parallel.expert_tensor(layout)
        sheet.add(_DEVICES, "split", f"{names.stage}/EP", result, "devices that split each expert")
    if names.micro:
        _add_stages(sheet, single)


def _add_stages(sheet: Sheet, single: SingleDesign) -> None:
    layers, stages = single.model.decoder_layers, single.number("pipeline_parallel")
    even = layers % stages == 0
    unit = "of the layers, each stage" if even else "of the layers, a stage that has most"
    most = parallel.layers_of_stage(layers, stages)
    sheet.add(_DEVICES, "most", "ceil(decoder_layers/PP)/decoder_layers", most, unit)
    if not even:
        unit = "of the layers, the stage that also has the LM head or the input tables"
        fewest = (layers // stages) / layers
        sheet.add(_DEVICES, "fewest", "floor(decoder_layers/PP)/decoder_layers", fewest, unit)


def worst_stage(single: SingleDesign, layers: str, ends: str = "") -> str:
    """What the most loaded stage has of an amount of all layers, and of what goes with an end of the model."""
    if single.number("pipeline_parallel") == 1:
        return f"{layers} + {ends}" if ends else layers
    if not ends:
        return f"most*{layers}"
    if single.model.decoder_layers % single.number("pipeline_parallel") == 0:
        return f"most*{layers} + {ends}"
    return f"max(most*{layers}, fewest*{layers} + {ends})"


def awaited(single: SingleDesign, layers: str, ends: str = "") -> str:
    """What a step waits for: the worst stage's work, or all stages' for one micro-batch where those are few."""
    worst = worst_stage(single, layers, ends)
    if float(single.step.load.micro) >= single.number("pipeline_parallel"):
        return worst
    whole = f"({layers} + {ends})/M" if ends else f"{layers}/M"
    return f"max({worst}, {whole})"
