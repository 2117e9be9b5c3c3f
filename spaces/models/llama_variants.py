"""The register of Llama-like families without experts: `model_type` -> what differs from the plain block.

Sources: the model classes of Hugging Face transformers; Aquila, EXAONE 3, Baichuan, InternLM, InternLM2 and
MiMo from the code published with their checkpoints.
"""

from __future__ import annotations

from kvwall.spaces.models.experts import UNGATED
from kvwall.spaces.models.llama import Variant
from kvwall.spaces.models.windows import ASSUMED, SWITCHED, every

_BIAS = ("attention_bias", False)
_LLAMA = Variant(_BIAS, _BIAS, ("mlp_bias", False))

LLAMA_VARIANTS: dict[str, Variant] = {
    "llama": _LLAMA,
    "Yi": Variant(),
    "mistral": Variant(absent_kv_is_mha=False, windows=ASSUMED),
    "ministral": Variant(absent_kv_is_mha=False, windows=ASSUMED),
    "ministral3": Variant(absent_kv_is_mha=False, head_dim=128),
    "qwen2": Variant(qkv_bias=True, absent_kv_is_mha=False, windows=SWITCHED),
    "mimo": Variant(qkv_bias=True, absent_kv_is_mha=False, windows=SWITCHED),
    "qwen3": Variant(_BIAS, _BIAS, query_key_norm="head", absent_kv_is_mha=False, head_dim=128, windows=SWITCHED),
    "phi3": Variant(fused_qkv="self_attn.qkv_proj", fused_gate_up="mlp.gate_up_proj"),
    "granite": _LLAMA,
    "smollm3": Variant(_BIAS, _BIAS, ("mlp_bias", False), tied=True, absent_kv_is_mha=False, windows=SWITCHED),
    "gemma": Variant(_BIAS, _BIAS, tied=True, absent_kv_is_mha=False, head_dim=256),
    "gemma2": Variant(_BIAS, _BIAS, norms=4, tied=True, absent_kv_is_mha=False, head_dim=256, windows=every(2)),
    "gemma3_text": Variant(
        _BIAS,
        _BIAS,
        norms=4,
        query_key_norm="head",
        tied=True,
        absent_kv_is_mha=False,
        head_dim=256,
        windows=every(6),
        vocab=262_208,
        query_heads=8,
        kv_heads=4,
    ),
    "vaultgemma": Variant(_BIAS, _BIAS, tied=True, absent_kv_is_mha=False, head_dim=256, windows=every(2)),
    "olmo": Variant(_BIAS, _BIAS, norms=0, final_norm=False),
    "olmo2": Variant(_BIAS, _BIAS, query_key_norm="all"),
    "olmo3": Variant(_BIAS, _BIAS, query_key_norm="all", windows=every(4)),
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
    "aquila": Variant(),
    "exaone": Variant(),
    "exaone4": Variant(query_key_norm="head", absent_kv_is_mha=False, windows=every(4)),
    "hunyuan_v1_dense": Variant(
        _BIAS, _BIAS, query_key_norm="head", query_key_norm_switch=("use_qk_norm", True), absent_kv_is_mha=False
    ),
    "arcee": Variant(_BIAS, _BIAS, ("mlp_bias", False), absent_kv_is_mha=True, ffn_matrices=UNGATED),
    "helium": Variant(_BIAS, absent_kv_is_mha=False, head_dim=128),
    "baichuan": Variant(fused_qkv="self_attn.W_pack"),
    "internlm": Variant(("bias", True), ("bias", True)),
    "internlm2": Variant(("bias", True), ("bias", True), fused_qkv="attention.wqkv"),
    "internlm3": Variant(("qkv_bias", False), ("bias", False), ("bias", False), absent_kv_is_mha=False),
}
