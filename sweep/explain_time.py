"""Traffic and times in an explanation: bytes of a step, seconds of each resource of the busiest device, the step."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import dies, parallel
from kvwall.sweep.equation import Sheet, largest, over, product
from kvwall.sweep.explain_collectives import BETWEEN, add_messages, add_sent, add_shares, step_pass
from kvwall.sweep.explain_compute import awaited_flop
from kvwall.sweep.explain_load import Names, at_least_one, awaited, names_of, placed_share
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
    if streamed:
        sheet.add(_TRAFFIC, "tier_bytes", f"{streamed}*kv_read", ledger.tier_read, together)
    if devices_of(single)[1] == 1:
        return "", ""
    add_shares(sheet, single)
    sent = add_sent(sheet, single, BETWEEN, step_pass(single), ledger.sent)
    add_messages(sheet, single)
    return sent


def streamed_share(single: SingleDesign) -> str:
    """The share of the KV that a step reads over links, as a factor; empty where none is."""
    return placed_share(single) if single.inputs["access"] == "streamed" else ""


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
    if streamed_share(single):
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
    more, size = add_busiest_experts(sheet, single, _TIME)
    weights = " + ".join(["weights_read", *([more] if more else [])])
    if more and not most:
        moved = f"(hbm_bytes + {more})"
    elif most:
        moved = f"({weights} + {kv})"
    if names.micro:
        layers = weights.replace("weights_read", "layers_read")
        formula = awaited(single, f"({layers} + {kv})", "ends_read")
        result = _waited(single, ledger.layers_read + size, ledger.ends_read, beside)
        sheet.add(_TIME, "hbm_awaited", formula, result, "B that a step waits for")
        moved = "hbm_awaited"
    sheet.add(_TIME, "t_hbm", f"{moved}/memory_bandwidth", single.step.times.hbm, "s")


def _tier_link(sheet: Sheet, single: SingleDesign, names: Names) -> None:
    """The slowest link of the tiers."""
    kv_read = product("kv_read", _uneven(single, names))
    moved = awaited(single, kv_read)
    if moved != "kv_read":
        result = _waited(single, 0.0, 0.0, single.step.ledger.kv_read * single.step.load.uneven)
        sheet.add(_TIME, "kv_awaited", moved, result, "B of KV that a step waits for, all tiers")
        moved = "kv_awaited"
    sheet.add(_TIME, "t_tier_link", largest(link_times(single, moved)), single.step.times.tier_link, "s")


def _whole(formula: str) -> str:
    """A formula as a numerator."""
    return formula if formula.isidentifier() or formula.startswith("max(") else f"({formula})"


def _step(sheet: Sheet, single: SingleDesign, longest: list[str]) -> None:
    formula = largest(longest)
    if streamed_share(single):
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
