"""Memory in an explanation: what sequences reserve, and what is left on the fullest device and in its tiers."""

from __future__ import annotations

from typing import Any, Final

from kvwall.objectives import engine_memory, paging, startup
from kvwall.spaces.engines import load_engine
from kvwall.sweep.boundaries import MIDDLE, HeldPlace, held_places
from kvwall.sweep.equation import Sheet, over, product
from kvwall.sweep.explain_kv import add_stored, end_of, stored_of_sequence
from kvwall.sweep.explain_load import Names, names_of, parked_share, placed_share
from kvwall.sweep.explain_stores import Extent
from kvwall.sweep.explain_weights import stored_layers
from kvwall.sweep.single import SingleDesign

MEMORY: Final = "Memory (fullest device)"


def add_memory(sheet: Sheet, single: SingleDesign) -> None:
    """Activations, reserved KV, and the bytes left in each place that holds KV."""
    names, real = names_of(single), bool(engine_memory.starts_up(single.design))
    formula = f"(2*hidden + {over('max(2*intermediate, vocab)', names.stage)})*activation_bits/8"
    if real:
        declare_engine(sheet, single)
    else:
        sheet.add(MEMORY, "activations", formula, single.step.memory.activations, "B per sequence")
    held = _reserved(sheet, single, names)
    found = explained_places(single)
    if effective_utilisation(single) != 1:
        size = engine_memory.utilisation_of(single.design) * engine_memory.memory_seen(single.design)
        sheet.add(MEMORY, "usable", f"utilisation*{_memory(single)}", size, "B that may be used")
    for place in found:
        if real and place.on_device:
            unit = f"B for KV{_which(names, place)}"
            sheet.add(MEMORY, _pool_symbol(place), _pool(single, names, place), place.place.room, unit)
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
    if bool(engine_memory.starts_up(single.design)):
        return _reserved_in_engine(sheet, single, names)
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
    share, weights = _share_and_weights(single, names, place)
    kv = product(in_hbm, share, held)
    if bool(engine_memory.starts_up(single.design)):
        return f"{_pool_symbol(place)} - {kv}"
    decoding = f"(1 - {parked_share(single)})" if parked_share(single) else ""
    weights = weights.replace(" + ", " - ")
    return f"{size_symbol(single, place)} - {weights} - {kv} - {product(names.resident, decoding, 'activations')}"


def _share_and_weights(single: SingleDesign, names: Names, place: HeldPlace) -> tuple[str, str]:
    """Of a device: its share of the layers as a factor, its weights."""
    if not names.micro:
        return "", "weights_stored"
    even = single.model.decoder_layers % single.number("pipeline_parallel") == 0
    share = "most" if even or place.name == MIDDLE else "fewest"
    end = "" if place.name == MIDDLE else " + ends_stored"
    return share, f"{share}*{stored_layers(single)}{end}"


def _memory(single: SingleDesign) -> str:
    return "memory_seen" if bool(engine_memory.starts_up(single.design)) else "memory_capacity"


def _pool_symbol(place: HeldPlace) -> str:
    return f"{place.name}_pool"


def _pool(single: SingleDesign, names: Names, place: HeldPlace) -> str:
    """What an engine keeps for KV, the fraction read as it means it."""
    engine = single.design.engine
    first, weights = bool(engine.libraries_first), _share_and_weights(single, names, place)[1]
    if bool(engine.after_load):
        formula = f"utilisation*(memory_seen - libraries - ({weights} + profiled))"
    else:
        inside = [weights]
        inside += [] if not bool(engine.covers_activations) else ["profiled"] if first else ["profiled", "libraries"]
        inside += ["graphs"] if bool(engine.covers_graphs) else []
        of_memory = "utilisation*(memory_seen - libraries)" if first else "utilisation*memory_seen"
        formula = " - ".join([of_memory, *inside[1:], *weights.split(" + ")])
    kinds = {group.kind == "recurrent" for group in single.model.groups}
    return f"({formula})/(1 + state_share)" if len(kinds) > 1 and float(engine.state_share) > 0 else formula


def declare_engine(sheet: Sheet, single: SingleDesign) -> None:
    """What the engine's profile makes of this start-up, as inputs: its laws are fitted to logs."""
    design, band = single.design, load_engine(str(single.inputs["engine"]))
    engine, start = design.engine, engine_memory.startup_of(design, engine_memory.longest_of(design))
    length = _reserved_length(single)
    source = f"engine {band.name}, `catalog engines {band.name}`: {band.meaning}"
    seen = engine_memory.memory_seen(design)
    layout = engine_memory.layout_of(design, length)
    profiled = startup.activation_peak(engine, design.model, start, engine_memory.MODEL_BITS)
    for symbol, value, meaning in (
        ("memory_seen", seen, "memory that the driver reports"),
        ("profiled", profiled, "B of activations, profiled"),
        ("libraries", startup.non_torch(engine, design.parallel.tensor, seen), "B of libraries"),
        ("graphs", startup.graph_estimate(engine, start.sequences), "B set aside for CUDA graphs"),
        ("state_share", engine.state_share, "memory of recurrent states over that of tokens"),
        ("block_bytes", layout.block_bytes, "B of a block in the layers it spans"),
        ("request_blocks", layout.request_blocks, "blocks of a request of so many tokens as are reserved"),
    ):
        sheet.given(symbol, value, meaning, source)
    ratio = engine_memory.overhead(design, single.step.ledger.cache, length)
    plain = layout.request_blocks * layout.block_bytes / ratio
    sheet.given("request_plain", plain, "B of its KV without blocks, pad layers and pages of states", source)


def _reserved_length(single: SingleDesign) -> Any:
    """Tokens that a sequence reserves: its own, or the longest at once."""
    end = end_of(single).value
    return paging.longest(single.design.paging, end) if single.inputs["reservation"] == "contiguous" else end


def _reserved_in_engine(sheet: Sheet, single: SingleDesign, names: Names) -> str:
    design, cache, end = single.design, single.step.ledger.cache, end_of(single)
    ratio = engine_memory.overhead(design, cache, _reserved_length(single))
    unit = "B in the engine's blocks over B of KV alone"
    sheet.add(MEMORY, "overhead", "request_blocks*block_bytes/request_plain", ratio, unit)
    longest = paging.longest(design.paging, end.value)
    if single.inputs["reservation"] == "contiguous" and float(longest) != float(end.value):
        formula = add_stored(sheet, single, MEMORY, Extent("reserved_", "max_model_length", longest, "reserved_keep"))
    else:
        formula = stored_of_sequence(single, end)
    sheet.add(MEMORY, "kv_reserved", f"{formula}*overhead", single.step.memory.reserved, "B per sequence")
    return f"{names.resident}*kv_reserved"


def _which(names: Names, place: HeldPlace) -> str:
    if place.on_device:
        stage = "a stage with most layers" if place.name == MIDDLE else "the stage with an end of the model"
        return f", {stage}" if names.micro else ""
    return f", {place.name} memory of one device"


def size_symbol(single: SingleDesign, place: HeldPlace) -> str:
    """The symbol of the bytes of a place that may be used."""
    if not place.on_device:
        return f"{place.name}_capacity"
    return _memory(single) if effective_utilisation(single) == 1 else "usable"


def effective_utilisation(single: SingleDesign) -> float:
    """The share of a device's memory that may be used, stated or the engine's own."""
    return float(engine_memory.utilisation_of(single.design))
