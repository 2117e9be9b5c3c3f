"""What a reader of one design's numbers must know beside them: assumptions, limits passed, borrowed evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import jax

from kvwall.objectives import engine_memory
from kvwall.objectives.transfer import piece_bytes, slowest_link
from kvwall.spaces.axes import NATIVE
from kvwall.spaces.engines import load_engine
from kvwall.spaces.figures import display
from kvwall.spaces.modes import CEILING
from kvwall.spaces.record_columns import WRITE_OFF_SECONDS
from kvwall.spaces.transfer import load_transfer_curve
from kvwall.sweep.estimate_flags import estimate_flags
from kvwall.sweep.quality_flags import quality_flags
from kvwall.sweep.readable import bytes_text
from kvwall.sweep.reasons import placed
from kvwall.sweep.single import SingleDesign
from kvwall.sweep.veto_words import veto_flags

_SECONDS_PER_YEAR: Final = 365.25 * 24 * 3600
_EIGHT_BITS: Final = 8


def flags_of(single: SingleDesign) -> tuple[str, ...]:
    """All flags of a design, each once."""
    found = [
        *single.model.flags,
        *(f"{single.hardware.name}: {flag}" for flag in single.hardware.flags),
        *estimate_flags(single),
        *_assumptions(single),
        *_limits(single),
        *_transfers(single),
        *veto_flags(single),
        *quality_flags(single),
    ]
    return tuple(dict.fromkeys(found))


def _assumptions(single: SingleDesign) -> Iterator[str]:
    chip = single.hardware
    for field in chip.assumed:
        figure = getattr(chip, field)
        why, _, _ = figure.note.partition("; ")
        yield f"assumed: {field} = {display(field, figure.value)} ({why})"
    if single.inputs["price_basis"] == "list" and chip.list_price is not None:
        years = WRITE_OFF_SECONDS / _SECONDS_PER_YEAR
        yield f"list price written off over {years:g} years (assumed), without power and hosting"
    if float(single.step.ledger.flop_by_format[1]) > 0 and chip.fp8_flops is None and chip.int8_ops is not None:
        yield "8-bit arithmetic at the INT8 peak: no source states an FP8 peak"


def _limits(single: SingleDesign) -> Iterator[str]:
    limit = single.model.max_positions
    context, output = int(single.number("context")), int(single.number("output_tokens"))
    if limit is not None and context + output > limit:
        written = f" with {output:,} output tokens" if output else ""
        yield f"context {context:,}{written} exceeds the model's stated {limit:,}"
    for tier in placed(single):
        if getattr(single.hardware, f"{tier}_capacity") is None:
            yield f"{tier} memory capacity is not limited: no source states it; assume {tier}_capacity to limit it"
    if placed(single) and single.inputs["access"] == "parked":
        active, batch = float(single.step.load.active), single.number("batch")
        yield f"parked: {active:.6g} of {batch:.6g} sequences decode, the KV of the others lies in tiers"
    narrow = single.model.weight_payload_bits == _EIGHT_BITS and single.inputs["weight_bits"] == NATIVE
    if narrow and single.number("activation_bits") > _EIGHT_BITS:
        yield "8-bit weights with 16-bit activations: arithmetic at the 16-bit peak; state activation_bits 8 for W8A8"
    if bool(engine_memory.starts_up(single.design)):
        band = load_engine(str(single.inputs["engine"])).name
        yield f"memory of {band}: calibrated on start-up logs, mostly of large NVIDIA devices; docs/engines.md"
    if single.number("draft_tokens") > 0:
        yield "speculation with a draft of one decoder layer and the LM head per drafted token"


def _transfers(single: SingleDesign) -> Iterator[str]:
    """What links to tiers reach beside the datasheet's bandwidth, which times are of."""
    used, link = placed(single), single.hardware.host_link_bandwidth
    if "host" in used and link is not None:
        copies = load_transfer_curve().large_copies(single.hardware.host_link)
        reached = [row.bandwidth for row in copies if row.link_bandwidth == link.value]
        if reached and single.mode == CEILING:
            low, high, stated = (
                display("host_link_bandwidth", one) for one in (min(reached), max(reached), link.value)
            )
            span = f"{low} to {high}" if low != high else low
            yield f"times are at the host link's {stated}; where it was measured, large copies reached {span}"
    pages = float(engine_memory.paging_of(single.design).block_size) > 1
    if used and pages and bool(single.evaluation.sourced["tier_bandwidth"]):
        yield from _small_pages(single, borrowed=used != ["host"])


def _small_pages(single: SingleDesign, borrowed: bool) -> Iterator[str]:
    """Pages so small that a link spends most of its time on what each costs besides its bytes."""
    with jax.enable_x64(True):
        page, link = float(piece_bytes(single.step.ledger.cache, single.design)), float(slowest_link(single.design))
    if page < load_transfer_curve().half_size(link):
        share = 100 * float(single.evaluation.metrics["tier_bandwidth"]) / link
        how = "calibrated on copies over host links" if borrowed else "calibrated"
        yield f"{single.inputs['access']} pages of {bytes_text(page)} reach about {share:.2g} % of the link ({how})"
