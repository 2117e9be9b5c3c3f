"""DBRX: Llama's attention with a fused QKV, sixteen experts per layer, layer norms without bias."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, attention_projections
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import Frame, decoder, norms
from kvwall.spaces.models.experts import Routed, moe_block, read_top_k
from kvwall.spaces.models.heads import even_head_dim, require_even_groups
from kvwall.spaces.models.stores import attention_store


def dbrx(config: Config) -> Architecture:
    """Attention and FFN sizes sit in `attn_config` and `ffn_config`; the head is not tied."""
    hidden = config.count("d_model")
    frame = Frame(
        hidden, config.count("vocab_size"), config.layer_count("n_layers"), config.optional_count("max_seq_len")
    )
    query = config.count("n_heads")
    kv = config.section("attn_config").count("kv_n_heads")
    require_even_groups(config, query, kv, "kv_n_heads")
    heads = Heads(query, kv, even_head_dim(config, hidden, query))
    ffn = config.section("ffn_config")
    experts = ffn.count("moe_num_experts")
    routed = Routed(
        experts=experts,
        active=read_top_k(ffn, experts, "moe_top_k"),
        intermediate=ffn.count("ffn_hidden_size"),
        matrices=("w1", "v1", "w2"),
        path="ffn",
        router="router.layer",
        expert_path="experts.mlp",
    )
    fused = "norm_attn_norm.attn.Wqkv"
    matrices = attention_projections(hidden, heads, fused, fused, fused, "norm_attn_norm.attn.out_proj")
    layer = Block(matrices, stores=(attention_store(heads),)) + moe_block(hidden, routed) + norms(hidden)
    return decoder(
        config,
        frame,
        [layer] * frame.layers,
        tied=False,
        intermediate=routed.width,
        active_experts=routed.active,
        layer_path="transformer.blocks",
    )
