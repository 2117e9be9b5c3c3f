"""Phi-1, Phi-1.5 and Phi-2: attention and FFN in parallel behind one layer norm, biases everywhere."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, attention_projections, ffn_projections, qkv_bias, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_heads, read_tie
from kvwall.spaces.models.windows import STATED, read_windows


def phi(config: Config) -> Architecture:
    """Class defaults: KV heads absent is MHA, no QK norm, head not tied; the head has a bias."""
    hidden = config.count("hidden_size")
    intermediate = config.count("intermediate_size")
    vocab = config.count("vocab_size")
    layers = config.layer_count("num_hidden_layers")
    max_positions = config.optional_count("max_position_embeddings")
    heads = read_heads(config, hidden, absent_kv_is_mha=True)
    windows = read_windows(config, STATED, layers, max_positions)
    vectors = 2 * hidden + qkv_bias(heads) + hidden + intermediate + hidden
    if config.switch("qk_layernorm", False):
        vectors += 2 * 2 * heads.dim
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=vocab,
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, False),
        projections=attention_projections(hidden, heads, output="self_attn.dense")
        + ffn_projections(hidden, intermediate, "mlp.fc1", "mlp.fc2"),
        layer_vectors=vectors,
        model_vectors=2 * hidden + vocab,
        reduces_per_layer=1,
    )
