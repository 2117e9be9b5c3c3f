"""The register of Llama-like families with experts: `model_type` -> what differs from the plain block.

Sources: the model classes of Hugging Face transformers; Ling and Ring (bailing_moe) from the code
published with their checkpoints.
"""

from __future__ import annotations

from kvwall.spaces.models.llama import Variant
from kvwall.spaces.models.moe import MoERule, first_dense, interval, sparse_step
from kvwall.spaces.models.windows import LISTED, SWITCHED, every

_BIAS = ("attention_bias", False)
_QWEN = MoERule(sparse=sparse_step)
_SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert")
_DEEPSEEK_EXPERTS = MoERule(
    ("n_routed_experts", "num_local_experts", "num_experts"),
    shared_count=_SHARED,
    correction=True,
    sparse=first_dense(),
)
_MIXTRAL = MoERule(
    ("num_local_experts", "num_experts"),
    intermediate="intermediate_size",
    path="block_sparse_moe",
    matrices=("w1", "w3", "w2"),
)
_GRANITE = MoERule(
    ("num_local_experts", "num_experts"),
    intermediate="intermediate_size",
    path="block_sparse_moe",
    router="router",
    expert_path="input_linear",
)
_BAILING = MoERule(("num_experts",), shared_count=("num_shared_experts",), correction=True, sparse=first_dense())

GLM_MOE = Variant(
    _BIAS,
    query_key_norm="head",
    query_key_norm_switch=("use_qk_norm", False),
    absent_kv_is_mha=False,
    moe=MoERule(
        ("n_routed_experts", "num_local_experts"),
        shared_count=_SHARED,
        shared_default=1,
        correction=True,
        sparse=first_dense(default=1),
    ),
)

MOE_VARIANTS: dict[str, Variant] = {
    "mixtral": Variant(absent_kv_is_mha=False, moe=_MIXTRAL),
    "qwen2_moe": Variant(
        ("qkv_bias", True),
        absent_kv_is_mha=False,
        windows=LISTED,
        moe=MoERule(
            shared_width="shared_expert_intermediate_size",
            shared_gate=True,
            shared_path="shared_expert",
            sparse=sparse_step,
        ),
    ),
    "qwen3_moe": Variant(_BIAS, _BIAS, query_key_norm="head", absent_kv_is_mha=False, windows=LISTED, moe=_QWEN),
    "olmoe": Variant(
        _BIAS,
        _BIAS,
        query_key_norm="all",
        moe=MoERule(("num_experts", "num_local_experts"), intermediate="intermediate_size"),
    ),
    "flex_olmo": Variant(
        _BIAS,
        _BIAS,
        query_key_norm="all",
        moe=MoERule(("num_experts", "num_local_experts"), intermediate="intermediate_size"),
    ),
    "phimoe": Variant(
        _BIAS, _BIAS, norm_bias=True, absent_kv_is_mha=False, head_bias=("lm_head_bias", False), moe=_MIXTRAL
    ),
    "glm4_moe": GLM_MOE,
    "dots1": Variant(_BIAS, _BIAS, query_key_norm="head", windows=SWITCHED, moe=_DEEPSEEK_EXPERTS),
    "solar_open": Variant(_BIAS, absent_kv_is_mha=False, head_dim=128, moe=_DEEPSEEK_EXPERTS),
    "sarvam_moe": Variant(
        _BIAS,
        query_key_norm="head",
        query_key_norm_switch=("use_qk_norm", True),
        absent_kv_is_mha=False,
        moe=MoERule(
            ("n_routed_experts", "num_experts"),
            shared_count=_SHARED,
            shared_default=1,
            correction=True,
            sparse=first_dense(default=1),
        ),
    ),
    "exaone_moe": Variant(
        query_key_norm="head",
        absent_kv_is_mha=False,
        windows=every(4),
        moe=MoERule(
            shared_count=("num_shared_experts",), shared_default=1, correction=True, sparse=first_dense(default=1)
        ),
    ),
    "hy_v3": Variant(
        _BIAS,
        _BIAS,
        query_key_norm="head",
        absent_kv_is_mha=False,
        moe=MoERule(
            shared_count=("num_shared_experts",), shared_default=1, correction=True, sparse=first_dense(default=1)
        ),
    ),
    "ernie4_5_moe": Variant(
        ("use_bias", False),
        ("use_bias", False),
        tied=True,
        absent_kv_is_mha=False,
        moe=MoERule(
            ("moe_num_experts", "num_experts"),
            ("moe_k", "num_experts_per_tok"),
            shared_count=("moe_num_shared_experts",),
            shared_default=2,
            correction=True,
            sparse=interval,
        ),
    ),
    "minimax_m2": Variant(
        query_key_norm="all",
        query_key_norm_switch=("use_qk_norm", True),
        absent_kv_is_mha=False,
        head_dim=128,
        moe=MoERule(
            ("num_local_experts", "num_experts"),
            intermediate="intermediate_size",
            correction=True,
            path="block_sparse_moe",
            matrices=("w1", "w3", "w2"),
        ),
    ),
    "granitemoe": Variant(_BIAS, _BIAS, moe=_GRANITE),
    "granitemoeshared": Variant(
        _BIAS,
        _BIAS,
        moe=MoERule(
            ("num_local_experts", "num_experts"),
            intermediate="intermediate_size",
            shared_width="shared_intermediate_size",
            path="block_sparse_moe",
            router="router",
            expert_path="input_linear",
        ),
    ),
    "hunyuan_v1_moe": Variant(
        _BIAS,
        _BIAS,
        query_key_norm="head",
        query_key_norm_switch=("use_qk_norm", True),
        absent_kv_is_mha=False,
        moe=MoERule(
            ("num_experts",),
            ("moe_topk",),
            intermediate="intermediate_size",
            shared_count=("num_shared_expert",),
            shared_default=1,
            shared_path="shared_mlp",
        ),
    ),
    "afmoe": Variant(
        _BIAS,
        _BIAS,
        norms=4,
        query_key_norm="head",
        gated_heads=True,
        head_dim=128,
        windows=every(4, 1024, "global_attn_every_n_layers"),
        moe=MoERule(
            ("num_experts",),
            shared_count=("num_shared_experts",),
            shared_default=2,
            correction=True,
            sparse=first_dense("num_dense_layers", 1),
        ),
    ),
    "gpt_oss": Variant(
        ("attention_bias", True),
        ("attention_bias", True),
        sinks=True,
        absent_kv_is_mha=False,
        head_dim=64,
        windows=every(2, 128),
        moe=MoERule(
            ("num_local_experts", "num_experts"),
            ("num_experts_per_tok", "experts_per_token"),
            intermediate="intermediate_size",
            biases=True,
            router="router",
            expert_path="experts",
        ),
    ),
    "bailing_moe": Variant(
        ("use_qkv_bias", False),
        ("use_bias", False),
        query_key_norm="head",
        query_key_norm_switch=("use_qk_norm", False),
        absent_kv_is_mha=False,
        fused_qkv="attention.query_key_value",
        moe=_BAILING,
    ),
    "bailing_moe_v2": Variant(
        ("use_qkv_bias", False),
        ("use_bias", False),
        query_key_norm="head",
        query_key_norm_switch=("use_qk_norm", True),
        absent_kv_is_mha=False,
        fused_qkv="attention.query_key_value",
        moe=_BAILING,
    ),
}
