"""What an engine finds beside weights when it starts: the peak of its profiling run, communication, CUDA graphs."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.kv import BITS_PER_BYTE
from kvwall.spaces.design import ModelColumns
from kvwall.spaces.engine_columns import EngineColumns, Startup
from kvwall.spaces.units import Bits, Bytes, Count, Tokens

_HALF_WIDTH_BITS = 16.0
_EIGHT_BITS = 8.0
_PAD_ELEMENTS = 128.0
_PAD_STRIDE_ELEMENTS = 256.0
_MATRICES_OF_AN_EXPERT = 3.0
_LARGEST_GRAPH = 512.0


def default_batched_tokens(engine: EngineColumns, memory: Bytes) -> Tokens:
    """Tokens that the engine batches where nobody says: more on a large device."""
    return jnp.where(memory >= engine.large_memory, engine.batched_tokens, engine.small_batched_tokens)


def default_sequences(engine: EngineColumns, memory: Bytes) -> Count:
    """Sequences that the engine runs at once where nobody says: more on a large device."""
    return jnp.where(memory >= engine.large_memory, engine.sequences, engine.small_sequences)


def profiled_tokens(engine: EngineColumns, start: Startup) -> Tokens:
    """Tokens of the batch that the engine profiles: its scheduler's, or a whole prompt where prefill is not chunked."""
    whole = start.max_model_length <= engine.whole_prompts
    return jnp.where(whole, start.max_model_length, start.batched_tokens)


def sampler_peak(engine: EngineColumns, model: ModelColumns, tokens: Tokens, sequences: Count, bits: Bits) -> Bytes:
    """Bytes live while `sequences` tokens are sampled: logits as computed and as sorted or drawn, not split by devices.

    `logit_bytes` at 16 bits has the logits in the model's dtype once; a wider one adds the difference.
    """
    each = engine.logit_bytes + jnp.maximum(bits - _HALF_WIDTH_BITS, 0.0) / BITS_PER_BYTE
    return each * sequences * model.vocab + engine.sampler_hidden * tokens * model.hidden * bits / BITS_PER_BYTE


def layer_peak(engine: EngineColumns, model: ModelColumns, tokens: Tokens, devices: Count, bits: Bits) -> Bytes:
    """Bytes live inside a layer: hidden states, gate and up projections and their product."""
    elements = engine.layer_hidden * model.hidden + engine.layer_inner * model.intermediate / devices
    return tokens * elements * bits / BITS_PER_BYTE


def expert_workspace(engine: EngineColumns, model: ModelColumns, tokens: Tokens, devices: Count, bits: Bits) -> Bytes:
    """Bytes of the buffers that routed experts keep: inputs or outputs of every token's experts, and their products.

    8-bit weights take their inputs in 8 bits: these are one more copy.
    """
    experts = model.experts
    inner = experts.elements / (_MATRICES_OF_AN_EXPERT * model.hidden) / devices
    elements = experts.active * (jnp.maximum(2 * inner, model.hidden) + inner)
    narrow = engine.narrow_inputs * (experts.native_format_bits == _EIGHT_BITS)
    bytes_of_token = elements * bits / BITS_PER_BYTE + narrow * experts.active * model.hidden
    return jnp.where(experts.layers > 0, engine.expert_workspaces * tokens * bytes_of_token, 0.0)


def activation_peak(engine: EngineColumns, model: ModelColumns, start: Startup, bits: Bits) -> Bytes:
    """Peak of the profiling run: the larger of a layer's and the sampler's, and what persists beside both.

    Source: fitted to start-up logs; figures and their rows in `catalog/engines`.
    """
    tokens = profiled_tokens(engine, start)
    sampling = sampler_peak(engine, model, tokens, jnp.minimum(start.sequences, tokens), bits)
    layer = layer_peak(engine, model, tokens, start.tensor_parallel, bits)
    workspace = expert_workspace(engine, model, tokens, start.tensor_parallel, bits)
    return jnp.maximum(sampling, layer) + workspace + engine.activation_bytes


def padded_expert_copy(model: ModelColumns, devices: Count) -> Bytes:
    """Bytes that ROCm holds beside 16-bit experts whose down projections are padded: each is kept with its padded copy.

    Rows of a multiple of 512 bytes are padded by 128 elements.
    Source: start-up logs of vLLM 0.13 to 0.18 on MI300X, one model; two others, not padded, have no such copy.
    """
    experts = model.experts
    inner = experts.elements / (_MATRICES_OF_AN_EXPERT * model.hidden) / devices
    pads = jnp.logical_and(experts.native_format_bits >= _HALF_WIDTH_BITS, inner % _PAD_STRIDE_ELEMENTS == 0)
    copies = experts.layers * experts.routed * model.hidden * (inner + _PAD_ELEMENTS)
    return jnp.where(pads, copies * experts.native_bits / BITS_PER_BYTE, 0.0)


def non_torch(engine: EngineColumns, devices: Count, memory: Bytes) -> Bytes:
    """Memory of libraries on a device: more where layers are split, most between large ones with fast links."""
    split = jnp.where(memory >= engine.large_memory, engine.non_torch_parallel, engine.small_non_torch_parallel)
    return jnp.where(devices > 1, split, engine.non_torch_single)


def captured_graphs(sequences: Count) -> Count:
    """Batch sizes with a CUDA graph: 1, 2, 4, every 8th to 256, every 16th to 512, up to twice the sequences.

    >>> [float(captured_graphs(n)) for n in (2.0, 4.0, 128.0, 1024.0)]
    [3.0, 4.0, 35.0, 51.0]
    """
    largest = jnp.minimum(2 * sequences, _LARGEST_GRAPH)
    small = jnp.minimum(jnp.floor(jnp.log2(jnp.maximum(largest, 1.0))) + 1, 3.0)
    by_eight = jnp.floor(jnp.minimum(largest, 256.0) / 8)
    by_sixteen = jnp.maximum(jnp.floor((largest - 256.0) / 16), 0.0)
    return small + by_eight + by_sixteen


def graph_estimate(engine: EngineColumns, sequences: Count) -> Bytes:
    """What an engine sets aside for CUDA graphs, each captured for mixed and for pure decode batches."""
    return engine.graph_bytes + 2 * captured_graphs(sequences) * engine.bytes_per_graph
