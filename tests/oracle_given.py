"""What the oracle is given: a model, a chip, axes; and the counts that all its other parts share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TIERS = ("host", "cxl", "nvme", "remote")
MATRICES = ("query_output", "key_value", "ffn", "head")
"""Classes whose width `weight_bits` sets; routers keep their own."""
AxisValue = float | str | bool | None


@dataclass(frozen=True)
class Store:
    """One kind of KV store, and in how many layers it is found."""

    layers: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    score_dim: int
    mix_dim: int
    prefill_dim: int = 0
    rope_dim: int = 0
    index_dim: int = 0
    index_heads: int = 0
    window: int | None = None
    chunked: bool = False
    stride: int = 1
    top_k: int | None = None
    state_bytes: int = 0
    readers: int = 1
    evictable: bool = True


@dataclass(frozen=True)
class Routed:
    """Routed experts: in `layers` layers `experts` of which a token meets `active`."""

    layers: int
    experts: int
    active: int
    elements: int
    bits: float
    payload_bits: float


@dataclass(frozen=True)
class Given:
    """A model on a hardware at fully resolved axes."""

    model: Mapping[str, Any]
    hardware: Mapping[str, float | None]
    axes: Mapping[str, AxisValue]

    def axis(self, name: str) -> float:
        """A numeric axis."""
        value = self.axes[name]
        if value is None or isinstance(value, str):
            raise TypeError(f"{name} = {value!r} is not a number")
        return float(value)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The model's KV stores."""
        found: tuple[Store, ...] = self.model["stores"]
        return found

    @property
    def routed(self) -> Routed | None:
        """The model's routed experts."""
        found: Routed | None = self.model.get("routed")
        return found

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return int(self.model["layers"])

    # Devices

    @property
    def tensor(self) -> int:
        """Devices that split every layer."""
        return int(self.axis("tensor_parallel"))

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.axis("pipeline_parallel"))

    @property
    def splits(self) -> int:
        """Devices that divide the tokens of every sequence."""
        return int(self.axis("context_parallel"))

    @property
    def ranks(self) -> int:
        """Attention ranks that divide the sequences."""
        return int(self.axis("attention_data_parallel"))

    @property
    def expert_ranks(self) -> int:
        """Ranks that divide the experts."""
        return int(self.axis("expert_parallel"))

    @property
    def rank_devices(self) -> int:
        """Devices of an attention rank in one stage."""
        return self.tensor * self.splits

    @property
    def stage_devices(self) -> int:
        """Devices of one pipeline stage."""
        return self.rank_devices * self.ranks

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return self.stage_devices * self.stages

    # Sequences

    @property
    def placed(self) -> dict[str, float]:
        """Fraction of the KV in each tier that holds any."""
        fractions = {tier: self.axis(f"placement_{tier}") for tier in TIERS}
        return {tier: fraction for tier, fraction in fractions.items() if fraction > 0}

    @property
    def outside(self) -> float:
        """Fraction of the KV that is not in HBM."""
        return sum(self.placed.values())

    @property
    def parked(self) -> bool:
        """Whether tiers hold idle sequences whole."""
        return self.axes["access"] == "parked"

    def decoding(self, batch: float) -> float:
        """Sequences of `batch` that decode: parked ones do not."""
        return batch * (1 - self.outside) if self.parked else batch

    def on_rank(self, sequences: float) -> float:
        """Sequences on the worst attention rank."""
        return sequences if self.ranks == 1 else math.ceil(sequences / self.ranks)

    @property
    def active(self) -> float:
        """Sequences that decode on the replica."""
        return self.decoding(self.axis("batch"))

    @property
    def sequences(self) -> float:
        """Sequences that decode on the worst attention rank."""
        return self.on_rank(self.active)

    @property
    def waves(self) -> float:
        """Micro-batches in flight."""
        return 1.0 if self.stages == 1 else min(self.stages, max(self.sequences, 1.0))

    @property
    def time_context(self) -> float:
        """Tokens in the cache at the evaluated step: the mean over the generation."""
        return self.axis("context") + self.axis("output_tokens") / 2

    def copies(self, sequences: float) -> float:
        """Sequences of so many that share one prefix."""
        return min(max(self.axis("prefix_group"), 1.0), max(sequences, 1.0))

    # Speculation and serving

    @property
    def drafted(self) -> int:
        """Tokens drafted per step."""
        return int(self.axis("draft_tokens"))

    @property
    def verified(self) -> int:
        """Tokens per sequence in a verifying step."""
        return 1 + self.drafted

    @property
    def accepted(self) -> float:
        """Tokens a sequence gains per step."""
        return sum((self.axis("acceptance_rate") ** count for count in range(self.drafted + 1)), 0.0)

    @property
    def arrivals(self) -> float:
        """Requests that start per step and decoding sequence."""
        if self.axes["serving_mode"] != "continuous" or self.axis("output_tokens") < 1:
            return 0.0
        return self.accepted / self.axis("output_tokens")

    @property
    def new_prompt(self) -> float:
        """Prompt tokens of a request that are not found cached."""
        return self.axis("context") * (1 - self.axis("prefix_hit_rate"))

    # Stages

    def fullest(self, body: float, end: float = 0.0) -> float:
        """Of what all layers hold together and what goes with the ends, the part of the worst stage."""
        most, least = math.ceil(self.layers / self.stages), self.layers // self.stages
        return max(body * most / self.layers, body * least / self.layers + end)

    def waited(self, body: float, end: float = 0.0) -> float:
        """The work a step waits for: that of the worst stage, or of the column one wave after another."""
        return max(self.fullest(body, end), (body + end) / self.waves)
