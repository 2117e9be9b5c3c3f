"""The Llama block and its many namesakes: gated FFN, RMS norms, attention and FFN one after the other.

Members differ in which matrices carry a bias, in norms, windows and experts, and in class defaults;
a `Variant` says how.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection, attention_projections, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import GATED, dense_block
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.moe import FFNs, MoERule, read_moe
from kvwall.spaces.models.stores import attention_store
from kvwall.spaces.models.windows import STATED, WindowRule, read_windows

Bias = bool | tuple[str, bool]
"""Always, never, or under a config key with a class default."""
NormKind = Literal["none", "head", "all"]

GATED_FFN = tuple(f"mlp.{name}" for name in GATED)


@dataclass(frozen=True)
class Variant:
    """How a family member differs from the plain block."""

    qkv_bias: Bias = False
    output_bias: Bias = False
    ffn_bias: Bias = False
    norms: int = 2
    """Norms of hidden width per layer."""
    norm_bias: bool = False
    final_norm: bool = True
    query_key_norm: NormKind = "none"
    """Norm weights on Q and K: none, one head's width shared by all heads, or all heads' width."""
    query_key_norm_switch: tuple[str, bool] = ("", True)
    """The config key, with its class default, that turns the norm on; empty: always."""
    gated_heads: bool = False
    """A gate as wide as all heads' outputs on the attention's output."""
    sinks: bool = False
    """One attention sink per head."""
    tied: bool = False
    """Class default where tie_word_embeddings is not stated."""
    absent_kv_is_mha: bool = True
    head_dim: int | None = None
    """Class default where it is not hidden/heads."""
    windows: WindowRule = STATED
    fused_qkv: str = ""
    fused_gate_up: str = ""
    ffn_matrices: tuple[str, ...] = GATED
    moe: MoERule | None = None
    vocab: int | None = None
    """Class default where files leave the vocabulary out."""
    query_heads: int | None = None
    """Class default where files leave the heads out, as with `kv_heads`."""
    kv_heads: int | None = None
    head_bias: tuple[str, bool] = ("", False)
    """The config key that gives the LM head a bias."""
    reduces: int = 2
    """All-reduces per layer: 1 where attention and FFN run in parallel."""


def llama_like(variant: Variant) -> Callable[[Config], Architecture]:
    """The constructor of a family member."""

    def construct(config: Config) -> Architecture:
        frame = read_frame(config, variant.vocab)
        heads = _read_heads(config, variant, frame.hidden)
        windows = read_windows(config, variant.windows, frame.layers, frame.max_positions)
        ffns = _read_ffns(config, variant, frame.hidden, frame.layers)
        attention = _attention(config, variant, frame.hidden, heads)
        layer_norms = norms(frame.hidden, variant.norms * (1 + variant.norm_bias))
        if variant.reduces == 1:
            layer_norms += Block(reduces=-1)
        layers = [
            attention + Block(stores=(attention_store(heads, window),), reduces=0) + ffn + layer_norms
            for window, ffn in zip(windows, ffns.blocks, strict=True)
        ]
        model_vectors = frame.hidden * (1 + variant.norm_bias) if variant.final_norm else 0
        if variant.head_bias[0] and config.switch(*variant.head_bias):
            model_vectors += frame.vocab
        return decoder(
            config,
            frame,
            layers,
            tied=variant.tied,
            intermediate=ffns.width,
            active_experts=ffns.active,
            model_vectors=model_vectors,
        )

    return construct


def _read_heads(config: Config, variant: Variant, hidden: int) -> Heads:
    if variant.query_heads is not None:
        query = config.count("num_attention_heads", default=variant.query_heads)
        kv = config.count("num_key_value_heads", default=variant.kv_heads)
        stated = {"num_attention_heads": query, "num_key_value_heads": kv}
        config = config.with_values(stated)
    return read_heads(config, hidden, absent_kv_is_mha=variant.absent_kv_is_mha, default_dim=variant.head_dim)


def _read_ffns(config: Config, variant: Variant, hidden: int, layers: int) -> FFNs:
    if variant.moe is not None:
        return read_moe(config, variant.moe, hidden, layers)
    intermediate = config.count("intermediate_size")
    up = [variant.fused_gate_up] * 2 if variant.fused_gate_up else [f"mlp.{name}" for name in variant.ffn_matrices[:-1]]
    modules = [name.removeprefix("mlp.") for name in up] + [variant.ffn_matrices[-1]]
    block = dense_block(hidden, intermediate, tuple(modules))
    if _has(variant.ffn_bias, config):
        block += Block(vectors=len(up) * intermediate + hidden, reduces=0)
    return FFNs((block,) * layers, intermediate)


def _attention(config: Config, variant: Variant, hidden: int, heads: Heads) -> Block:
    """Attention of one layer, without its store."""
    matrices = attention_projections(hidden, heads, *[variant.fused_qkv] * 3 if variant.fused_qkv else ())
    vectors = heads.query * variant.sinks
    key, default = variant.query_key_norm_switch
    if not key or config.switch(key, default):
        if variant.query_key_norm == "head":
            vectors += 2 * heads.dim
        elif variant.query_key_norm == "all":
            vectors += heads.query_width + heads.kv_width
    if _has(variant.qkv_bias, config):
        vectors += qkv_bias(heads)
    if _has(variant.output_bias, config):
        vectors += hidden
    if variant.gated_heads:
        matrices += (Projection("self_attn.gate_proj", "query_output", hidden * heads.query_width),)
    return Block(matrices, vectors)


def _has(bias: Bias, config: Config) -> bool:
    return bias if isinstance(bias, bool) else config.switch(*bias)
