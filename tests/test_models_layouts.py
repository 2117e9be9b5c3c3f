"""Layouts: which stores a model has, what a step reads of them, and where its weights go."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwall.spaces.errors import InputError
from kvwall.spaces.models import LayerGroup, Model, load_model, read_model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def read(**changes: Any) -> Model:
    return read_model(json.dumps(LLAMA | changes), "tiny", "test")


def group(model: Model, kind: str) -> LayerGroup:
    (found,) = (each for each in model.groups if each.kind == kind)
    return found


def test_llama_4_has_chunks_and_full_layers() -> None:
    model = load_model("meta-llama/Llama-4-Maverick-17B-128E-Instruct")
    full, chunked = group(model, "full"), group(model, "chunked")
    assert (full.layers, chunked.layers, chunked.window) == (12, 36, 8192)
    assert chunked.chunked
    assert not full.chunked
    assert model.experts is not None
    assert (model.experts.layers, model.experts.experts, model.experts.active) == (24, 128, 1)
    assert model.experts.elements_per_expert == 3 * 5120 * 8192
    assert model.ffn == 24 * 3 * 5120 * 16384 + 24 * 3 * 5120 * 8192  # dense layers and shared experts
    assert model.router == 24 * 128 * 5120


def test_decilm_has_kv_heads_of_its_own_per_layer() -> None:
    model = load_model("Deci/DeciLM-7B")
    heads = {each.kv_heads: each.layers for each in model.groups}
    assert heads == {4: 7, 2: 14, 1: 11}  # 67 heads in all, of 128 elements
    assert model.kv_bytes_per_token_growing == 67 * 2 * 128 * 2
    assert model.key_value == 67 * 2 * 128 * 4096


@pytest.mark.parametrize(
    ("kv_heads", "message"),
    [
        (None, "missing num_key_value_heads_per_layer"),
        ([2, 2, 1], "must list 4 numbers above 0"),
        ([2, 2, 1, 0], "must list 4 numbers above 0"),
        ([2, 2, 3, 1], "= 3 must divide the 8 attention heads"),
        ([2, 2, "1", 1], "must be a list of whole numbers"),
    ],
)
def test_a_wrong_list_of_kv_heads_is_refused(kv_heads: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(model_type="deci", num_key_value_heads_per_layer=kv_heads)


def test_gemma_3_has_five_windows_to_one_full_layer() -> None:
    model = load_model("google/gemma-3-27b-it")
    full, window = group(model, "full"), group(model, "window")
    assert (full.layers, window.layers, window.window) == (10, 52, 1024)
    assert not window.evictable
    assert window.bytes_per_token == 52 * 16 * 256 * 2
    assert any("vocab_size not stated: class default 262208" in flag for flag in model.flags)


def test_deepseek_v32_reads_the_latents_its_index_picks() -> None:
    model = load_model("deepseek-ai/DeepSeek-V3.2")
    (sparse,) = model.groups
    assert (sparse.kind, sparse.layers, sparse.kv_heads, sparse.query_heads) == ("sparse", 61, 1, 128)
    assert (sparse.key_dim, sparse.value_dim, sparse.rope_dim) == (512, 0, 64)
    assert (sparse.score_dim, sparse.mix_dim) == (576, 512)
    assert (sparse.top_k, sparse.index_dim, sparse.index_heads) == (2048, 128, 64)
    latent = load_model("deepseek-ai/DeepSeek-V3").groups[0]
    assert (latent.kind, latent.top_k, latent.index_dim, latent.evictable) == ("latent", None, 0, True)


def test_latent_down_projections_are_apart_from_what_heads_divide() -> None:
    model = load_model("deepseek-ai/DeepSeek-V3")
    assert model.key_value == 61 * 7168 * (1536 + 512 + 64)
    heads = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert model.query_output == 61 * heads


def test_deepseek_v4_keeps_a_window_and_a_compressed_history() -> None:
    model = load_model("deepseek-ai/DeepSeek-V4-Pro")
    window = group(model, "window")
    heavy, sparse = sorted((each for each in model.groups if each.kind == "compressed"), key=lambda each: -each.stride)
    assert (window.layers, window.window, window.stride) == (61, 128, 1)
    assert (heavy.layers, heavy.stride, heavy.top_k, heavy.index_dim) == (31, 128, None, 0)
    assert (sparse.layers, sparse.stride, sparse.top_k, sparse.index_dim) == (30, 4, 1024, 128)
    assert heavy.bytes_per_token == Fraction(31 * 512 * 2, 128)
    assert {each.key_dim + each.rope_dim for each in model.groups} == {512}
    assert model.experts is not None
    assert model.experts.bits == 4.25


def test_qwen3_next_keeps_states_beside_full_attention() -> None:
    model = load_model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    full, state = group(model, "full"), group(model, "recurrent")
    assert (full.layers, full.kv_heads, full.key_dim) == (12, 2, 256)
    assert (state.layers, state.query_heads) == (36, 32)
    assert state.state_bytes == 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2
    assert model.query_output >= 36 * 2048 * (12288 + 64 + 4096)
    assert not state.grows


def test_gpt_oss_quantizes_its_experts_alone() -> None:
    model = load_model("openai/gpt-oss-120b")
    full, window = group(model, "full"), group(model, "window")
    assert (full.layers, window.layers, window.window) == (18, 18, 128)
    assert model.experts is not None
    assert (model.experts.payload_bits, model.query_output_bits, model.head_bits, model.router_bits) == (4, 16, 16, 16)
    matrices, biases = 3 * 2880 * 2880, 3 * 2880
    assert model.experts.bits == pytest.approx((matrices * 4.25 + biases * 16) / (matrices + biases), rel=1e-12)
    assert model.weight_payload_bits == 4


def test_nemotron_h_layers_are_one_thing_each() -> None:
    model = load_model("nvidia/Nemotron-H-56B-Base-8K")
    assert (group(model, "full").layers, group(model, "recurrent").layers) == (10, 54)
    assert (model.decoder_layers, model.reduces_per_layer) == (118, 1)
    assert model.ffn == 54 * 2 * 8192 * 32768


def test_nemotron_nas_has_layers_without_attention() -> None:
    model = load_model("nvidia/Llama-3_3-Nemotron-Super-49B-v1")
    (full,) = model.groups
    assert (model.decoder_layers, full.layers, full.kv_heads) == (80, 49, 8)
    assert model.reduces_per_layer == (49 + 80) / 80


def test_a_pure_state_space_model_has_no_kv() -> None:
    model = load_model("mistralai/Mamba-Codestral-7B-v0.1")
    assert [each.kind for each in model.groups] == ["recurrent"]
    assert model.max_positions is None
    assert model.reduces_per_layer == 1


def test_formats_of_experts_and_the_rest() -> None:
    kimi = load_model("moonshotai/Kimi-K2.5")
    assert kimi.experts is not None
    assert (kimi.experts.bits, kimi.query_output_bits, kimi.ffn_bits, kimi.head_bits) == (4.5, 16, 16, 16)
    minimax = load_model("MiniMaxAI/MiniMax-M2.7")
    assert minimax.experts is not None
    assert (minimax.experts.payload_bits, minimax.router_bits, minimax.head_bits) == (8, 16, 16)
    named = load_model("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    assert any("the name says FP8" in flag for flag in named.flags)


def test_drafts_and_towers_are_flagged() -> None:
    assert "1 draft (multi-token prediction) layer not counted" in load_model("deepseek-ai/DeepSeek-V3").flags
    assert "vision tower not counted" in load_model("moonshotai/Kimi-K2.5").flags


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 512}, {512: 4}),
        ({"model_type": "mistral", "sliding_window": None}, {None: 4}),
        ({"model_type": "phi3", "sliding_window": 2047}, {2047: 4}),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 512, "max_window_layers": 3},
            {None: 3, 512: 1},
        ),
        ({"model_type": "gemma2", "head_dim": 8, "sliding_window": 512}, {512: 2, None: 2}),
        ({"model_type": "cohere2", "sliding_window": 512}, {512: 3, None: 1}),
        ({"model_type": "cohere2", "sliding_window": 512, "sliding_window_pattern": 2}, {512: 2, None: 2}),
        ({"model_type": "olmo3", "sliding_window": 512}, {512: 3, None: 1}),
        ({"model_type": "exaone4", "sliding_window": 512, "sliding_window_pattern": "LG"}, {512: 2, None: 2}),
        ({"model_type": "exaone4"}, {None: 4}),
        (
            {
                "model_type": "qwen3",
                "head_dim": 8,
                "use_sliding_window": True,
                "sliding_window": 512,
                "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
            },
            {None: 3, 512: 1},
        ),
        ({"model_type": "starcoder2", "sliding_window": 512}, {512: 4}),
    ],
)
def test_windows(changes: dict[str, Any], windows: dict[int | None, int]) -> None:
    assert {each.window: each.layers for each in read(**changes).groups} == windows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_local_experts": 8}, "mixture of experts .num_local_experts. is not supported"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"index_topk": 2048}, "sparse attention"),
        ({"block_configs": [{}]}, "per-layer block"),
        ({"attention_chunk_size": 8192}, "chunked attention"),
        ({"layer_types": ["full_attention"] * 3}, "lists 3 layers, the model has 4"),
        ({"layer_types": ["full_attention"] * 3 + ["conv"]}, "layer_types with conv"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 512}, "missing max_window_layers"),
        ({"model_type": "qwen3_moe", "use_sliding_window": True, "sliding_window": 8}, "layer_types"),
        ({"model_type": "mllama"}, "cross-attention layers"),
        ({"model_type": "zamba2"}, "shared between layers"),
    ],
)
def test_other_layouts_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(**changes)


@given(
    experts=st.integers(1, 64),
    active=st.integers(1, 64),
    shared=st.integers(0, 3),
    dense=st.integers(0, 3),
    width=st.integers(1, 100),
)
def test_any_mixture_of_experts(experts: int, active: int, shared: int, dense: int, width: int) -> None:
    active = min(active, experts)
    keys = {"n_routed_experts": experts, "num_experts_per_tok": active, "n_shared_experts": shared}
    mla = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
    model = read(model_type="deepseek_v3", moe_intermediate_size=width, first_k_dense_replace=dense, **keys, **mla)
    moe, expert = 4 - dense, 3 * 64 * width
    attention = 64 * (24 + 16 + 4) + 24 * 8 * 12 + 16 * 8 * (8 + 6) + 8 * 6 * 64 + 24 + 16
    fixed = 4 * (attention + 2 * 64) + dense * 3 * 64 * 160 + 64 + 2 * 64 * 1000
    assert model.parameters_total == fixed + moe * ((experts + shared) * expert + 64 * experts + experts)
    assert model.parameters_total - model.parameters_active == moe * (experts - active) * expert
    assert model.kv_bytes_per_token_growing == 4 * (16 + 4) * 2


@given(shared=st.integers(0, 6), period=st.integers(2, 4))
def test_layers_that_share_kv_read_it_and_store_nothing(shared: int, period: int) -> None:
    kinds = ["full_attention" if (layer + 1) % period == 0 else "sliding_attention" for layer in range(12)]
    config = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "head_dim": 8,
        "global_head_dim": 16,
        "sliding_window": 512,
        "layer_types": [*kinds[:-1], "full_attention"],
        "num_kv_shared_layers": shared,
        "hidden_size_per_layer_input": 4,
        "vocab_size_per_layer_input": 100,
    }
    model = read(**config)
    assert sum(each.layers for each in model.groups) == 12 - shared
    assert sum(each.layers * each.readers for each in model.groups) == 12
    assert model.layer_embedding == 100 * 12 * 4
    assert model.parameters_active == model.parameters_total - model.layer_embedding
    assert model.embedding_row == 64 + 12 * 4


def test_a_sibling_file_wins_over_a_format_left_in_the_language_part() -> None:
    stale = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    config = json.dumps({"model_type": "mistral3", "text_config": LLAMA | {"quantization_config": stale}})
    sibling = json.dumps({"quantization": {"quant_algo": "NVFP4", "group_size": 16}})
    assert read_model(config, "tiny", "test").ffn_bits == 4 + 20 / 128
    assert read_model(config, "tiny", "test", sibling).ffn_bits == 4.5
