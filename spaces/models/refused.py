"""Layouts that are known and not counted: refused by name, never approximated."""

from __future__ import annotations

from collections.abc import Iterable

from kvwall.spaces.models.config import Config

REFUSED_TYPES: dict[str, str] = {
    "glm5_next": "linear attention beside pooled sparse attention",
    "hunyuan": "cross-layer attention (Hunyuan-Large)",
    "hy_v4": "sparse attention with hyper-connections",
    "inkling": "the Inkling block",
    "longcat_flash": "layers of two attention blocks with experts that compute nothing",
    "mistral_large4": "sparse attention over KV shared between layers",
    "mllama": "cross-attention layers",
    "qwen4_exp": "indexed attention with n-gram embeddings",
    "recurrent_gemma": "gated linear recurrences (RG-LRU)",
    "rwkv": "the RWKV recurrence",
    "zamba": "attention weights shared between layers",
    "zamba2": "attention weights shared between layers",
}

LAYOUT_KEYS: dict[str, str] = {
    "n_routed_experts": "mixture of experts",
    "num_experts": "mixture of experts",
    "num_local_experts": "mixture of experts",
    "moe_num_experts": "mixture of experts",
    "kv_lora_rank": "multi-head latent attention (MLA)",
    "index_topk": "sparse attention with an index",
    "sparse_attention_config": "sparse attention",
    "compress_ratios": "compressed attention",
    "block_configs": "per-layer block configurations (NAS)",
    "attention_chunk_size": "chunked attention",
    "hybrid_override_pattern": "state-space layers",
    "layers_block_type": "mixed block types",
    "layer_types": "mixed layer types",
    "sliding_window_pattern": "interleaved sliding-window attention",
    "linear_num_value_heads": "linear-attention layers",
    "linear_attn_config": "linear-attention layers",
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "cross_attention_layers": "cross-attention layers",
    "num_kv_shared_layers": "cross-layer shared KV",
    "use_cla": "cross-layer attention",
    "altup_num_inputs": "several residual streams",
    "hc_mult": "hyper-connections",
    "hidden_size_per_layer_input": "per-layer embeddings",
}
"""Keys that mean a layout. One that a constructor did not ask for means a layout that it does not count."""


def refuse_foreign_keys(config: Config) -> None:
    """Record a refusal for each key that means another layout than the one counted.

    A model_type is sometimes reused, so the keys decide too. `layer_types` of one kind only says
    that all layers are alike, and a list of full attention nothing new.
    """
    for key, layout in LAYOUT_KEYS.items():
        value = config.values.get(key)
        if key in config.read or value in (None, 0, 1, False, [], "", {}):
            continue
        if key == "layer_types" and isinstance(value, list) and set(map(str, value)) == {"full_attention"}:
            continue
        config.refuse(f"{layout} ({key})")
    if "attn_type_list" not in config.read and set(config.whole_numbers("attn_type_list")) - {1}:
        config.refuse("linear-attention layers (attn_type_list)")


_DRAFT_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers")


def flag_drafts(config: Config) -> None:
    """A flag where the checkpoint carries layers for speculative drafts, which are not counted."""
    layers = max(config.whole(key) for key in _DRAFT_KEYS)
    if layers:
        config.flags.append(f"{layers} draft (multi-token prediction) layer{'s' if layers > 1 else ''} not counted")


def draft_layers(flags: Iterable[str]) -> int:
    """Draft layers that a model's flags say its checkpoint carries.

    >>> draft_layers(["vision tower not counted", "1 draft (multi-token prediction) layer not counted"])
    1
    """
    return max((int(flag.split()[0]) for flag in flags if "draft (multi-token prediction) layer" in flag), default=0)
