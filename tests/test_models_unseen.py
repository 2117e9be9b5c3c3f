"""Configs that are not in the catalogue: published shapes, and types that no constructor is registered for.

Totals are those of the families' own model classes, built without weights, with routing biases where those
are buffers; active parameters and KV follow from the shapes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvwall.spaces.errors import InputError
from kvwall.spaces.models import Model, load_model, read_model

CONFIGS = Path(__file__).parent / "data" / "models"

# Total and active parameters; KV bytes per token that grow, and of all layers; fixed state bytes per sequence.
PUBLISHED = {
    "step-3.7-flash": (196_956_130_368, 11_987_323_968, 49_152, 184_320, 0),
    "minimax-m3": (426_174_572_928, 25_962_473_856, 137_472, 137_472, 0),
    "deepseek-v4-flash": (284_332_230_231, 13_799_622_231, 6_880, 50_912, 0),
    "gemma-4-e2b": (4_628_569_379, 2_279_759_139, 6_144, 18_432, 0),
    "kimi-linear-48b": (49_122_681_728, 3_484_459_904, 8_064, 8_064, 43_417_600),
    "hy3": (295_033_543_488, 20_675_730_240, 327_680, 327_680, 0),
    "ling-3.0-flash": (124_414_211_552, 5_505_693_152, 8_064, 8_064, 75_980_800),
    "falcon-h1-7b": (7_585_519_712, 7_585_519_712, 45_056, 45_056, 139_358_208),
    "bamba-9b": (9_780_235_392, 9_780_235_392, 12_288, 12_288, 123_104_768),
    "lfm2-1.2b": (1_170_340_608, 1_170_340_608, 12_288, 12_288, 81_920),
    "lfm2-8b-a1b": (8_339_930_560, 1_557_740_992, 12_288, 12_288, 147_456),
    "olmo-3-7b": (7_298_011_136, 7_298_011_136, 131_072, 524_288, 0),
    "command-r7b": (8_028_033_024, 8_028_033_024, 32_768, 131_072, 0),
    "exaone-4.0-32b": (32_003_216_384, 32_003_216_384, 65_536, 262_144, 0),
    "glm-5.2-like": (743_377_019_904, 41_250_530_304, 95_232, 95_232, 0),
    "mistral-small-4": (118_972_826_624, 6_632_588_288, 23_040, 23_040, 0),
    "nemotron-nano-9b-v2": (8_888_227_328, 8_888_227_328, 16_384, 16_384, 143_548_416),
    "mistral-7b-v0.1": (7_241_732_096, 7_241_732_096, 0, 131_072, 0),
    "phi-4-mini": (3_836_021_760, 3_836_021_760, 131_072, 131_072, 0),
    "qwen3-vl-8b": (8_190_735_360, 8_190_735_360, 147_456, 147_456, 0),
    "hunyuan-7b": (7_504_568_320, 7_504_568_320, 131_072, 131_072, 0),
    "hunyuan-a13b": (80_393_183_232, 12_747_448_320, 131_072, 131_072, 0),
    "dots.llm1": (142_774_381_696, 14_016_588_928, 1_015_808, 1_015_808, 0),
    "mimo-v2-flash": (308_778_780_864, 15_445_936_320, 23_040, 222_720, 0),
    "granite-4.0-h-tiny": (6_939_037_248, 1_465_470_528, 8_192, 8_192, 57_341_952),
    "granite-4.0-micro": (3_402_836_480, 3_402_836_480, 81_920, 81_920, 0),
    "glm-4.7-flash": (29_943_393_920, 3_896_766_080, 54_144, 54_144, 0),
    "gemma-3n-e4b": (6_835_235_568, 4_486_425_328, 8_192, 40_960, 0),
    "ministral-3-8b": (8_489_553_920, 8_489_553_920, 139_264, 139_264, 0),
    "laguna-xs": (33_442_617_088, 3_017_135_872, 40_960, 163_840, 0),
    "kimi-k3": (2_779_484_476_000, 105_364_017_760, 27_648, 27_648, 449_372_160),
}


def test_every_config_has_its_numbers() -> None:
    assert {file.stem for file in CONFIGS.glob("*.json")} == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes(name: str) -> None:
    model = load_model(str(CONFIGS / f"{name}.json"))
    assert (
        model.parameters_total,
        model.parameters_active,
        model.kv_bytes_per_token_growing,
        model.kv_bytes_per_token_all_layers,
        model.state_bytes_per_sequence,
    ) == PUBLISHED[name]


def test_kimi_k3_is_as_large_as_its_files() -> None:
    model = load_model(str(CONFIGS / "kimi-k3.json"))
    assert model.experts is not None
    classes = ("query_output", "key_value", "ffn", "head", "router", "embedding")
    bits = sum(getattr(model, each) * getattr(model, f"{each}_bits") for each in classes)
    bits += model.vectors * model.vector_bits + model.experts.elements * model.experts.bits
    assert bits / 8 == pytest.approx(1453.66 * 2**30, rel=1e-3)  # its vision tower is 0.04 % of them


LLAMA: dict[str, Any] = {
    "model_type": "someone_else",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_shared_experts": 1}
LATENT = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}


def read(drop: tuple[str, ...] = (), **changes: Any) -> Model:
    return read_model(json.dumps({k: v for k, v in (LLAMA | changes).items() if k not in drop}), "tiny", "test")


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, {"model_type": "llama"}),
        ({"attention_bias": True}, {"model_type": "llama", "attention_bias": True}),
        ({"sliding_window": 128}, {"model_type": "mistral", "sliding_window": 128}),
        (LATENT, {"model_type": "minicpm3", **LATENT}),
    ],
)
def test_an_unknown_type_of_known_keys_counts_as_its_blocks(changes: dict[str, Any], known: dict[str, Any]) -> None:
    model, same = read(**changes), read(**known)
    assert any(flag.startswith("unverified_architecture") for flag in model.flags)
    assert not any(flag.startswith("unverified_architecture") for flag in same.flags)
    assert (model.parameters_total, model.groups) == (same.parameters_total, same.groups)


def test_an_unknown_type_may_have_experts() -> None:
    model, dense = read(**EXPERTS), read(intermediate_size=32)
    assert model.parameters_total == dense.parameters_total + 3 * (8 * 3 * 64 * 32 + 64 * 8)
    assert model.parameters_total - model.parameters_active == 3 * 6 * 3 * 64 * 32


def test_an_unknown_type_around_a_known_language_model() -> None:
    inner = {**LLAMA, "model_type": "llama"}
    model = read_model(json.dumps({"model_type": "new_vl", "text_config": inner}), "tiny", "test")
    assert model.parameters_total == read(model_type="llama").parameters_total
    assert any(flag.startswith("unverified_architecture") for flag in model.flags)


@pytest.mark.parametrize(
    ("drop", "changes", "message"),
    [
        ((), {"hc_mult": 4}, "keys of unknown meaning .hc_mult."),
        ((), {"mystery_rank": 4, "another": [1]}, "keys of unknown meaning .another, mystery_rank."),
        (("num_key_value_heads", "vocab_size"), {}, "missing vocab_size, num_key_value_heads"),
        (("tie_word_embeddings",), {}, "missing tie_word_embeddings"),
        (("hidden_act",), {}, "missing hidden_act"),
        ((), {"hidden_act": "gelu"}, "is its FFN gated"),
        ((), {"num_experts": 8}, "missing num_experts_per_tok"),
        ((), {"kv_lora_rank": 16}, "missing q_lora_rank, qk_rope_head_dim|missing .*q_lora_rank"),
        ((), {"layer_types": ["full_attention", "conv", "conv"]}, "layer_types with conv"),
        ((), {"mamba_d_state": 16}, "mamba_d_state"),
    ],
)
def test_an_unknown_type_is_never_guessed(drop: tuple[str, ...], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(drop, **changes)
