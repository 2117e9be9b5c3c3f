"""BLOOM: ALiBi (no positions, no stated context limit), biases everywhere, a norm after the embedding."""

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


def bloom(config: Config) -> Architecture:
    """Fixed by the class: one KV head per query head, FFN of 4*hidden. Class default: embeddings tied."""
    hidden = config.count("hidden_size", "n_embed")
    query = config.count("n_head", "num_attention_heads")
    heads = Heads(query, query, even_head_dim(config, hidden, query))
    intermediate = 4 * hidden
    fused = "self_attention.query_key_value"
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=None,
        layers=config.layer_count("n_layer", "num_hidden_layers"),
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads, fused, fused, fused, "self_attention.dense")
        + ffn_projections(hidden, intermediate, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_vectors=2 * 2 * hidden + qkv_bias(heads) + hidden + intermediate + hidden,
        model_vectors=2 * 2 * hidden,
        layer_path="transformer.h",
    )
