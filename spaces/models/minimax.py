"""MiniMax-Text-01 and M1: lightning attention with a full-attention layer every few layers, experts everywhere."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import Routed, moe_block, read_top_k
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.hybrid import LINEAR_NAMES, mixer_kinds
from kvwall.spaces.models.linear import lightning_block
from kvwall.spaces.models.moe import layer_flags


def minimax(config: Config) -> Architecture:
    """`attn_type_list` (0 lightning, 1 full) or `layer_types` says which layer is which; no shared expert is known."""
    frame = read_frame(config)
    hidden = frame.hidden
    heads = read_heads(config, hidden)
    if config.whole("shared_intermediate_size"):
        config.refuse("a shared expert in this family (shared_intermediate_size)")
    experts = config.count("num_local_experts", "num_experts")
    routed = Routed(
        experts=experts,
        active=read_top_k(config, experts, "num_experts_per_tok"),
        intermediate=config.count("intermediate_size"),
        matrices=("w1", "w3", "w2"),
        path="block_sparse_moe",
    )
    full, linear = attention(hidden, heads), lightning_block(hidden, heads.query, heads.dim)
    rest = moe_block(hidden, routed) + norms(hidden)
    layers = [(linear if is_linear else full) + rest for is_linear in _linear(config, frame.layers)]
    return decoder(config, frame, layers, tied=False, intermediate=routed.width, active_experts=routed.active)


def _linear(config: Config, layers: int) -> tuple[bool, ...]:
    if not config.states("attn_type_list"):
        return tuple(kind in LINEAR_NAMES for kind in mixer_kinds(config, layers))
    return tuple(flag == 0 for flag in layer_flags(config, "attn_type_list", layers))
