"""StableLM: Llama's matrices with layer norms that carry a bias, optionally in parallel."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, attention_projections, ffn_projections, qkv_bias, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_heads, read_tie
from kvwall.spaces.models.llama import GATED_FFN
from kvwall.spaces.models.windows import STATED, read_windows


def stablelm(config: Config) -> Architecture:
    """Class defaults: no QKV bias, no QK norm, no parallel residual, head not tied.

    The QK norm has own weights per head and no bias. The parallel block has one norm.
    """
    hidden = config.count("hidden_size")
    intermediate = config.count("intermediate_size")
    layers = config.layer_count("num_hidden_layers")
    max_positions = config.optional_count("max_position_embeddings")
    heads = read_heads(config, hidden)
    windows = read_windows(config, STATED, layers, max_positions)
    parallel = config.switch("use_parallel_residual", False)
    vectors = (1 if parallel else 2) * 2 * hidden
    if config.switch("use_qkv_bias", False):
        vectors += qkv_bias(heads)
    if config.switch("qk_layernorm", False):
        vectors += heads.query_width + heads.kv_width
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, False),
        projections=attention_projections(hidden, heads) + ffn_projections(hidden, intermediate, *GATED_FFN),
        layer_vectors=vectors,
        model_vectors=2 * hidden,
        reduces_per_layer=1 if parallel else 2,
    )
