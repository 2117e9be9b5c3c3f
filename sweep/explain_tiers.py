"""Tiers in an explanation: transfers over their links, and reloading a sequence's KV against computing it again."""

from __future__ import annotations

import math
from typing import Final

from kvwall.objectives import prefill
from kvwall.sweep.equation import Sheet, bracketed, largest, over
from kvwall.sweep.explain_compute import FORMATS, attention_slot, split_work
from kvwall.sweep.explain_kv import add_stored, end_of, stored_of_sequence
from kvwall.sweep.explain_load import names_of, placed_share
from kvwall.sweep.explain_stores import Extent
from kvwall.sweep.explain_weights import hot_symbol
from kvwall.sweep.reasons import PEAKS, missing_figures, null_reason, placed
from kvwall.sweep.single import SingleDesign

RELOAD: Final = "Reloading a sequence's KV against computing it again"


def link_times(single: SingleDesign, moved: str) -> list[str]:
    """Seconds of each placed tier's link for its share of what moves."""
    return [f"{tier}*{moved}/{link_bandwidth(single, tier)}" for tier in placed(single)]


def link_bandwidth(single: SingleDesign, tier: str) -> str:
    """What the devices that share a link leave to each."""
    sharing = getattr(single.hardware, f"{tier}_link_devices")
    shared = sharing is not None and sharing.value > 1
    return f"({tier}_link_bandwidth/{tier}_link_devices)" if shared else f"{tier}_link_bandwidth"


def add_reload(sheet: Sheet, single: SingleDesign, recompute: str, attended: str) -> None:
    """Reload time and the bandwidth and context at which both ways take as long.

    Args:
        sheet: where equations go.
        single: the design.
        recompute: symbol of the time of prefill with nothing cached.
        attended: symbol of the prompt's attention with nothing cached, if there is any.
    """
    if not placed(single) and single.number("prefix_hit_rate") == 0:
        return
    missing = missing_figures(single, "reload_time")
    if missing:
        sheet.notes += [note for note in missing if note not in sheet.notes]
        return
    metrics, cache = single.evaluation.metrics, single.step.ledger.cache
    context = single.design.workload.context
    if single.number("output_tokens") > 0 or float(cache.stored_saving) > 0:
        extent = Extent("loaded_", "context", context, "loaded_keep", alone=True)
        formula = add_stored(sheet, single, RELOAD, extent)
    else:
        formula = stored_of_sequence(single, end_of(single))
    sheet.add(RELOAD, "sequence_kv", formula, cache.alone.stored(context, 0.0), "B of a sequence of `context` tokens")
    tiers = link_times(single, "sequence_kv")
    formula = over(largest(tiers), placed_share(single)) if tiers else f"sequence_kv/{link_bandwidth(single, 'host')}"
    sheet.add(RELOAD, "reload_time", formula, metrics["reload_time"], "s")
    bandwidth = metrics["break_even_bandwidth"]
    unit = "B/s of a device's link, above which reloading is faster"
    sheet.add(RELOAD, "break_even_bandwidth", f"sequence_kv/{recompute}", bandwidth, unit)
    _break_even_context(sheet, single, attended)


def _break_even_context(sheet: Sheet, single: SingleDesign, attended: str) -> None:
    names, found = names_of(single), float(single.evaluation.metrics["break_even_context"])
    linear, quadratic = prefill.compute_parts(single.design, single.step.ledger.cache)
    each = []
    for slot, name in enumerate(FORMATS):
        own, all_devices = split_work(single, slot, "context", "")
        if own or all_devices:
            even = names.attending == names.stage and not hot_symbol(single)
            parts = [over(part[0], by) for part, by in ((own, names.attending), (all_devices, names.stage)) if part]
            work = over(f"context*gemm_{name}", names.stage) if even else bracketed(parts)
            each.append(over(work, PEAKS[slot]))
    sheet.add(RELOAD, "t_matrices", largest(each), linear, "s, grows with the tokens")
    if attended:
        formula = over(attended, names.attending, PEAKS[attention_slot(single)])
        sheet.add(RELOAD, "t_attention", formula, quadratic, "s, grows with their square")
    if not math.isfinite(found):
        sheet.notes.append(f"break_even_context: {null_reason(single, 'break_even_context', found)}")
    elif attended and float(quadratic) > 0:
        formula = "context*max(reload_time - t_matrices, 0)/t_attention"
        sheet.add(RELOAD, "break_even_context", formula, found, "tokens, above which reloading is faster")
    else:
        sheet.notes.append("break_even_context: 0, reloading is always faster")
