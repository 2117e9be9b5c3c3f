"""StarCoder2 and Nemotron-4 (Minitron): Llama's attention, an FFN of two matrices, layer norms with bias."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, attention_projections, ffn_projections, qkv_bias, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_heads, read_tie
from kvwall.spaces.models.windows import STATED, read_windows


def starcoder2(config: Config) -> Architecture:
    """Class defaults: biases on every matrix (`use_bias`), embeddings tied."""
    bias = config.switch("use_bias", True)
    return _ungated(config, ("mlp.c_fc", "mlp.c_proj"), attention_bias=bias, ffn_bias=bias, tied=True)


def nemotron(config: Config) -> Architecture:
    """Class defaults: no biases, KV heads absent is MHA, head not tied."""
    return _ungated(
        config,
        ("mlp.up_proj", "mlp.down_proj"),
        attention_bias=config.switch("attention_bias", False),
        ffn_bias=config.switch("mlp_bias", False),
        tied=False,
        absent_kv_is_mha=True,
    )


def _ungated(
    config: Config,
    ffn: tuple[str, str],
    *,
    attention_bias: bool,
    ffn_bias: bool,
    tied: bool,
    absent_kv_is_mha: bool = False,
) -> Architecture:
    hidden = config.count("hidden_size")
    intermediate = config.count("intermediate_size")
    layers = config.layer_count("num_hidden_layers")
    max_positions = config.optional_count("max_position_embeddings")
    heads = read_heads(config, hidden, absent_kv_is_mha=absent_kv_is_mha)
    windows = read_windows(config, STATED, layers, max_positions)
    vectors = 2 * 2 * hidden
    if attention_bias:
        vectors += qkv_bias(heads) + hidden
    if ffn_bias:
        vectors += intermediate + hidden
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=config.count("vocab_size"),
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, tied),
        projections=attention_projections(hidden, heads) + ffn_projections(hidden, intermediate, *ffn),
        layer_vectors=vectors,
        model_vectors=2 * hidden,
    )
