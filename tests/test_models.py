"""Models: every parameter and KV byte counted from the architecture, everything else refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwall.spaces.errors import InputError
from kvwall.spaces.models import Model, load_model, read_model

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def read(changes: dict[str, Any] | None = None, drop: tuple[str, ...] = (), modelopt: str | None = None) -> Model:
    config = {key: value for key, value in (LLAMA | (changes or {})).items() if key not in drop}
    return read_model(json.dumps(config), "tiny", "test", modelopt)


def shape(model_type: str, *sizes: int, **keys: Any) -> dict[str, Any]:
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {"model_type": model_type, **dict(zip((*names, "vocab_size"), sizes, strict=True)), **keys}


def gpt2_shape(model_type: str, *sizes: int, **keys: Any) -> dict[str, Any]:
    names = ("n_embd", "n_layer", "n_head", "n_positions", "vocab_size")
    return {"model_type": model_type, **dict(zip(names, sizes, strict=True)), **keys}


# Sizes of published checkpoints that are not in the catalogue.
PUBLISHED = {
    "aya-23-8b": (shape("cohere", 4096, 14336, 32, 32, 8, 256000), 8_028_033_024),
    "baichuan2-7b": (shape("baichuan", 4096, 11008, 32, 32, 32, 125696), 7_505_973_248),
    "ernie-4.5-0.3b": (shape("ernie4_5", 1024, 3072, 18, 16, 2, 103424, head_dim=128), 360_748_032),
    "exaone-3.0-7.8b": (shape("exaone", 4096, 14336, 32, 32, 8, 102400), 7_818_448_896),
    "exaone-4.0-1.2b": (
        shape("exaone4", 2048, 4096, 30, 32, 8, 102400, head_dim=64, sliding_window=None, tie_word_embeddings=True),
        1_279_391_488,
    ),
    "falcon-40b": (
        {
            "model_type": "RefinedWeb",
            "hidden_size": 8192,
            "n_layer": 60,
            "n_head": 128,
            "n_head_kv": 8,
            "vocab_size": 65024,
        },
        41_303_293_952,
    ),
    "falcon-rw-1b": (
        {
            "model_type": "falcon",
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "vocab_size": 50304,
        },
        1_311_625_216,
    ),
    "gemma-7b": (shape("gemma", 3072, 24576, 28, 16, 16, 256000), 8_537_680_896),
    "glm-4-9b": (shape("glm", 4096, 13696, 40, 32, 2, 151552, head_dim=128), 9_399_951_360),
    "gpt2": (gpt2_shape("gpt2", 768, 12, 12, 1024, 50257), 124_439_808),
    "granite-3.1-8b": (shape("granite", 4096, 12800, 40, 32, 8, 49155, tie_word_embeddings=True), 8_170_848_256),
    "internlm2-7b": (shape("internlm2", 4096, 14336, 32, 32, 8, 92544, bias=False), 7_737_708_544),
    "mistral-small-3.1": (
        {
            "model_type": "mistral3",
            "text_config": shape("mistral", 5120, 32768, 40, 32, 8, 131072, head_dim=128),
        },
        23_572_403_200,
    ),
    "olmo-7b": (shape("olmo", 4096, 11008, 32, 32, 32, 50304), 6_888_095_744),
    "olmo-2-7b": (shape("olmo2", 4096, 11008, 32, 32, 32, 100352), 7_298_617_344),
    "opt-6.7b": (
        {
            "model_type": "opt",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "ffn_dim": 16384,
            "max_position_embeddings": 2048,
            "vocab_size": 50272,
        },
        6_658_473_984,
    ),
    "phi-2": (shape("phi", 2560, 10240, 32, 32, 32, 51200), 2_779_683_840),
    "pythia-6.9b": (shape("gpt_neox", 4096, 16384, 32, 32, 32, 50432), 6_857_302_016),
    "qwen1.5-7b": (shape("qwen2", 4096, 11008, 32, 32, 32, 151936), 7_721_324_544),
    "seed-oss-36b": (shape("seed_oss", 5120, 27648, 64, 80, 8, 155136), 36_151_104_512),
    "smollm3-3b": (shape("smollm3", 2048, 11008, 36, 16, 4, 128256), 3_075_098_624),
    "stablelm-2-12b": (
        shape("stablelm", 5120, 13824, 40, 32, 8, 100352, use_parallel_residual=True, qk_layernorm=True),
        12_143_185_920,
    ),
    "starcoder": (gpt2_shape("gpt_bigcode", 6144, 40, 48, 8192, 49152), 15_517_456_384),
    "starcoder2-3b": (shape("starcoder2", 3072, 12288, 30, 24, 2, 49152), 3_030_371_328),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    config, parameters = PUBLISHED[name]
    assert read_model(json.dumps(config), name, "test").parameters_total == parameters


def test_the_paper_model_is_nominal() -> None:
    model = load_model("paper/llama-3-70b")
    assert (model.ffn, model.parameters_total, model.embedding_row) == (70_000_000_000, 70_000_000_000, 0)
    assert model.kv_bytes_per_token_growing == 327_680
    assert model.max_positions is None
    assert model.groups[0].query_heads == 64


def test_head_dim_is_read_not_divided() -> None:
    nemo = load_model("mistralai/Mistral-Nemo-Instruct-2407")
    assert nemo.hidden // nemo.groups[0].query_heads == 160
    assert nemo.groups[0].key_dim == nemo.groups[0].value_dim == 128
    assert read({"head_dim": 32}).kv_bytes_per_token_growing == 4 * read().kv_bytes_per_token_growing


def test_kv_heads_of_falcon() -> None:
    assert load_model("tiiuae/falcon-7b").groups[0].kv_heads == 1
    assert load_model("tiiuae/falcon-180B").groups[0].kv_heads == 8


@pytest.mark.parametrize(
    ("name", "reduces"),
    [
        ("EleutherAI/gpt-j-6b", 1),
        ("EleutherAI/gpt-neox-20b", 1),
        ("tiiuae/falcon-7b", 1),
        ("tiiuae/falcon-180B", 1),
        ("CohereForAI/c4ai-command-r-plus", 1),
        ("bigscience/bloom", 2),
        ("meta-llama/Meta-Llama-3-8B", 2),
    ],
)
def test_parallel_blocks_reduce_once(name: str, reduces: int) -> None:
    assert load_model(name).reduces_per_layer == reduces


def test_tied_and_learned_tables() -> None:
    tied, untied = read({"tie_word_embeddings": True}), read()
    assert (untied.head, untied.embedding, tied.head, tied.embedding) == (64_000, 64_000, 64_000, 0)
    opt = load_model("facebook/opt-13b")
    assert (opt.embedding, opt.embedding_row) == (2050 * 5120, 2 * 5120)


def test_llama_classes() -> None:
    model = load_model("meta-llama/Meta-Llama-3.1-8B")
    assert model.query_output == 32 * 2 * 4096 * 4096
    assert model.key_value == 32 * 2 * 4096 * 1024
    assert model.ffn == 32 * 3 * 4096 * 14336
    assert model.head == model.embedding == 128256 * 4096
    assert model.vectors == 65 * 4096


@given(
    kv=st.integers(1, 16),
    group=st.integers(1, 16),
    dim=st.integers(1, 256),
    hidden=st.integers(1, 20_000),
    inter=st.integers(1, 60_000),
    layers=st.integers(1, 200),
    vocab=st.integers(1, 300_000),
    tied=st.booleans(),
)
def test_any_llama(kv: int, group: int, dim: int, hidden: int, inter: int, layers: int, vocab: int, tied: bool) -> None:
    sizes = {"hidden_size": hidden, "intermediate_size": inter, "num_hidden_layers": layers, "vocab_size": vocab}
    heads = {"num_attention_heads": kv * group, "num_key_value_heads": kv, "head_dim": dim}
    model = read({**sizes, **heads, "tie_word_embeddings": tied})
    expected = layers * hidden * (2 * (group + 1) * kv * dim + 3 * inter + 2) + hidden * (
        1 + vocab * (1 if tied else 2)
    )
    assert model.parameters_total == expected
    assert model.kv_bytes_per_token_growing == 4 * layers * kv * dim


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 128}, "use_sliding_window=false"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096}, "not shorter"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3},
            "spares every layer",
        ),
        ({"model_type": "mistral"}, "sliding_window not stated"),
        ({"model_type": "phi3", "sliding_window": 262144}, "not shorter"),
        ({"torch_dtype": None}, "16-bit assumed"),
        ({"num_key_value_heads": None}, "MHA"),
        ({"tie_word_embeddings": None}, "class default false"),
    ],
)
def test_what_was_assumed_is_flagged(changes: dict[str, Any], flag: str) -> None:
    model = read(changes)
    assert any(flag in text for text in model.flags)
    assert read().flags == ()


COUNT_KEYS = sorted(key for key, value in LLAMA.items() if type(value) is int)


@pytest.mark.parametrize("key", COUNT_KEYS)
@pytest.mark.parametrize("value", [0, -8, 2.0, float("nan"), float("inf"), "8", True, [8], 2**40])
def test_counts_are_positive_whole_numbers(key: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{key} = .* must be a whole number"):
        read({key: value})


def test_all_missing_keys_are_named_together() -> None:
    with pytest.raises(InputError) as caught:
        read(drop=("hidden_size", "vocab_size", "num_attention_heads"))
    assert caught.value.faults == (
        "tiny: missing hidden_size, vocab_size, num_attention_heads: state them in the file",
    )


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        read({"vocab_size": -1, "num_attention_heads": 9, "torch_dtype": "int3"}, drop=("hidden_size",))
    text = str(caught.value)
    assert all(part in text for part in ("vocab_size = -1", "must divide the 9", "'int3'", "missing hidden_size"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "must divide"),
        ({"num_key_value_heads": 16}, "must divide"),
        ({"hidden_size": 65}, "not a multiple"),
        ({"tie_word_embeddings": "yes"}, "must be true or false"),
        ({"model_type": 7}, "must be a string"),
        ({"model_type": None}, "missing model_type"),
        ({"model_type": "mistral3"}, "missing model_type"),
        ({"model_type": "mistral3", "text_config": "x"}, "must be an object"),
        ({"model_type": "mistral", "num_key_value_heads": 2, "layer_types": "full"}, "list of strings"),
    ],
)
def test_impossible_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(changes)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000])
def test_malformed_json(text: str) -> None:
    with pytest.raises(InputError, match="JSON"):
        read_model(text, "tiny", "test")


def test_paths(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_model(str(file)).parameters_total == load_model(str(tmp_path)).parameters_total
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="UTF-8"):
        load_model(str(file))
    with pytest.raises(InputError, match="no such file"):
        load_model(str(tmp_path / "other.json"))
    with pytest.raises(InputError, match="cannot read|no regular file"):
        load_model(str(tmp_path.parent / tmp_path.name / ".."))


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "nobody/nothing"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(InputError):
        load_model(name)
    with pytest.raises(InputError, match="did you mean meta-llama/Llama-3.3-70B-Instruct"):
        load_model("meta-llama/Llama-3.3-70B-Instrukt")


MODELOPT = json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})


def test_modelopt_sibling_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_model(str(tmp_path)).ffn_bits == 16
    (tmp_path / "hf_quant_config.json").write_text(MODELOPT, encoding="utf-8")
    model = load_model(str(tmp_path))
    assert (model.ffn_bits, model.head_bits, model.embedding_bits, model.vector_bits) == (8, 16, 16, 16)
    catalogued = load_model("nvidia/Llama-3.1-70B-Instruct-FP8")
    assert (catalogued.query_output_bits, catalogued.key_value_bits, catalogued.head_bits) == (8, 8, 16)


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}


def compressed(weights: dict[str, Any], **keys: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, **keys}


@pytest.mark.parametrize(
    ("quantization", "ffn", "payload", "head"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2, 8, 16),
        ({"quant_method": "fp8", "weight_block_size": None}, 8, 8, 16),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128, 4, 16),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1}, 3, 3, 16),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}, 4 + 20 / 128, 4, 4 + 20 / 128),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, 4 + 20 / 64, 4, 16),
        (compressed({**INT4, "symmetric": True}, ignore=["lm_head"]), 4 + 16 / 128, 4, 16),
        (compressed({**INT4, "symmetric": False}, ignore=["lm_head"]), 4 + 20 / 128, 4, 16),
        (compressed({"num_bits": 8, "type": "float", "strategy": "channel"}), 8, 8, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5, 4, 16),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, 4.5, 4, 16),
    ],
)
def test_weight_formats(quantization: dict[str, Any], ffn: float, payload: int, head: float) -> None:
    model = read({"quantization_config": quantization})
    assert model.ffn_bits == model.query_output_bits == model.key_value_bits == pytest.approx(ffn, rel=1e-12)
    assert model.ffn_payload_bits == payload
    assert model.head_bits == pytest.approx(head, rel=1e-12)
    assert model.vector_bits == model.embedding_bits == 16


@pytest.mark.parametrize(
    ("kept", "ffn", "attention"),
    [
        (["model.layers.1.mlp.up_proj"], 8 + 8 / 9, 8),
        (["re:.*mlp.*"], 16, 8),
        (["*.self_attn*"], 8, 16),
        (["model.layers.0.self_attn", "model.layers.2.self_attn", "model.layers.2.mlp"], 8 + 8 / 3, 8 + 16 / 3),
        (["model.language_model.layers.0.mlp"], 8 + 8 / 3, 8),
    ],
)
def test_matrices_left_unquantized_count_at_their_own_bits(kept: list[str], ffn: float, attention: float) -> None:
    quantization = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", *kept]}
    model = read({"quantization_config": quantization})
    assert model.ffn_bits == pytest.approx(ffn, rel=1e-12)
    assert model.query_output_bits == model.key_value_bits == pytest.approx(attention, rel=1e-12)
    assert model.ffn_payload_bits == (16 if ffn > 12 else 8)
    assert model.flags == ()


def test_stray_entries_are_flagged() -> None:
    model = read({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.7.mlp"]}})
    assert any("name no counted matrix" in flag for flag in model.flags)


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({"bits": 4}, "missing quant_method"),
        ({"quant_method": "gptqq", "bits": 4}, "not known .did you mean gptq"),
        ({"quant_method": "gptq", "group_size": 128}, "missing bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "whole number"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "two positive"),
        ({"quant_method": "fp8", "modules_to_not_convert": ["re:("]}, "no regular expression"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "not known"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "0 config_groups"),
        ("fp8", "must be an object"),
    ],
)
def test_impossible_weight_formats(quantization: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read({"quantization_config": quantization})


def test_devstral_keeps_its_head_and_drops_its_tower() -> None:
    model = load_model("mistralai/Devstral-Small-2-24B-Instruct-2512")
    assert (model.ffn_bits, model.key_value_bits, model.head_bits, model.embedding_bits) == (8, 8, 16, 16)
    assert "vision tower not counted" in model.flags
