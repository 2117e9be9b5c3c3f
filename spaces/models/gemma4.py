"""Gemma 4: windows with wider full-attention layers between, maybe experts, per-layer embeddings, shared KV."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import Routed, dense_block, moe_block, read_top_k
from kvwall.spaces.models.heads import require_even_groups
from kvwall.spaces.models.per_layer import (
    per_layer_block,
    read_per_layer,
    readers,
    shared_attention,
    with_per_layer,
)
from kvwall.spaces.models.windows import FULL, SLIDING, layer_kinds


def gemma4(config: Config) -> Architecture:
    """Class defaults: full-attention heads of 512, every sixth layer and the last in full, embeddings tied.

    With `attention_k_eq_v` the full-attention layers have no V matrix, but K (rotated) and V are both kept.
    """
    frame = read_frame(config)
    hidden = frame.hidden
    kinds = _kinds(config, frame.layers)
    heads = _read_heads(config)
    shared = config.switch("attention_k_eq_v", False)
    window = config.count("sliding_window")
    per_layer = read_per_layer(config)
    reads = readers(config, kinds)
    intermediate = config.count("intermediate_size")
    double = 2 if config.switch("use_double_wide_mlp", False) else 1
    extra, width, active = _experts(config, hidden)
    extra += per_layer_block(hidden, per_layer) + norms(hidden, 4) + Block(vectors=1, reduces=0)
    bias = config.switch("attention_bias", False)
    layers = []
    for kind, count in zip(kinds, reads, strict=True):
        mixer = shared_attention(
            hidden, heads[kind], None if kind == FULL else window, count, bias, value_is_key=shared and kind == FULL
        )
        layers.append(mixer + dense_block(hidden, intermediate * (1 if count else double)) + extra)
    wide = intermediate * (1 if all(reads) else double) + width
    architecture = decoder(config, frame, layers, tied=True, intermediate=wide, active_experts=active)
    return with_per_layer(architecture, per_layer)


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    kinds = layer_kinds(config, layers, (FULL, SLIDING))
    if not kinds:
        kinds = tuple(SLIDING if (layer + 1) % 6 else FULL for layer in range(layers))
    return (*kinds[:-1], FULL)


def _read_heads(config: Config) -> dict[str, Heads]:
    """Heads of the windows' layers and of the full-attention ones."""
    query, kv = config.count("num_attention_heads"), config.count("num_key_value_heads")
    dim = config.count("head_dim")
    wide = config.count("global_head_dim", default=512)
    wide_kv = kv
    if config.switch("attention_k_eq_v", False):
        wide_kv = config.optional_count("num_global_key_value_heads") or kv
    require_even_groups(config, query, kv, "num_key_value_heads")
    require_even_groups(config, query, wide_kv, "num_global_key_value_heads")
    return {SLIDING: Heads(query, kv, dim), FULL: Heads(query, wide_kv, wide)}


def _experts(config: Config, hidden: int) -> tuple[Block, int, int]:
    """Experts beside the dense FFN, with three norms and two scales; one sum with the dense part."""
    if not config.switch("enable_moe_block", False):
        config.states("num_experts")
        return Block(reduces=0), 0, 0
    experts = config.count("num_experts")
    routed = Routed(
        experts=experts,
        active=read_top_k(config, experts, "top_k_experts"),
        intermediate=config.count("moe_intermediate_size"),
        path="router_and_experts",
    )
    moe = moe_block(hidden, routed)
    matrices = tuple(_renamed(matrix) for matrix in moe.projections)
    return Block(matrices, 3 * hidden + hidden + experts, reduces=0), routed.width, routed.active


def _renamed(matrix: Projection) -> Projection:
    module = "router.proj" if matrix.tensor_class == "router" else f"experts.{matrix.module.rsplit('.', 1)[-1]}"
    return Projection(module, matrix.tensor_class, matrix.parameters, matrix.copies)
