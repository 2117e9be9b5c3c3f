"""Traffic and times in an explanation: bytes of a step, seconds of each resource of the busiest device, the step."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import dies, parallel, tiers
from kvwall.objectives.load import experts_of_busiest, spread_over_tiers
from kvwall.sweep.equation import Sheet, bracketed, largest, over, product
from kvwall.sweep.explain_collectives import BETWEEN, add_messages, add_sent, add_shares, step_pass
from kvwall.sweep.explain_compute import awaited_flop, prompt_of_step
from kvwall.sweep.explain_load import Names, at_least_one, awaited, names_of, placed_share, rank_prompts
from kvwall.sweep.explain_tiers import link_times
from kvwall.sweep.explain_weights import add_busiest_experts
from kvwall.sweep.reasons import PEAKS, devices_of, missing_figures
from kvwall.sweep.single import SingleDesign

_TRAFFIC: Final = "Traffic of a step (one device)"
_TIME: Final = "Time (the device that takes longest)"


def add_traffic(sheet: Sheet, single: SingleDesign) -> tuple[str, str]:
    """Bytes that move in device memory and over links; returns the symbols of what devices send inside and across."""
    ledger, names, streamed = single.step.ledger, names_of(single), streamed_share(single)
    terms = [f"(1 - {streamed})*kv_read" if streamed else "kv_read", "kv_written"]
    if names.arriving:
        ranks = "DP" if single.number("attention_data_parallel") > 1 else ""
        terms.append(f"{over(names.arriving, ranks)}*prompt_kv")
    if names.micro or _on_busiest(single, names):
        unit = "B, KV that moves in device memory"
        sheet.add(_TRAFFIC, "kv_in_hbm", " + ".join(terms), ledger.kv_in_hbm, unit)
        terms = ["kv_in_hbm"]
    together = "B, all stages together" if names.micro else "B"
    sheet.add(_TRAFFIC, "hbm_bytes", " + ".join(["weights_read", *terms]), ledger.hbm_bytes, together)
    if links_used(single):
        spread = _spread(single, names, "kv_read", names.arriving)
        if spread != "kv_read":
            unit = "B of KV of which each tier moves its fraction"
            sheet.add(_TRAFFIC, "spread", spread, ledger.spread, unit)
        moved = tiers.placed_fraction(single.design.placement) * ledger.spread
        sheet.add(_TRAFFIC, "tier_bytes", f"{placed_share(single)}*{spread_symbol(single)}", moved, together)
    if devices_of(single)[1] == 1:
        return "", ""
    add_shares(sheet, single)
    sent = add_sent(sheet, single, BETWEEN, step_pass(single), ledger.sent)
    add_messages(sheet, single)
    return sent


def streamed_share(single: SingleDesign) -> str:
    """The share of the KV that a step reads over links, as a factor; empty where none is."""
    return placed_share(single) if single.inputs["access"] == "streamed" else ""


def links_used(single: SingleDesign) -> bool:
    """Whether a step moves KV over the links of tiers: streamed reads, or cached parts of arriving prompts."""
    loads = bool(names_of(single).arriving) and single.number("prefix_hit_rate") > 0
    return bool(placed_share(single)) and (loads or single.inputs["access"] == "streamed")


def spread_symbol(single: SingleDesign) -> str:
    """The symbol of the KV of which each tier moves its fraction."""
    loads = names_of(single).arriving and single.number("prefix_hit_rate") > 0
    return "spread" if loads else "kv_read"


def _spread(single: SingleDesign, names: Names, kv_read: str, prompts: str) -> str:
    """KV that lies in tiers by their fractions and moves in a step, of an attention rank with so many prompts."""
    terms = [kv_read] if streamed_share(single) else []
    if names.arriving and single.number("prefix_hit_rate") > 0:
        mean = prompts == names.arriving and single.number("attention_data_parallel") > 1
        terms.append(f"{prompts}{'/DP' if mean else ''}*cached_kv")
    return " + ".join(terms)


def _uneven(single: SingleDesign, names: Names) -> str:
    """What the fullest attention rank has over the mean, as a factor."""
    load = single.step.load
    return f"S*DP/{names.active}" if float(load.rank_sequences) != float(load.mean_sequences) else ""


def _on_die(single: SingleDesign) -> Any:
    count, chip = single.step.load.rank_sequences, single.design.hardware
    return dies.imbalance(count, chip.memory_domains.value, single.design.placement.pinned)


def _on_busiest(single: SingleDesign, names: Names) -> list[str]:
    """Factors of the KV on the device, or the die of one, that has most."""
    pinned = ["on_die"] if single.inputs["die_placement"] == "pinned" else []
    return [factor for factor in (_uneven(single, names), *pinned) if factor]


def _waited(single: SingleDesign, layers: Any, ends: Any, beside: Any) -> Any:
    """What a step waits for, as a number."""
    count, stages = single.design.model.layers, single.design.parallel.pipeline
    worst = parallel.worst_stage(layers, ends, beside, count, stages)
    return parallel.pipelined(worst, layers + ends + beside, single.step.load.micro, stages)


def add_times(sheet: Sheet, single: SingleDesign, attended: str, sent: tuple[str, str]) -> None:
    """Seconds of each resource, the step, and tokens per second."""
    missing = missing_figures(single, "time_per_output_token")
    if missing:
        sheet.notes += missing
        return
    names, times = names_of(single), single.step.times
    _hbm(sheet, single, names)
    flop = [(awaited_flop(single, slot, attended), peak) for slot, peak in enumerate(PEAKS)]
    each = [f"{_whole(work)}/{peak}" for work, peak in flop if work]
    sheet.add(_TIME, "t_compute", largest(each), times.compute, "s")
    longest = ["t_hbm", "t_compute"]
    figures = ("scale_up_bandwidth", "scale_out_bandwidth")
    links = [f"{symbol}/{figure}" for symbol, figure in zip(sent, figures, strict=True) if symbol]
    if links:
        sheet.add(_TIME, "t_scale_up", largest(links), times.scale_up, "s")
        longest.append("t_scale_up")
    if links_used(single):
        _tier_link(sheet, single, names)
    _step(sheet, single, longest)
    _tokens(sheet, single, names)


def _hbm(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    ledger, load, most = single.step.ledger, single.step.load, _on_busiest(single, names)
    moved, kv = "hbm_bytes", "kv_in_hbm"
    beside = ledger.kv_in_hbm
    if "on_die" in most:
        some = at_least_one(names.sequences, load.rank_sequences)
        formula = f"ceil({some}/memory_domains)*memory_domains/{some}"
        unit = "KV of the busiest die over the mean: a sequence's is on one die"
        sheet.add(_TIME, "on_die", formula, _on_die(single), unit)
    if most:
        beside = beside * load.uneven * _on_die(single)
        kv = "kv_busiest"
        sheet.add(_TIME, kv, product("kv_in_hbm", *most), beside, "B, in the time of the part that has most")
    of_layers, of_drafts = add_busiest_experts(sheet, single, _TIME)
    more = [term for term in (of_layers, of_drafts) if term]
    if more and not most:
        moved = bracketed(["hbm_bytes", *more])
    elif most:
        moved = bracketed(["weights_read", *more, kv])
    if names.micro:
        layers, ends = ["layers_read", *([of_layers] if of_layers else []), kv], ["ends_read", of_drafts]
        formula = awaited(single, bracketed(layers), " + ".join(term for term in ends if term))
        size, size_of_drafts = experts_of_busiest(single.design, load)
        result = _waited(single, ledger.layers_read + size, ledger.ends_read + size_of_drafts, beside)
        sheet.add(_TIME, "hbm_awaited", formula, result, "B that a step waits for")
        moved = "hbm_awaited"
    sheet.add(_TIME, "t_hbm", f"{moved}/memory_bandwidth", single.step.times.hbm, "s")


def _tier_link(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    """The slowest link of the tiers."""
    design, step = single.design, single.step
    moved = _spread(single, names, product("kv_read", _uneven(single, names)), rank_prompts(single))
    if names.micro:
        moved = awaited(single, f"({moved})" if " + " in moved else moved)
    if moved not in {"kv_read", "spread"}:
        prompt = prompt_of_step(single)
        spread = spread_over_tiers(design, step.load, prompt, step.ledger.kv_read * step.load.uneven,
                                   step.load.rank_sequences)  # fmt: skip
        result = _waited(single, 0.0, 0.0, spread)
        sheet.add(_TIME, "kv_awaited", moved, result, "B of KV that a step waits for, all tiers")
        moved = "kv_awaited"
    sheet.add(_TIME, "t_tier_link", largest(link_times(single, moved)), single.step.times.tier_link, "s")


def _whole(formula: str) -> str:
    """A formula as a numerator."""
    return f"({formula})" if " + " in formula and not formula.startswith("max(") else formula


def _step(sheet: Sheet, single: SingleDesign, longest: list[str]) -> None:
    formula = largest(longest)
    if links_used(single):
        hidden = single.number("link_overlap")
        formula = largest([*longest, "t_tier_link" if hidden == 1 else "overlap*t_tier_link"])
        formula += "" if hidden == 1 else " + (1 - overlap)*t_tier_link"
    sheet.add(_TIME, "step", formula, single.step.time, "s")


def _tokens(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    metrics = single.evaluation.metrics
    if names.yielded:
        time = metrics["time_per_output_token"]
        sheet.add(_TIME, "time_per_output_token", "step/yielded", time, "s")
    formula = f"{product(names.active, names.yielded)}/step"
    sheet.add(_TIME, "tokens_per_second", formula, metrics["tokens_per_second"], "tok/s")
    if names.replica:
        per_device = metrics["tokens_per_second_per_device"]
        formula = f"tokens_per_second/{names.replica}"
        sheet.add(_TIME, "tokens_per_second_per_device", formula, per_device, "tok/s")
