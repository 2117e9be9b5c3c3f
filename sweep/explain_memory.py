"""Memory in an explanation: what sequences reserve, and what is left on the fullest device and in its tiers."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import paging
from kvwall.objectives.memory import usable
from kvwall.sweep.boundaries import MIDDLE, HeldPlace, held_places
from kvwall.sweep.equation import Sheet, over, product
from kvwall.sweep.explain_kv import Extent, add_stored, end_of
from kvwall.sweep.explain_load import Names, names_of, placed_share
from kvwall.sweep.explain_weights import stored_layers
from kvwall.sweep.single import SingleDesign

MEMORY: Final = "Memory (fullest device)"


def add_memory(sheet: Sheet, single: SingleDesign) -> None:
    """Activations, reserved KV, and the bytes left in each place that holds KV."""
    names = names_of(single)
    formula = f"(2*hidden + {over('max(2*intermediate, vocab)', names.stage)})*activation_bits/8"
    sheet.add(MEMORY, "activations", formula, single.step.memory.activations, "B per sequence")
    held = _reserved(sheet, single, names)
    found = explained_places(single)
    if effective_utilisation(single) != 1:
        unit = "B that may be used"
        sheet.add(MEMORY, "usable", "utilisation*memory_capacity", usable(single.design), unit)
    for place in found:
        symbol = margin_symbol(place, len(found))
        sheet.add(MEMORY, symbol, _margin(single, names, place, held), place.margin, f"B{_which(names, place)}")
    if len(found) > 1:
        formula = f"min({', '.join(margin_symbol(place, len(found)) for place in found)})"
        sheet.add(MEMORY, "memory_margin", formula, single.step.memory.margin, "B")


def explained_places(single: SingleDesign) -> list[HeldPlace]:
    """The places that hold KV, without a stage that has as many layers as another and less beside them."""
    stages = single.number("pipeline_parallel")
    even = single.model.decoder_layers % stages == 0
    return [place for place in held_places(single) if not (even and place.name == MIDDLE)]


def margin_symbol(place: HeldPlace, count: int) -> str:
    """The symbol of what is left in one of so many places."""
    return "memory_margin" if count == 1 else f"{place.name}_margin"


def _reserved(sheet: Sheet, single: SingleDesign, names: Names) -> str:
    """The KV of a device's sequences, all layers, as a factor; equations where memory reserves more than is stored."""
    end, work = end_of(single), single.design.paging
    contiguous = single.inputs["reservation"] == "contiguous"
    value: Any = paging.longest(work, end.value) if contiguous else paging.whole_blocks(end.value, work.block_size)
    longer = contiguous and float(value) != float(end.value)
    if not longer and (contiguous or single.number("block_size") == 1):
        return f"{names.resident}*kv_sequence" if names.resident != "B" else "kv_stored"
    if contiguous:
        tokens, block = "max_model_length", 1.0
    else:
        tokens, block = "C_reserved", single.number("block_size")
        sheet.add(MEMORY, tokens, "ceil(C_end/block_size)*block_size", value, "tokens of whole blocks")
    formula = add_stored(sheet, single, MEMORY, Extent("reserved_", tokens, value, "reserved_keep", block))
    unit = "B per sequence, whole blocks" if not contiguous else "B per sequence, the longest at once"
    sheet.add(MEMORY, "kv_reserved", formula, single.step.memory.reserved, unit)
    return f"{names.resident}*kv_reserved"


def _margin(single: SingleDesign, names: Names, place: HeldPlace, held: str) -> str:
    if not place.on_device:
        share = "most" if names.micro else ""
        return f"{size_symbol(single, place)} - {product(place.name, share, held)}"
    tiers = placed_share(single)
    in_hbm = f"(1 - {tiers})" if tiers else ""
    share, weights = "", "weights_stored"
    if names.micro:
        even = single.model.decoder_layers % single.number("pipeline_parallel") == 0
        share = "most" if even or place.name == MIDDLE else "fewest"
        end = "" if place.name == MIDDLE else " - ends_stored"
        weights = f"{share}*{stored_layers(single)}{end}"
    beside = f"{names.sequences}*activations"
    return f"{size_symbol(single, place)} - {weights} - {product(in_hbm, share, held)} - {beside}"


def _which(names: Names, place: HeldPlace) -> str:
    if place.on_device:
        stage = "a stage with most layers" if place.name == MIDDLE else "the stage with an end of the model"
        return f", {stage}" if names.micro else ""
    return f", {place.name} memory of one device"


def size_symbol(single: SingleDesign, place: HeldPlace) -> str:
    """The symbol of the bytes of a place that may be used."""
    if not place.on_device:
        return f"{place.name}_capacity"
    return "memory_capacity" if effective_utilisation(single) == 1 else "usable"


def effective_utilisation(single: SingleDesign) -> float:
    """The share of a device's memory that may be used, stated or the engine's own."""
    return float(usable(single.design) / single.design.hardware.memory_capacity)
