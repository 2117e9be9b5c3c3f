"""A thousand random designs over the whole catalogue and every axis, shared by several test files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvwall.spaces.axes import ACCESSES, AXES, DIE_PLACEMENTS, PRICE_BASES, RESERVATIONS, SERVING_MODES, Value
from kvwall.spaces.columns import Catalogue, Columns, load_catalogue
from kvwall.spaces.design import Design
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import loadable_model_names
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS
from kvwall.spaces.space import Space, make_space
from kvwall.spaces.vetoes import VetoRules

POINTS = 1000
SEED = 20260701
FAMILIES = (
    ("read_fraction",),
    ("serving_mode",),
    ("die_placement",),
    ("block_size", "reservation", "max_model_length"),
    ("prefix_share", "prefix_group", "prefix_aware_attention", "prefix_hit_rate"),
    ("placement_host", "placement_cxl", "placement_nvme", "placement_remote", "access", "link_overlap"),
    ("pipeline_parallel", "context_parallel", "attention_data_parallel"),
    ("expert_parallel", "expert_skew"),
    ("draft_tokens", "acceptance_rate"),
)
"""Axes that act together: a design has all of a family neutral, or most of it set."""


@dataclass(frozen=True)
class Designs:
    """Designs drawn from a grid, one per position: `space.values(axis)[positions[axis][i]]` is design i's."""

    space: Space
    catalogue: Catalogue
    positions: Mapping[str, np.ndarray]

    def axes(self, index: int) -> dict[str, Value]:
        """The named values of one design."""
        names = (entry.axis.name for entry in self.space.axes)
        return {name: self.space.values(name)[self._position(name, index)] for name in names}

    def _position(self, axis: str, index: int) -> int:
        return int(self.positions[axis][index]) if axis in self.positions else 0

    def design(self) -> Design:
        """All of them as one Design whose arrays have one dimension."""
        return Columns(self.space, self.catalogue).design(self.positions)


def pool(axis: str, numbers: Sequence[float]) -> list[Value]:
    """The values of an axis as its kind wants them, neutral first, without repeats."""
    kind, neutral = AXES[axis].kind, AXES[axis].neutral
    values = [float(round(number)) if kind == "int" else float(number) for number in numbers]
    first = [] if neutral is None else [neutral]
    return list(dict.fromkeys([*first, *values]))


def number_pools(random: np.random.Generator) -> dict[str, list[Value]]:
    """Round and odd values of every numeric axis, most of each axis's range."""
    bits = [1.0, 1.58, 2.0, 3.0, 4.0, 4.5, 8.0, 12.0, 15.9, *random.uniform(1, 16, 8)]
    numbers: dict[str, Sequence[float]] = {
        "batch": 10 ** random.uniform(0, 4.5, 30),
        "context": [1, 128_000, *10 ** random.uniform(0.5, 7.5, 60)],
        "output_tokens": [1, *10 ** random.uniform(1, 6, 20)],
        "weight_bits": [1.58, 4.0, 4.25, 8.0, 16.0, 32.0, *random.uniform(1, 20, 6)],
        "activation_bits": [4.0, 8.0, *random.uniform(1, 16, 6)],
        "key_bits": bits,
        "value_bits": bits[::-1],
        "kv_group_size": [1, 2, 32, 64, 128],
        "scale_bits": [0.0, 8.0, 32.0, *random.uniform(0, 64, 3)],
        "zero_bits": [0.0, 2.0, 8.0, *random.uniform(0, 64, 3)],
        "residual_window": [1, 32, 128, 4096, 1_000_000],
        "outlier_fraction": [0.001, 0.01, 0.1, 0.6],
        "retention": [0.01, 0.05, 0.5, 0.9, *random.uniform(0.02, 1, 10)],
        "sink_tokens": [1, 4, 64, 1000],
        "recent_tokens": [1, 64, 1024, 32_768],
        "tensor_parallel": [2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 72],
        "utilisation": [0.5, 0.9, *random.uniform(0.1, 1, 4)],
    }
    return {axis: pool(axis, values) for axis, values in (numbers | remedy_numbers(random)).items()}


