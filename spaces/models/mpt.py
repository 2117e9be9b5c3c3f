"""MPT with ALiBi: fused QKV, no biases, norms without bias, tied embeddings."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Heads, attention_projections, ffn_projections, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import even_head_dim, read_tie


def mpt(config: Config) -> Architecture:
    """Fixed by the class: one KV head per query head. Class defaults: FFN ratio 4, no bias, embeddings tied.

    `learned_pos_emb` is idle under ALiBi; `max_seq_len` is the trained length, which ALiBi exceeds.
    """
    hidden = config.count("d_model", "hidden_size")
    query = config.count("n_heads", "num_attention_heads")
    intermediate = hidden * (config.optional_count("expansion_ratio") or 4)
    heads = Heads(query, query, even_head_dim(config, hidden, query))
    attention = config.section("attn_config")
    if not attention.switch("alibi", True):
        config.refuse("MPT with learned positions (attn_config.alibi = false)")
    if attention.text("attn_type") not in (None, "multihead_attention"):
        config.refuse(f"MPT with attn_type {attention.text('attn_type')}")
    if attention.switch("qk_ln", False) or not config.switch("no_bias", True):
        config.refuse("MPT with QK norms or biases (attn_config.qk_ln, no_bias = false)")
    fused = "attn.Wqkv"
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=config.optional_count("max_seq_len", "max_position_embeddings"),
        layers=config.layer_count("n_layers", "num_hidden_layers"),
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads, fused, fused, fused, "attn.out_proj")
        + ffn_projections(hidden, intermediate, "ffn.up_proj", "ffn.down_proj"),
        layer_vectors=2 * hidden,
        model_vectors=hidden,
        layer_path="transformer.blocks",
    )
