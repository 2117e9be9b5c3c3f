"""GPT-NeoX and Pythia: fused QKV, two layer norms with bias, attention and FFN in parallel by default."""

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
from kvwall.spaces.models.windows import STATED, read_windows


def gpt_neox(config: Config) -> Architecture:
    """Class defaults: parallel residual, attention biases, head not tied. The FFN always has biases."""
    hidden = config.count("hidden_size")
    query = config.count("num_attention_heads")
    intermediate = config.count("intermediate_size")
    layers = config.layer_count("num_hidden_layers")
    max_positions = config.optional_count("max_position_embeddings")
    heads = Heads(query, query, even_head_dim(config, hidden, query))
    windows = read_windows(config, STATED, layers, max_positions)
    vectors = 2 * 2 * hidden + intermediate + hidden
    if config.switch("attention_bias", True):
        vectors += qkv_bias(heads) + hidden
    fused = "attention.query_key_value"
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, False),
        projections=attention_projections(hidden, heads, fused, fused, fused, "attention.dense")
        + ffn_projections(hidden, intermediate, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_vectors=vectors,
        model_vectors=2 * hidden,
        reduces_per_layer=1 if config.switch("use_parallel_residual", True) else 2,
        layer_path="gpt_neox.layers",
    )
