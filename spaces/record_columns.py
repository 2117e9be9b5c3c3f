"""Catalogue records as the numbers that laws read: a model, a chip, a price."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from kvwall.spaces.design import (
    NO_LIMIT,
    Experts,
    Groups,
    HardwareColumns,
    Matrices,
    ModelColumns,
    Sourced,
    Tier,
)
from kvwall.spaces.engine_states import state_columns
from kvwall.spaces.figures import Figure
from kvwall.spaces.hardware import Hardware
from kvwall.spaces.labels import usable_memory
from kvwall.spaces.models.layers import Experts as RoutedExperts
from kvwall.spaces.models.layers import LayerGroup, Model

_SECONDS_PER_HOUR: Final = 3600.0
WRITE_OFF_SECONDS: Final = 4 * 365.25 * 24 * _SECONDS_PER_HOUR
"""Life over which `price_basis = list` spreads the purchase: four years, our assumption, flagged where used."""
_NO_LAYERS: Final = LayerGroup(layers=0, query_heads=1, kv_heads=1, key_dim=0, value_dim=0)
_NO_EXPERTS: Final = RoutedExperts(layers=0, experts=1, active=1, elements_per_expert=0, bits=16, payload_bits=16)


def model_numbers(model: Model, groups: int) -> ModelColumns:
    """A model, padded to so many layer groups."""

    def matrices(name: str) -> Matrices:
        return Matrices(*(np.float64(getattr(model, f"{name}{suffix}")) for suffix in ("", "_bits", "_payload_bits")))

    return ModelColumns(
        hidden=np.float64(model.hidden),
        intermediate=np.float64(model.intermediate),
        vocab=np.float64(model.vocab),
        embedding_row=np.float64(model.embedding_row),
        embedding_table=np.float64(model.embedding + model.layer_embedding),
        embedding_bits=np.float64(model.embedding_bits),
        vectors=np.float64(model.vectors),
        vector_bits=np.float64(model.vector_bits),
        layers=np.float64(model.decoder_layers),
        reduces_per_layer=np.float64(model.reduces_per_layer),
        query_output=matrices("query_output"),
        key_value=matrices("key_value"),
        ffn=matrices("ffn"),
        router=matrices("router"),
        head=matrices("head"),
        experts=_expert_numbers(model.experts or _NO_EXPERTS),
        states=state_columns(model.groups, groups),
        groups=_group_numbers([*model.groups, *[_NO_LAYERS] * (groups - len(model.groups))]),
    )


def _expert_numbers(experts: RoutedExperts) -> Experts:
    numbers = (experts.layers, experts.experts, experts.active, experts.elements_per_expert, experts.bits)
    return Experts(*map(np.float64, (*numbers, experts.payload_bits)))


def _group_numbers(groups: Sequence[LayerGroup]) -> Groups:
    def each(read: Callable[[LayerGroup], float]) -> Any:
        return np.array([read(group) for group in groups], dtype=np.float64)

    def limit(most: int | None) -> float:
        return NO_LIMIT if most is None else float(most)

    return Groups(
        layers=each(lambda group: group.layers),
        query_heads=each(lambda group: group.query_heads),
        kv_heads=each(lambda group: group.kv_heads),
        key_dim=each(lambda group: group.key_dim),
        value_dim=each(lambda group: group.value_dim),
        fixed_dim=each(lambda group: group.rope_dim),
        index_dim=each(lambda group: group.index_dim),
        index_heads=each(lambda group: group.index_heads),
        score_dim=each(lambda group: group.score_dim),
        mix_dim=each(lambda group: group.mix_dim),
        prefill_dim=each(lambda group: group.prefill_dim or group.score_dim + group.mix_dim),
        window=each(lambda group: limit(group.window)),
        chunked=each(lambda group: group.chunked).astype(bool),
        stride=each(lambda group: group.stride),
        top_k=each(lambda group: limit(group.top_k)),
        state_bytes=each(lambda group: group.state_bytes),
        readers=each(lambda group: group.readers),
        evictable=each(lambda group: group.evictable).astype(bool),
    )


def hardware_numbers(chip: Hardware) -> HardwareColumns:
    """A chip."""
    return HardwareColumns(
        memory_capacity=np.float64(chip.memory_capacity.value),
        reported_capacity=np.float64(reported_capacity(chip)),
        memory_bandwidth=np.float64(chip.memory_bandwidth.value),
        bf16_flops=_sourced(chip.bf16_flops),
        fp8_flops=_sourced(chip.fp8_flops or chip.int8_ops),
        fp4_flops=_sourced(chip.fp4_flops),
        scale_up_bandwidth=_sourced(chip.scale_up_bandwidth),
        scale_up_domain=np.float64(chip.scale_up_domain.value if chip.scale_up_domain else NO_LIMIT),
        scale_out_bandwidth=_sourced(chip.scale_out_bandwidth),
        host=_tier(chip, "host"),
        cxl=_tier(chip, "cxl"),
        nvme=_tier(chip, "nvme"),
        remote=_tier(chip, "remote"),
        memory_domains=_sourced(chip.memory_domains or chip.compute_dies),
        memory_energy=_sourced(chip.memory_energy),
        flop_energy=_sourced(chip.flop_energy),
    )


def reported_capacity(chip: Hardware) -> float:
    """Memory that the driver reports; the stated capacity where the user assumes one or no source tells."""
    reported = None if "memory_capacity" in chip.assumed else usable_memory(chip.name)
    return reported if reported is not None else chip.memory_capacity.value


def _tier(chip: Hardware, name: str) -> Tier:
    """A tier as one device sees it: its share of the link, its own part of the capacity."""
    sharing: Figure | None = getattr(chip, f"{name}_link_devices")
    capacity: Figure | None = getattr(chip, f"{name}_capacity")
    return Tier(
        bandwidth=_sourced(getattr(chip, f"{name}_link_bandwidth"), sharing.value if sharing else 1.0),
        capacity=np.float64(capacity.value if capacity else NO_LIMIT),
        energy=_sourced(chip.link_energy if name == "host" else getattr(chip, f"{name}_energy")),
    )


def price_numbers(chip: Hardware, basis: str) -> Sourced:
    """USD per second of one device; a list price is written off over its life, without power or hosting."""
    match basis:
        case "cloud":
            return _sourced(chip.cloud_price, _SECONDS_PER_HOUR)
        case "tco":
            return _sourced(chip.tco_price, _SECONDS_PER_HOUR)
        case _:
            return _sourced(chip.list_price, WRITE_OFF_SECONDS)


def _sourced(figure: Figure | None, divisor: float = 1.0) -> Sourced:
    known = figure is not None and math.isfinite(figure.value)
    value = figure.value / divisor if figure is not None and known else 1.0
    return Sourced(np.float64(value), np.bool_(known))  # type: ignore[arg-type]  # a jax.Array once gathered
