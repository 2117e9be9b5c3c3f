"""The Llama block and its many namesakes: gated FFN, RMS norms, attention and FFN one after the other.

Members differ in which matrices carry a bias, in norms, and in class defaults; a `Variant` says how.
Sources: the model classes of Hugging Face transformers; EXAONE 3, Baichuan, InternLM and InternLM2
from the code published with their checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kvwall.spaces.models.architecture import (
    Architecture,
    Heads,
    Projection,
    attention_projections,
    ffn_projections,
    qkv_bias,
    read_heads,
    read_tie,
)
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.windows import WindowRule, require_full_attention

Bias = bool | tuple[str, bool]
"""Always, never, or under a config key with a class default."""


@dataclass(frozen=True)
class Variant:
    """How a family member differs from the plain block."""

    qkv_bias: Bias = False
    output_bias: Bias = False
    ffn_bias: Bias = False
    norms: int = 2
    """RMS norms of hidden width per layer."""
    final_norm: bool = True
    query_key_norm: Literal["none", "head", "all"] = "none"
    """Norm weights on Q and K: none, one head's width shared by all heads, or all heads' width."""
    tied: bool = False
    """Class default where tie_word_embeddings is not stated."""
    absent_kv_is_mha: bool = True
    head_dim: int | None = None
    """Class default where it is not hidden/heads."""
    windows: WindowRule = "stated"
    fused_qkv: str = ""
    fused_gate_up: str = ""


GATED_FFN = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_ATTENTION_BIAS = ("attention_bias", False)

LLAMA_VARIANTS: dict[str, Variant] = {
    "llama": Variant(_ATTENTION_BIAS, _ATTENTION_BIAS, ("mlp_bias", False)),
    "Yi": Variant(),
    "mistral": Variant(absent_kv_is_mha=False, windows="assumed"),
    "ministral3": Variant(absent_kv_is_mha=False, head_dim=128),
    "qwen2": Variant(qkv_bias=True, absent_kv_is_mha=False, windows="switched"),
    "qwen3": Variant(
        _ATTENTION_BIAS,
        _ATTENTION_BIAS,
        query_key_norm="head",
        absent_kv_is_mha=False,
        head_dim=128,
        windows="switched",
    ),
    "phi3": Variant(fused_qkv="self_attn.qkv_proj", fused_gate_up="mlp.gate_up_proj"),
    "granite": Variant(_ATTENTION_BIAS, _ATTENTION_BIAS, ("mlp_bias", False)),
    "smollm3": Variant(
        _ATTENTION_BIAS, _ATTENTION_BIAS, ("mlp_bias", False), tied=True, absent_kv_is_mha=False, windows="switched"
    ),
    "gemma": Variant(_ATTENTION_BIAS, _ATTENTION_BIAS, tied=True, absent_kv_is_mha=False, head_dim=256),
    "olmo": Variant(_ATTENTION_BIAS, _ATTENTION_BIAS, norms=0, final_norm=False),
    "olmo2": Variant(_ATTENTION_BIAS, _ATTENTION_BIAS, query_key_norm="all"),
    "seed_oss": Variant(
        ("attention_bias", True),
        ("attention_out_bias", False),
        ("mlp_bias", False),
        absent_kv_is_mha=False,
        head_dim=128,
    ),
    "glm": Variant(("attention_bias", True), absent_kv_is_mha=False, head_dim=128, fused_gate_up="mlp.gate_up_proj"),
    "glm4": Variant(
        ("attention_bias", True), norms=4, absent_kv_is_mha=False, head_dim=128, fused_gate_up="mlp.gate_up_proj"
    ),
    "ernie4_5": Variant(
        ("use_bias", False),
        ("use_bias", False),
        ("use_bias", False),
        tied=True,
        absent_kv_is_mha=False,
        head_dim=128,
    ),
    "exaone": Variant(),
    "exaone4": Variant(query_key_norm="head", absent_kv_is_mha=False, windows="default"),
    "baichuan": Variant(fused_qkv="self_attn.W_pack"),
    "internlm": Variant(("bias", True), ("bias", True)),
    "internlm2": Variant(("bias", True), ("bias", True), fused_qkv="attention.wqkv"),
}


def llama_like(variant: Variant) -> Callable[[Config], Architecture]:
    """The constructor of a family member."""

    def construct(config: Config) -> Architecture:
        hidden = config.count("hidden_size")
        intermediate = config.count("intermediate_size")
        vocab = config.count("vocab_size")
        layers = config.layer_count("num_hidden_layers", "num_layers")
        max_positions = config.optional_count("max_position_embeddings", "model_max_length")
        heads = read_heads(config, hidden, absent_kv_is_mha=variant.absent_kv_is_mha, default_dim=variant.head_dim)
        require_full_attention(config, variant.windows, layers, max_positions)
        return Architecture(
            hidden=hidden,
            intermediate=intermediate,
            vocab=vocab,
            max_positions=max_positions,
            layers=layers,
            heads=heads,
            tied_embeddings=read_tie(config, variant.tied),
            projections=_projections(variant, hidden, intermediate, heads),
            layer_vectors=_layer_vectors(variant, config, hidden, intermediate, heads),
            model_vectors=hidden if variant.final_norm else 0,
        )

    return construct


def _projections(variant: Variant, hidden: int, intermediate: int, heads: Heads) -> tuple[Projection, ...]:
    attention = attention_projections(hidden, heads, *[variant.fused_qkv] * 3 if variant.fused_qkv else ())
    gate_up = [variant.fused_gate_up] * 2 if variant.fused_gate_up else GATED_FFN[:2]
    return attention + ffn_projections(hidden, intermediate, *gate_up, GATED_FFN[2])


def _layer_vectors(variant: Variant, config: Config, hidden: int, intermediate: int, heads: Heads) -> int:
    vectors = variant.norms * hidden
    if variant.query_key_norm == "head":
        vectors += 2 * heads.dim
    elif variant.query_key_norm == "all":
        vectors += heads.query_width + heads.kv_width
    if _has(variant.qkv_bias, config):
        vectors += qkv_bias(heads)
    if _has(variant.output_bias, config):
        vectors += hidden
    if _has(variant.ffn_bias, config):
        vectors += 2 * intermediate + hidden
    return vectors


def _has(bias: Bias, config: Config) -> bool:
    return bias if isinstance(bias, bool) else config.switch(*bias)
