"""A Design: every number that the laws read, as frozen records of arrays that broadcast against each other.

Name axes have become numeric columns; no string enters. Each array has one dimension per grid axis (size 1
except along its own), so laws are plain elementwise formulas. Arrays of `Groups` carry a leading layer-group
dimension, those of `QualityParameters` a leading task dimension. Units are SI.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from kvwall.spaces.achieved import Calibrated
from kvwall.spaces.engine_columns import EngineColumns, StateColumns
from kvwall.spaces.quality_columns import QualityParameters
from kvwall.spaces.units import (
    Bits,
    Bytes,
    BytesPerSecond,
    Count,
    Flag,
    Ratio,
    Real,
    Tokens,
)
from kvwall.spaces.veto_columns import VetoColumns

NO_LIMIT = 1e20
"""Stands for a limit that never binds: far above any number of tokens or devices, and its products are finite."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sourced:
    """A catalogue figure that may have no source: `value` is a harmless 1 where `known` is false."""

    value: Real
    known: Flag


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Groups:
    """KV stores of the model; the leading dimension is the group, padded with groups of 0 layers.

    Neutral values make one law serve every layout: a limit of NO_LIMIT never binds, a dimension of 0 adds nothing.
    """

    layers: Count
    query_heads: Count
    kv_heads: Count
    """Heads that tensor parallelism divides: 1 for a latent, 0 where there are none."""
    key_dim: Count
    value_dim: Count
    fixed_dim: Count
    """Elements of an entry that stay at 16 bits and are read with it: the rope part of a latent."""
    index_dim: Count
    """Elements of an entry's sparse index, at 16 bits, read for every entry."""
    index_heads: Count
    score_dim: Count
    mix_dim: Count
    prefill_dim: Count
    """Score and mix elements of a pair of tokens in prefill."""
    window: Tokens
    chunked: Flag
    stride: Tokens
    top_k: Tokens
    state_bytes: Bytes
    readers: Count
    evictable: Flag


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Matrices:
    """One class of weight matrices: elements, stored bits with scales, and the format the multiplier sees."""

    elements: Count
    native_bits: Bits
    native_format_bits: Bits


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Experts:
    """Routed experts: `layers` of them have `routed`, of which a token meets `active`. Dense models have 0 layers."""

    layers: Count
    routed: Count
    active: Count
    elements: Count
    """Of one expert in one layer."""
    native_bits: Bits
    native_format_bits: Bits


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ModelColumns:
    """The model axis."""

    hidden: Count
    intermediate: Count
    vocab: Count
    embedding_row: Count
    """Elements read from the input tables per token."""
    embedding_table: Count
    """Elements of the input tables that are not also the head."""
    embedding_bits: Bits
    vectors: Count
    vector_bits: Bits
    layers: Count
    """Decoder layers."""
    reduces_per_layer: Count
    query_output: Matrices
    key_value: Matrices
    ffn: Matrices
    router: Matrices
    head: Matrices
    experts: Experts
    groups: Groups
    states: StateColumns


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tier:
    """Memory beyond the device's own, as one device sees it."""

    bandwidth: Sourced
    """Of the link, one direction; what the devices that share it leave to each."""
    capacity: Bytes
    """For one device; NO_LIMIT where no source states it."""
    energy: Sourced
    """Per byte moved, in J."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HardwareColumns:
    """The hardware axis; energies per byte and per FLOP in J."""

    memory_capacity: Bytes
    reported_capacity: Bytes
    """What its driver reports; the capacity where no source states it."""
    memory_bandwidth: BytesPerSecond
    bf16_flops: Sourced
    fp8_flops: Sourced
    """Peak of the 8-bit format: FP8, or INT8 where only that has a source."""
    fp4_flops: Sourced
    scale_up_bandwidth: Sourced
    scale_up_domain: Count
    """Devices that the scale-up link joins; a very large number where no source limits it."""
    scale_out_bandwidth: Sourced
    """What joins scale-up domains."""
    host: Tier
    cxl: Tier
    nvme: Tier
    remote: Tier
    memory_domains: Sourced
    """Parts of the memory that each have their own share of the bandwidth: one per die, or per die that holds it."""
    memory_energy: Sourced
    flop_energy: Sourced


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Workload:
    """What is asked of the replica."""

    batch: Count
    context: Tokens
    output_tokens: Tokens
    continuous: Flag
    """Whether prefill of arriving requests runs between the steps."""
    expert_skew: Ratio
    """Squared coefficient of variation of the experts' popularity."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Precision:
    """Formats of weights and activations; `weight_bits` 0 = the checkpoint's own."""

    weight_bits: Bits
    activation_bits: Bits


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KVFormat:
    """Remedy: quantization of the KV cache."""

    key_bits: Bits
    value_bits: Bits
    group_size: Count
    scale_bits: Bits
    zero_bits: Bits
    residual_window: Tokens
    outlier_fraction: Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Eviction:
    """Remedy: token eviction."""

    retention: Ratio
    sink_tokens: Tokens
    recent_tokens: Tokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SparseRead:
    """Remedy: read sparsity. Everything is stored, a share of it read."""

    fraction: Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Paging:
    """Remedy: paging. Memory is reserved by the block, or at once for the longest sequence."""

    block_size: Tokens
    contiguous: Flag
    max_model_length: Tokens
    """0 = what the sequence needs."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix:
    """Remedy: prefix sharing."""

    share: Ratio
    group: Count
    aware: Flag
    """Whether attention reads a common prefix once per group."""
    hit_rate: Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Placement:
    """Remedy: tiering. Fractions of the kept KV; HBM holds the rest."""

    host: Ratio
    cxl: Ratio
    nvme: Ratio
    remote: Ratio
    parked: Flag
    """Whether tiers hold the KV of idle sequences, not a share of every sequence's."""
    link_overlap: Ratio
    pinned: Flag
    """Whether a sequence's KV is on one die of a chip, not striped over all."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Parallel:
    """Devices of the replica: the product of all but `expert`, which divides the same devices another way."""

    tensor: Count
    pipeline: Count
    context: Count
    attention_data: Count
    expert: Count


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Speculation:
    """Remedy: speculative decoding, with a draft of one decoder layer and the LM head."""

    draft_tokens: Count
    acceptance_rate: Ratio


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Design:
    """One design, or a grid of them."""

    model: ModelColumns
    hardware: HardwareColumns
    workload: Workload
    precision: Precision
    kv_format: KVFormat
    eviction: Eviction
    sparse_read: SparseRead
    paging: Paging
    prefix: Prefix
    placement: Placement
    parallel: Parallel
    speculation: Speculation
    engine: EngineColumns
    utilisation: Ratio
    """0 = the engine's own."""
    usd_per_second: Sourced
    """Price of one device."""
    quality: QualityParameters
    veto: VetoColumns
    calibrated: Calibrated | None = None
    """What the engine achieves on the chip, in estimate mode."""
