"""Engine profiles: every figure sourced, every band in its place, and what labels of published rows stand for."""

from __future__ import annotations

from dataclasses import fields, replace

import jax
import pytest

from kvwall.spaces import labels
from kvwall.spaces.engine_columns import EngineColumns
from kvwall.spaces.engines import engine_bands, engine_names, engine_of_version, load_engine
from kvwall.spaces.errors import InputError
from kvwall.spaces.models.load import load_model
from kvwall.spaces.models.stored_as import stored_as

GIB = 2**30


@pytest.mark.parametrize("name", engine_names())
def test_every_figure_is_a_number_with_a_source(name):
    engine = load_engine(name)
    assert set(engine.figures) == {field.name for field in fields(EngineColumns)}
    assert all(figure.source for figure in engine.figures.values())
    assert all(figure.value >= 0 for figure in engine.figures.values())
    assert engine.meaning
    assert len(jax.tree.leaves(engine.columns)) == len(fields(EngineColumns))


def test_names_are_engines_and_their_bands():
    assert engine_names()[0] == "ideal"
    assert {"vllm", "sglang", "trtllm", "llamacpp", "vllm-0.20"} <= set(engine_names())
    assert load_engine("vllm") is load_engine("vllm-0.21")


@pytest.mark.parametrize(
    ("version", "band"),
    [
        ("0.6.3", "vllm-0.7"),
        ("0.8.5", "vllm-0.16"),
        ("0.16.0+rhaiv.2", "vllm-0.16"),
        ("0.17.1", "vllm-0.17"),
        ("0.18.2rc1.dev73+gdb7a17ecc", "vllm-0.20"),
        ("0.20.x/0.21 (not stated)", "vllm-0.20"),
        ("0.21.0", "vllm-0.21"),
        ("1.3", "vllm-0.21"),
    ],
)
def test_a_version_belongs_to_one_band(version, band):
    assert engine_of_version("vllm", version).name == band
    assert band in engine_bands()


def test_an_unknown_engine_is_named_with_its_neighbours():
    with pytest.raises(InputError, match=r'engine "vlm" is unknown \(did you mean vllm'):
        load_engine("vlm")


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"),
        ("RedHatAI/Qwen3.5-397B-A17B-FP8-dynamic", "Qwen/Qwen3.5-397B-A17B"),
        ("Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B-FP8"),
        ("DeepSeek-R1 AWQ int4", "deepseek-ai/DeepSeek-R1"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Qwen/Qwen3-8B"),
        ("openai/gpt-oss-20b (sliding layers)", "openai/gpt-oss-20b"),
        ("Llama-3-70B", "meta-llama/Meta-Llama-3-70B"),
        ("meta-llama/Llama-3-70b", "meta-llama/Meta-Llama-3-70B"),
        ("paper/Llama-3-70B", "paper/llama-3-70b"),
    ],
)
def test_a_label_means_a_model_of_its_shape(label, name):
    assert labels.model_of_label(label) == name


@pytest.mark.parametrize("label", ["DeepSeek-R1-Distill-Phi-8B", "Qwen3.5-500B", "8B GQA model", "gemma-3-27"])
def test_a_label_of_another_shape_is_refused(label):
    with pytest.raises(InputError, match="is not in the catalogue"):
        labels.model_of_label(label)


@pytest.mark.parametrize("stated", ["0 GiB", "9" * 400 + " GiB", "1.2.3 GiB"])
def test_memory_that_no_device_has_is_refused(stated):
    with pytest.raises(InputError, match="GiB"):
        labels.device_of_label(f"H100 ({stated})")


def test_every_alias_names_a_model_that_loads():
    table = labels._table()
    assert {load_model(name).name for name in table["models"].values()} == set(table["models"].values())


def test_memory_in_a_label_goes_before_the_table():
    assert labels.device_of_label("24-GB class (21.48 GiB)").memory == pytest.approx(21.48 * GIB)
    assert labels.device_of_label("MI300X-192GB (inferred)").pads_experts
    assert labels.device_of_label("not seen") is None
    assert labels.usable_memory("h100-sxm") == pytest.approx(79.19 * GIB)
    assert labels.usable_memory("tpu-v4") is None


def test_a_format_in_words_changes_layers_and_not_embeddings():
    model = load_model("meta-llama/Meta-Llama-3.1-8B")
    eight, four = stored_as(model, "fp8 (online)"), stored_as(model, "int4 awq")
    assert (eight.ffn_bits, eight.head_bits, eight.embedding_bits) == (8, 16, 16)
    assert (four.ffn_bits, four.ffn_payload_bits) == (4.125, 4)
    assert stored_as(model, "") is model
    assert stored_as(model, "float32").head_bits == 32
    with pytest.raises(InputError, match='"sixteen" is not known'):
        stored_as(model, "sixteen")


def test_a_native_format_stays_with_its_scales():
    deepseek = load_model("deepseek-ai/DeepSeek-R1")
    assert stored_as(deepseek, "fp8") is deepseek
    oss = stored_as(load_model("openai/gpt-oss-120b"), "mxfp4")
    assert (oss.query_output_bits, oss.experts.payload_bits) == (16, 4)


def test_a_hybrid_in_eight_bits_keeps_its_linear_layers():
    hybrid = load_model("Qwen/Qwen3.5-35B-A3B")
    stored = stored_as(hybrid, "fp8-dynamic (compressed-tensors)")
    assert 8 < stored.query_output_bits < 16
    assert stored.experts.bits == 8
    assert replace(stored, groups=()).parameters_total == hybrid.parameters_total
