"""OPT: learned positions, layer norms and biases everywhere, tied embeddings."""

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

POSITION_OFFSET = 2
"""The position table has two rows more than there are positions."""


def opt(config: Config) -> Architecture:
    """Class defaults: biases and affine norms on, norm before the block, embeddings tied and as wide as hidden."""
    hidden = config.count("hidden_size")
    query = config.count("num_attention_heads")
    intermediate = config.count("ffn_dim")
    positions = config.count("max_position_embeddings")
    heads = Heads(query, query, even_head_dim(config, hidden, query))
    if (config.optional_count("word_embed_proj_dim") or hidden) != hidden:
        config.refuse("word_embed_proj_dim different from hidden_size (projected embeddings)")
    affine = config.switch("layer_norm_elementwise_affine", True)
    final_norm = config.switch("do_layer_norm_before", True) and not config.switch("_remove_final_layer_norm", False)
    vectors = 2 * 2 * hidden * affine
    if config.switch("enable_bias", True):
        vectors += qkv_bias(heads) + hidden + intermediate + hidden
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=positions,
        layers=config.layer_count("num_hidden_layers"),
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads, output="self_attn.out_proj")
        + ffn_projections(hidden, intermediate, "fc1", "fc2"),
        layer_vectors=vectors,
        model_vectors=2 * hidden * (affine and final_norm),
        position_rows=positions + POSITION_OFFSET,
        layer_path="model.decoder.layers",
    )