def remedy_numbers(random: np.random.Generator) -> dict[str, Sequence[float]]:
    """Values of the axes of `FAMILIES`."""
    return {
        "read_fraction": [0.01, 0.25, 0.5, *random.uniform(0.01, 1, 6)],
        "block_size": [7, 16, 64, 128, 1000],
        "max_model_length": [131_072, 1e6, 1e7, 1e8, 2e9],
        "prefix_share": [0.5, 1.0, *random.uniform(0, 1, 8)],
        "prefix_group": [2, 3, 8, 64, 5000],
        "prefix_hit_rate": [0.5, 1.0, *random.uniform(0, 1, 6)],
        "placement_host": [0.5, 1.0, *random.uniform(0, 1, 10)],
        "placement_cxl": [0.25, *random.uniform(0, 0.4, 6)],
        "placement_nvme": [0.25, *random.uniform(0, 0.4, 6)],
        "placement_remote": [0.25, *random.uniform(0, 0.4, 6)],
        "link_overlap": [0.0, 0.5, *random.uniform(0, 1, 6)],
        "pipeline_parallel": [2, 3, 4, 8, 16, 61],
        "context_parallel": [2, 3, 4, 8, 32],
        "attention_data_parallel": [2, 3, 4, 8, 16],
        "expert_parallel": [2, 3, 4, 8, 16],
        "expert_skew": [0.1, 1.0, 100.0, *random.uniform(0, 4, 4)],
        "draft_tokens": [1, 2, 3, 5, 8, 64],
        "acceptance_rate": [0.0, 1.0, *random.uniform(0, 1, 6)],
    }


def assumptions(random: np.random.Generator) -> dict[str, dict[str, str]]:
    """Figures of tiers, scale-out and dies for every other chip, each left out now and then."""
    found = {}
    for chip in hardware_names()[::2]:
        figures = {"scale_out_bandwidth": f"{random.uniform(5, 200):.3f} GB/s"}
        figures["memory_domains"] = str(random.integers(1, 9))
        figures["host_link_bandwidth"] = f"{random.uniform(10, 900):.3f} GB/s"
        for tier in ("cxl", "nvme", "remote"):
            figures[f"{tier}_link_bandwidth"] = f"{random.uniform(5, 200):.3f} GB/s"
            figures[f"{tier}_energy"] = f"{random.uniform(5, 50):.3f} pJ/bit"
        for tier in ("host", "cxl", "nvme", "remote"):
            figures[f"{tier}_link_devices"] = str(random.integers(1, 9))
            figures[f"{tier}_capacity"] = f"{10 ** random.uniform(1, 4.5):.3f} GB"
        found[chip] = {name: quantity for name, quantity in figures.items() if random.random() < 0.95}
    return found


def neutral_choices(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Where each axis is neutral: an axis of a family in about three quarters of the designs, others in a third."""
    drawn = [axis for axis in AXES if axis != "weight_quantizer"]  # no law that an oracle has reads it
    found = {axis: random.random(POINTS) < 0.35 for axis in drawn}
    for family in FAMILIES:
        unused = random.random(POINTS) < 0.65
        found |= {axis: unused | (random.random(POINTS) < 0.4) for axis in family}
    return found


def draw_designs() -> Designs:
    """Random positions on a grid of the whole catalogue."""
    random = np.random.default_rng(SEED)
    names: dict[str, Sequence[Value]] = {
        "model": loadable_model_names(),
        "hardware": hardware_names(),
        "price_basis": PRICE_BASES,
        "quantizer": QUANTIZERS,
        "evictor": EVICTORS,
        "question_visible": [True, False],
        "serving_mode": SERVING_MODES,
        "reservation": RESERVATIONS,
        "prefix_aware_attention": [False, True],
        "access": ACCESSES,
        "die_placement": DIE_PLACEMENTS,
    }
    space = make_space({axis: list(values) for axis, values in (names | number_pools(random)).items()})
    neutral, positions = neutral_choices(random), {}
    for axis, length in zip(space.dims, space.shape, strict=True):
        drawn = random.integers(0, length, POINTS)
        has_neutral = AXES[axis].neutral is not None
        positions[axis] = np.where(neutral[axis] & has_neutral, 0, drawn).astype(np.int32)
    return Designs(space, load_catalogue(space, assumptions(random), vetoes=VetoRules(hard_retrieval=True)), positions)
