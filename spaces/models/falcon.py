"""Falcon: fused QKV, layer norms with bias, attention and FFN in parallel but for the oldest members."""

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
from kvwall.spaces.models.heads import even_head_dim, read_tie, require_even_groups
from kvwall.spaces.models.windows import STATED, read_windows


def falcon(config: Config) -> Architecture:
    """Class defaults: multi_query and parallel_attn true, no bias, FFN 4*hidden, embeddings tied."""
    return _falcon(config, config.switch("new_decoder_architecture", False))


def refined_web(config: Config) -> Architecture:
    """Falcon-40B under its first name, which stood for the new decoder."""
    return _falcon(config, new_decoder=True)


def _falcon(config: Config, new_decoder: bool) -> Architecture:
    hidden = config.count("hidden_size", "n_embed")
    layers = config.layer_count("num_hidden_layers", "n_layer")
    heads = _heads(config, hidden, new_decoder)
    intermediate = config.optional_count("ffn_hidden_size") or 4 * hidden
    max_positions = config.optional_count("max_position_embeddings")
    windows = read_windows(config, STATED, layers, max_positions)
    parallel = new_decoder or config.switch("parallel_attn", True)
    if new_decoder:
        norms = config.count("num_ln_in_parallel_attn") if config.states("num_ln_in_parallel_attn") else 2
    else:
        norms = 1 if parallel else 2
    vectors = norms * 2 * hidden
    if config.switch("bias", False):
        vectors += qkv_bias(heads) + hidden + intermediate + hidden
    fused = "self_attention.query_key_value"
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, True),
        projections=attention_projections(hidden, heads, fused, fused, fused, "self_attention.dense")
        + ffn_projections(hidden, intermediate, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        layer_vectors=vectors,
        model_vectors=2 * hidden,
        reduces_per_layer=1 if parallel else 2,
        layer_path="transformer.h",
    )


def _heads(config: Config, hidden: int, new_decoder: bool) -> Heads:
    """KV heads: the stated count in the new decoder, else one with multi_query, else one per query head."""
    query = config.count("num_attention_heads", "n_head")
    if new_decoder:
        kv = config.count("num_kv_heads", "n_head_kv")
        if config.values.get("multi_query") is True:
            config.flags.append(f"multi_query present but new_decoder_architecture=true: {kv} KV heads")
    elif config.switch("multi_query", True):
        kv = 1
        config.flags.append("multi_query: one KV head")
    else:
        kv = query
    require_even_groups(config, query, kv, "num_kv_heads")
    return Heads(query, kv, even_head_dim(config, hidden, query))
