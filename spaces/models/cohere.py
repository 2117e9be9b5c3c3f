"""Command R, Command A and Aya: Llama's matrices, but attention and FFN in parallel behind one bias-free layer norm."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, attention_projections, ffn_projections, qkv_bias, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_heads, read_tie
from kvwall.spaces.models.llama import GATED_FFN
from kvwall.spaces.models.windows import STATED, WindowRule, every, read_windows


def cohere(config: Config) -> Architecture:
    """Every layer attends in full."""
    return _cohere(config, STATED)


def cohere2(config: Config) -> Architecture:
    """Every fourth layer attends in full, the others have a window."""
    return _cohere(config, every(4))


def _cohere(config: Config, rule: WindowRule) -> Architecture:
    """Class defaults: embeddings tied, no QK norm (it has own weights per head), no attention bias."""
    hidden = config.count("hidden_size")
    intermediate = config.count("intermediate_size")
    layers = config.layer_count("num_hidden_layers")
    max_positions = config.optional_count("model_max_length", "max_position_embeddings")
    heads = read_heads(config, hidden, absent_kv_is_mha=True)
    windows = read_windows(config, rule, layers, max_positions)
    vectors = hidden
    if config.switch("use_qk_norm", False):
        vectors += heads.query_width + heads.kv_width
    if config.switch("attention_bias", False):
        vectors += qkv_bias(heads) + hidden
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads) + ffn_projections(hidden, intermediate, *GATED_FFN),
        layer_vectors=vectors,
        model_vectors=hidden,
        reduces_per_layer=1,
    )
