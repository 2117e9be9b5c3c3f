"""GPT-2 and GPT-BigCode (StarCoder): learned positions, layer norms and biases everywhere, tied embeddings."""

from __future__ import annotations

from kvwall.spaces.models.architecture import (
    Architecture,
    Heads,
    attention_projections,
    ffn_projections,
    qkv_bias,
    uniform,
)
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import even_head_dim, read_tie


def gpt2(config: Config) -> Architecture:
    """Class defaults: n_inner null is 4*n_embd, embeddings tied. One KV head per query head."""
    return _gpt2(config, multi_query=False)


def gpt_bigcode(config: Config) -> Architecture:
    """Class default: multi_query, one KV head."""
    multi_query = config.switch("multi_query", True)
    if multi_query:
        config.flags.append("multi_query: one KV head")
    return _gpt2(config, multi_query)


def _gpt2(config: Config, multi_query: bool) -> Architecture:
    hidden = config.count("n_embd", "hidden_size")
    query = config.count("n_head", "num_attention_heads")
    positions = config.count("n_positions", "max_position_embeddings")
    intermediate = config.optional_count("n_inner") or 4 * hidden
    heads = Heads(query, 1 if multi_query else query, even_head_dim(config, hidden, query))
    if config.switch("add_cross_attention", False):
        config.refuse("cross-attention (add_cross_attention)")
    fused = "attn.c_attn"
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=positions,
        layers=config.layer_count("n_layer", "num_hidden_layers"),
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads, fused, fused, fused, "attn.c_proj")
        + ffn_projections(hidden, intermediate, "mlp.c_fc", "mlp.c_proj"),
        layer_vectors=2 * 2 * hidden + qkv_bias(heads) + hidden + intermediate + hidden,
        model_vectors=2 * hidden,
        position_rows=positions,
        layer_path="transformer.h",
    )
