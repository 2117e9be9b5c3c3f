"""Layouts that are known and not counted yet: refused by name, never approximated."""

from __future__ import annotations

from kvwall.spaces.models.config import Config

_MOE = "mixture of experts"
_MLA_MOE = "multi-head latent attention (MLA) with mixture of experts"
_SSM = "state-space (Mamba) layers"
_WINDOWS = "interleaved sliding-window attention"
_LINEAR = "linear-attention layers"

REFUSED_TYPES: dict[str, str] = {
    "afmoe": _MOE,
    "bamba": _SSM,
    "bailing_moe": _MOE,
    "cohere2": _WINDOWS,
    "dbrx": _MOE,
    "deepseek_v2": _MLA_MOE,
    "deepseek_v3": _MLA_MOE,
    "deepseek_v32": "sparse attention with a lightning indexer (DSA) over MLA, with mixture of experts",
    "deepseek_v4": "compressed sparse attention with mixture of experts",
    "dots1": _MOE,
    "ernie4_5_moe": _MOE,
    "falcon_h1": _SSM,
    "falcon_mamba": _SSM,
    "gemma2": _WINDOWS,
    "gemma3": _WINDOWS,
    "gemma3_text": _WINDOWS,
    "gemma3n": _WINDOWS + " with per-layer embeddings",
    "gemma4": _WINDOWS,
    "gemma4_text": _WINDOWS,
    "glm4_moe": _MOE,
    "glm_moe_dsa": "sparse attention with an indexer (DSA) over MLA, with mixture of experts",
    "gpt_oss": _MOE + " with interleaved sliding-window attention",
    "granitemoe": _MOE,
    "granitemoehybrid": _SSM + " with mixture of experts",
    "jamba": _SSM + " with mixture of experts",
    "kimi_k2": _MLA_MOE,
    "kimi_k25": _MLA_MOE,
    "kimi_linear": _LINEAR + " with MLA",
    "lfm2": "short-convolution layers",
    "llama4": _MOE + " with chunked attention",
    "llama4_text": _MOE + " with chunked attention",
    "mamba": _SSM,
    "mamba2": _SSM,
    "minicpm3": "multi-head latent attention (MLA)",
    "minimax": _LINEAR + " with mixture of experts",
    "minimax_m1": _LINEAR + " with mixture of experts",
    "minimax_m2": _MOE,
    "ministral": _WINDOWS,
    "mixtral": _MOE,
    "nemotron-nas": "per-layer block configurations (NAS)",
    "nemotron_h": _SSM,
    "olmo3": _WINDOWS,
    "olmoe": _MOE,
    "phimoe": _MOE,
    "qwen2_moe": _MOE,
    "qwen3_5": _LINEAR + " (gated delta net)",
    "qwen3_5_text": _LINEAR + " (gated delta net)",
    "qwen3_5_moe": _LINEAR + " (gated delta net) with mixture of experts",
    "qwen3_5_moe_text": _LINEAR + " (gated delta net) with mixture of experts",
    "qwen3_moe": _MOE,
    "qwen3_next": _LINEAR + " (gated delta net) with mixture of experts",
    "recurrent_gemma": "recurrent layers",
    "rwkv": "recurrent layers",
    "zamba": _SSM,
    "zamba2": _SSM,
}

_REFUSED_KEYS: dict[str, str] = {
    "n_routed_experts": _MOE,
    "num_experts": _MOE,
    "num_local_experts": _MOE,
    "moe_num_experts": _MOE,
    "kv_lora_rank": "multi-head latent attention (MLA)",
    "index_topk": "sparse attention with an indexer (DSA)",
    "block_configs": "per-layer block configurations (NAS)",
    "attention_chunk_size": "chunked attention",
    "hybrid_override_pattern": _SSM,
    "layers_block_type": "mixed block types",
    "attn_type_list": _LINEAR,
    "cross_attention_layers": "cross-attention layers",
    "num_kv_shared_layers": "cross-layer shared KV",
}


def refuse_foreign_keys(config: Config) -> None:
    """Record a refusal for each key that means another layout than the model_type's own.

    A model_type is sometimes reused (a mixture of experts published as "glm"), so the keys decide too.
    """
    layouts = dict.fromkeys(
        f"{layout} ({key})"
        for key, layout in _REFUSED_KEYS.items()
        if config.values.get(key) not in (None, 0, 1, False, [], "")
    )
    for layout in layouts:
        config.refuse(layout)
