"""LFM2: short gated convolutions with a few full-attention layers, dense or with experts."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.hybrid import LINEAR_NAMES, mixer_kinds
from kvwall.spaces.models.moe import FFNs, MoERule, first_dense, read_moe
from kvwall.spaces.models.stores import recurrent_store

_MATRICES = ("w1", "w3", "w2")
_EXPERTS = MoERule(
    correction=True,
    sparse=first_dense("num_dense_layers", 2),
    matrices=_MATRICES,
    path="feed_forward",
)


def lfm2(config: Config) -> Architecture:
    """Class defaults: FFN width cut to 2/3 and rounded up, embeddings tied, no convolution bias."""
    hidden, layers = config.count("hidden_size"), config.layer_count("num_hidden_layers")
    width = _width(config)
    return _lfm2(config, FFNs((dense_block(hidden, width, _MATRICES, "feed_forward"),) * layers, width))


def lfm2_moe(config: Config) -> Architecture:
    """The first `num_dense_layers` layers (class default 2) have a dense FFN, its width as stated."""
    hidden, layers = config.count("hidden_size"), config.layer_count("num_hidden_layers")
    if not config.switch("use_expert_bias", True):
        config.refuse("use_expert_bias = false")
    return _lfm2(config, read_moe(config, _EXPERTS, hidden, layers))


def _lfm2(config: Config, ffns: FFNs) -> Architecture:
    if config.states("tie_embedding"):
        config = config.with_values({"tie_word_embeddings": config.value("tie_embedding")})
    frame = read_frame(config)
    hidden = frame.hidden
    heads = read_heads(config, hidden)
    full = attention(hidden, heads, vectors=2 * heads.dim)
    convolution = _convolution(hidden, config.count("conv_L_cache"), config.switch("conv_bias", False))
    layers = [
        (convolution if kind in LINEAR_NAMES else full) + ffn + norms(hidden)
        for kind, ffn in zip(_kinds(config, frame.layers), ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=True, intermediate=ffns.width, active_experts=ffns.active)


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    if config.states("layer_types") or not config.states("full_attn_idxs"):
        return mixer_kinds(config, layers)
    full = set(config.whole_numbers("full_attn_idxs"))
    return tuple("full_attention" if layer in full else "conv" for layer in range(layers))


def _convolution(hidden: int, kernel: int, bias: bool) -> Block:
    """Two gates around a convolution of `kernel` tokens, the last of which are kept."""
    matrices = (
        Projection("conv.in_proj", "query_output", hidden * 3 * hidden),
        Projection("conv.out_proj", "query_output", hidden * hidden),
    )
    vectors = hidden * kernel + 5 * hidden * bias
    return Block(matrices, vectors, (recurrent_store(hidden, 0, hidden, kernel - 1),))


def _width(config: Config) -> int:
    width = config.count("block_ff_dim", "intermediate_size")
    if not config.switch("block_auto_adjust_ff_dim", True):
        return width
    multiple = config.count("block_multiple_of") if config.states("block_multiple_of") else 256
    width = int(config.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    return max(1, -(-width // multiple) * multiple)
