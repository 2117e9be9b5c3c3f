"""The catalogue in the oracle's words: every random design as the oracle sees it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.figures import Figure
from kvwall.spaces.hardware import Hardware
from kvwall.spaces.models.layers import Experts, LayerGroup, Model
from tests.designs import Designs
from tests.oracle import IGNORED, WORDS, Answer, Given, Routed, Store, given, oracle
from tests.oracle_given import MATRICES, TIERS


def store_of(group: LayerGroup) -> Store:
    """A KV store of the catalogue in the oracle's words."""
    return Store(**{field.name: getattr(group, field.name) for field in fields(Store)})


def routed_of(experts: Experts) -> Routed:
    """Routed experts of the catalogue in the oracle's words."""
    each = experts.elements_per_expert
    return Routed(experts.layers, experts.experts, experts.active, each, experts.bits, experts.payload_bits)


def model_of(model: Model) -> dict[str, Any]:
    """A catalogue model in the oracle's words."""
    sizes = {name: getattr(model, name) for name in ("hidden", "intermediate", "vocab", "reduces_per_layer")}
    multiplied = (*MATRICES, "router")
    classes = (*multiplied, "embedding")
    counts = {name: getattr(model, name) for name in (*classes, "vectors", "layer_embedding")}
    bits = {f"{name}_bits": getattr(model, f"{name}_bits") for name in classes} | {"vectors_bits": model.vector_bits}
    payload = {f"{name}_payload_bits": getattr(model, f"{name}_payload_bits") for name in multiplied}
    # The catalogue's `embedding` leaves out what is also the head, so nothing of it is to be taken off again.
    tables = {"layers": model.decoder_layers, "embedding_rows": model.embedding_row, "tied_embeddings": False}
    numbers = {name: float(number) for name, number in (sizes | counts | bits | payload | tables).items()}
    routed = routed_of(model.experts) if model.experts else None
    return numbers | {
        "name": model.name,
        "stores": tuple(store_of(group) for group in model.groups),
        "routed": routed,
    }


def hardware_of(chip: Hardware, price_basis: Value) -> dict[str, float | None]:
    """A catalogue chip in the oracle's words."""
    names = ("memory_capacity", "memory_bandwidth", "bf16_flops", "fp8_flops", "int8_ops", "fp4_flops",
             "scale_up_bandwidth", "scale_up_domain", "scale_out_bandwidth", "memory_energy", "link_energy",
             "cxl_energy", "nvme_energy", "remote_energy", "flop_energy")  # fmt: skip
    tiers = (f"{tier}_{figure}" for tier in TIERS for figure in ("link_bandwidth", "link_devices", "capacity"))
    price: Figure | None = getattr(chip, f"{price_basis}_price")
    life = 4 * 365.25 * 24 * 3600 if price_basis == "list" else 3600
    figures = {name: getattr(chip, name) for name in (*names, *tiers)}
    figures["memory_domains"] = chip.memory_domains or chip.compute_dies
    found = {name: None if figure is None else float(figure.value) for name, figure in figures.items()}
    return found | {"price": None if price is None else price.value / life}


@dataclass(frozen=True)
class Case:
    """One design as the oracle sees it, and its answer."""

    given: Given
    answer: Answer


def case(designs: Designs, index: int) -> Case:
    """The oracle's account of one design."""
    axes = designs.axes(index)
    model = next(one for one in designs.catalogue.models if one.name == axes["model"])
    chip = next(one for one in designs.catalogue.hardware if one.name == axes["hardware"])
    axes |= {name: meant for name, meant in WORDS.items() if axes[name] == AXES[name].word}
    known = {name: value for name, value in axes.items() if name not in IGNORED}
    known["hard_retrieval"] = designs.catalogue.vetoes.hard_retrieval
    words = model_of(model), hardware_of(chip, axes["price_basis"])
    return Case(given(*words, known), oracle(*words, known))
