"""An engine's memory rules as the laws read them: numbers only, so that an engine can be an axis of a grid.

`engines` fills `EngineColumns` from the catalogue. Laws that hold for some engines only are switched by figures that
are 0 or 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from kvwall.spaces.units import Bits, Bytes, Count, Ratio, Tokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EngineColumns:
    """One engine in one band of versions. Values and sources are in its file, `catalog/engines/<name>.toml`."""

    starts_up: Ratio
    """1: a program that sees the memory its driver reports, profiles its activations and lays blocks out; 0: ideal."""
    utilisation: Ratio
    """Memory fraction where none is asked for."""
    after_load: Ratio
    """1: the fraction is of what weights and activations leave free; 0: weights come out of the fraction."""
    covers_activations: Ratio
    """1: activations and non-torch memory come out of the fraction; 0: they live in what it leaves."""
    covers_graphs: Ratio
    """1: the engine's estimate of CUDA graphs comes out of the fraction; 0: graphs are captured outside it."""
    libraries_first: Ratio
    """1: the fraction is of what is free once non-torch memory is taken; 0: of a device's whole memory."""

    block_size: Tokens
    """Tokens of a block where none is asked for."""
    batched_tokens: Tokens
    """Tokens of the profiling batch (max_num_batched_tokens) on a large device."""
    sequences: Count
    """Sequences it may run at once (max_num_seqs) on a large device."""
    small_batched_tokens: Tokens
    small_sequences: Count
    large_memory: Bytes
    """Memory from which a device counts as large."""
    whole_prompts: Tokens
    """Prompts up to so many tokens are profiled whole, not chunked into `batched_tokens`."""

    logit_bytes: Bytes
    """Live bytes per vocabulary entry and sampled sequence at the sampler's peak, 16-bit model."""
    sampler_hidden: Count
    """Copies of the batch's hidden states live beside them."""
    layer_hidden: Count
    """Copies of the batch's hidden states live at a layer's peak."""
    layer_inner: Count
    """Copies of the widest FFN activation live there: gate and up, and their product."""
    expert_workspaces: Ratio
    """1: buffers of the routed experts persist beside either peak; 0: they are part of a layer's."""
    narrow_inputs: Ratio
    """1: so do the experts' inputs in the 8-bit format of the weights."""
    encoder_bytes: Bytes
    """Beside them for a model that also takes images or audio."""
    activation_bytes: Bytes
    """Constant part: rotary tables, sampling metadata, allocator rounding."""
    non_torch_single: Bytes
    """Non-torch memory of a device alone."""
    non_torch_parallel: Bytes
    """And of one that shares layers with others: communication buffers."""
    small_non_torch_parallel: Bytes
    """The same on devices that do not count as large."""
    graph_bytes: Bytes
    """Constant part of the estimate of CUDA graphs."""
    bytes_per_graph: Bytes

    equal_groups: Ratio
    """1: layers of unlike stores are laid out as groups of equal size with pad layers; 0: each store by itself."""
    group_slack: Ratio
    """Groups take the size of the largest kind where that is less than so many times the smallest."""
    state_alignment: Tokens
    """A block beside recurrent states is raised in steps of so many tokens."""
    window_share: Ratio
    """Tokens a windowed layer is charged per token of a full one; 0: it is charged what it holds."""
    state_share: Ratio
    """Pool of recurrent states per byte of the KV pool that shares the memory with it."""
    sparse_row_bytes: Bytes
    """One entry of sparse MLA at 8 bits, scales and 16-bit rope included; 0: as its bits say."""
    index_scale_bytes: Bytes
    """Scale of an 8-bit sparse index per entry; 0: the index is kept at 16 bits."""
    counts_concurrency: Ratio
    """1: the printed token count is concurrency times max_model_len; 0: blocks by group times the smallest block."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StateColumns:
    """Recurrent states of a model's stores; the leading dimension is the layer group, as in `design.Groups`."""

    elements: Count
    bits: Bits
    """Bits of a state element that the model states; 0: kept in the model's dtype."""
    convolution: Count
    """Elements of one token's inputs to the short convolution."""
    taps: Tokens
    """Tokens whose inputs are kept."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Startup:
    """What an engine is started with."""

    max_model_length: Tokens
    block_size: Tokens
    batched_tokens: Tokens
    """max_num_batched_tokens."""
    sequences: Count
    """max_num_seqs."""
    prefix_caching: Ratio
    """1 or 0."""
    draft_tokens: Count
    """Speculative tokens of a step."""
    draft_layers: Count
    """Layers that a draft adds to the full-attention stores."""
    tensor_parallel: Count
    context_parallel: Count
    """Decode context parallel size: devices that split the tokens of a store."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CacheBits:
    """Bits per stored element, scales included."""

    key: Bits
    value: Bits
    model: Bits
    """Of the model's dtype: 16 or 32."""
