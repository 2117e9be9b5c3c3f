"""`--explain`: the arithmetic that is printed, computed again, and the source of every number in it."""

from __future__ import annotations

import json
import math
import re

import pytest

from kvwall.spaces.models.load import load_model, loadable_model_names
from kvwall.sweep.cli import run
from kvwall.sweep.equation import FUNCTIONS, Explanation, Sheet
from kvwall.sweep.explain import declare_axes, explain
from kvwall.sweep.single import single_design
from tests.calculator import ASSUMED, CALCULATOR

LLAMA = "meta-llama/Meta-Llama-3-70B"
DESIGN = ("--model", LLAMA, "--hardware", "h100-sxm", "--tensor-parallel", "8", "--batch", "4")


ENGINES = ("vllm", "vllm-0.20", "vllm-0.7", "sglang", "trtllm", "llamacpp")
EXPLAINED = [
    (*DESIGN, "--context", "4096"),
    (*DESIGN, "--context", "30000", "--output-tokens", "1000", "--key-bits", "4", "--value-bits", "2",
     "--kv-group-size", "64", "--residual-window", "128", "--outlier-fraction", "0.01", "--retention", "0.4",
     "--sink-tokens", "4", "--recent-tokens", "60", "--placement-host", "0.3", "--weight-bits", "4",
     "--activation-bits", "8", "--utilisation", "0.9", "--task", "retrieval", "--price-basis", "list"),
    (*DESIGN, "--context", "30000", "--key-bits", "3", "--question-visible", "false", "--retention", "0.2",
     "--evictor", "position", "--quantizer", "naive", "--task", "perplexity", "--price-basis", "tco"),
    ("--model", "paper/llama-3-70b", "--hardware", "paper/b200", "--context", "128000", "--weight-bits", "4",
     "--activation-bits", "4", "--key-bits", "4", "--value-bits", "4"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", EXPLAINED)
def test_printed_arithmetic_gives_the_printed_result(capsys, arguments):
    """The right-hand side with its numbers, computed again, is the result that the laws gave."""
    run(["evaluate", "--mode", "ceiling", *arguments, "--explain"])
    out = capsys.readouterr().out
    explained = out[out.index("\nTokens\n") : out.index("\nInputs, ")]
    blocks = re.findall(r"^  (\w+) = (.+)\n +  = (.+)\n +  = (\S+)", explained, flags=re.MULTILINE)
    assert len(blocks) > 15
    assert len(blocks) == explained.count("\n   ") // 2
    for symbol, _formula, substituted, result in blocks:
        assert not {word for word in re.findall(r"[A-Za-z_]{2,}", substituted)} - FUNCTIONS
        again = eval(substituted, {"__builtins__": {}}, CALCULATOR)
        largest = max(abs(float(number)) for number in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", substituted))
        tolerance = 1e-7 * (largest if symbol == "memory_margin" else abs(float(result)))
        assert again == pytest.approx(float(result), rel=0, abs=tolerance + 1e-12), symbol


REMEDIES = {
    "output_tokens": 1000, "key_bits": 4, "value_bits": 2, "kv_group_size": 64, "residual_window": 128,
    "outlier_fraction": 0.01, "retention": 0.4, "sink_tokens": 4, "recent_tokens": 60, "placement_host": 0.3,
    "read_fraction": 0.25, "block_size": 64, "prefix_share": 0.5, "prefix_group": 8,
    "prefix_aware_attention": True, "prefix_hit_rate": 0.4, "draft_tokens": 3, "acceptance_rate": 0.6,
}  # fmt: skip
"""Of one replica in one domain."""
DEVICES = {
    "tensor_parallel": 2, "context_parallel": 2, "attention_data_parallel": 3, "pipeline_parallel": 7, "batch": 16,
    "draft_tokens": 2, "serving_mode": "continuous", "output_tokens": 500, "prefix_hit_rate": 0.25,
    "die_placement": "pinned", "placement_host": 0.2, "placement_nvme": 0.1, "link_overlap": 0.6, "utilisation": 0.9,
    "activation_bits": 8, "key_bits": 8, "value_bits": 8,
}  # fmt: skip
"""Everything that devices divide unevenly, over several domains."""
PARKED = {
    "access": "parked", "placement_host": 0.2, "placement_cxl": 0.1, "placement_remote": 0.05, "link_overlap": 0.5,
    "prefix_hit_rate": 0.6, "prefix_share": 0.9, "prefix_group": 4, "prefix_aware_attention": True,
    "reservation": "contiguous", "max_model_length": 60_000, "pipeline_parallel": 2, "output_tokens": 300,
    "weight_bits": 4, "retention": 0.3,
}  # fmt: skip
EXPERTS = {"expert_parallel": 4, "expert_skew": 0.8}
MIXTURES = (
    "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3-Next-80B-A3B-Instruct", "openai/gpt-oss-120b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
)  # fmt: skip


LAYOUTS = (
    "deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V3.2", "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "google/gemma-3-27b-it", "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "nvidia/Nemotron-H-56B-Base-8K", "mistralai/Mamba-Codestral-7B-v0.1",
)  # fmt: skip
OF_EVERY_TYPE = [
    *((name, {"context": (3000, 30_000)[number % 3 > 0]}, number % 2 > 0)
      for number, name in enumerate({load_model(name).model_type: name for name in loadable_model_names()}.values())),
    *((name, {"context": 30_000, "tensor_parallel": 8}, True) for name in LAYOUTS),
]  # fmt: skip
COMBINED = [
    (name, {"context": 30_000, "hardware": "h200-sxm"} | axes | more)
    for name in (LLAMA, *LAYOUTS[:6], "nvidia/Nemotron-H-56B-Base-8K")
    for axes in (DEVICES, PARKED)
    for more in ([{}, EXPERTS] if name in MIXTURES and axes is DEVICES else [{}])
]


def explained(model: str, **axes: object) -> Explanation:
    """The explanation of a design on which every figure has a value."""
    design = {"model": model, "hardware": "h100-sxm", "context": 30_000, "batch": 3} | axes
    return explain(single_design(design, task="aggregate", confidence=0.9, mode="ceiling", assume=ASSUMED))


def check_arithmetic(found: Explanation) -> None:
    """Every printed formula with its printed numbers gives the printed result."""
    for equation in found.equations:
        again = eval(equation.substituted, {"__builtins__": {}}, CALCULATOR)
        size = abs(equation.result)
        if equation.symbol.endswith("_margin") or equation.symbol == "fixed":  # differences
            size = max(size, *(abs(value) for value in equation.numbers.values()))
        if equation.symbol == "crossover_context":
            size = equation.numbers["weights_per_sequence"] / equation.numbers["growth"]
        if equation.symbol.startswith("distance_"):  # of what a margin leaves of a place
            size = max(1.0, 0.1 * math.exp(abs(equation.result)))
        tolerance = 2e-7 * size + 1e-12
        assert again == pytest.approx(equation.result, rel=0, abs=tolerance), equation.symbol
    symbols = {equation.symbol for equation in found.equations}
    assert symbols >= {"kv_read", "kv_stored", "kv_written", "weights_read", "hbm_bytes", "step", "memory_margin"}


@pytest.mark.parametrize(("model", "axes", "remedied"), OF_EVERY_TYPE)
def test_arithmetic_of_every_type_of_model_gives_its_result(model, axes, remedied):
    """Plain designs and designs with every remedy, at contexts on both sides of windows and top-k."""
    check_arithmetic(explained(model, **axes, **(REMEDIES if remedied else {})))


@pytest.mark.parametrize(("model", "axes"), COMBINED)
def test_arithmetic_of_combined_axes_gives_its_result(model, axes):
    found = explained(model, **axes)
    check_arithmetic(found)
    assert {"M", "time_to_first_token"} <= {equation.symbol for equation in found.equations}


@pytest.mark.parametrize("engine", ENGINES)
def test_arithmetic_of_an_engine_s_memory_gives_its_result(engine):
    """The pool as each engine means its fraction, in blocks, with and without recurrent states and stages."""
    model, axes = ((LLAMA, {"tensor_parallel": 8}), ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"pipeline_parallel": 5}))[
        ENGINES.index(engine) % 2
    ]
    found = explained(model, engine=engine, **axes)
    check_arithmetic(found)
    sources = {each.symbol: each.source for each in found.inputs}
    assert sources["utilisation"].endswith("neutral: the engine's own")
    assert sources["memory_seen"].startswith(f"engine {engine}")


def of_one_axis() -> dict[str, dict[str, object]]:
    """Each axis that equations speak of, with the axes without which it changes nothing."""
    pages = {"prefix_share": 0.5, "prefix_group": 2}
    ranks = {"tensor_parallel": 4, "attention_data_parallel": 2}
    return {
        "read_fraction": {"read_fraction": 0.2}, "block_size": {"block_size": 48},
        "max_model_length": {"max_model_length": 40_000, "reservation": "contiguous"},
        "prefix_share": pages, "prefix_group": pages,
        "prefix_aware_attention": pages | {"prefix_aware_attention": True},
        "prefix_hit_rate": {"prefix_hit_rate": 0.5}, "placement_host": {"placement_host": 0.2},
        "placement_cxl": {"placement_cxl": 0.2}, "placement_nvme": {"placement_nvme": 0.2},
        "placement_remote": {"placement_remote": 0.2}, "access": {"placement_host": 0.2, "access": "parked"},
        "link_overlap": {"placement_host": 0.2, "link_overlap": 0.3}, "tensor_parallel": {"tensor_parallel": 4},
        "pipeline_parallel": {"pipeline_parallel": 6}, "context_parallel": {"context_parallel": 2},
        "attention_data_parallel": {"attention_data_parallel": 2}, "expert_parallel": ranks | {"expert_parallel": 2},
        "expert_skew": ranks | {"expert_parallel": 8, "expert_skew": 1.5}, "draft_tokens": {"draft_tokens": 4},
        "acceptance_rate": {"draft_tokens": 4, "acceptance_rate": 0.5}, "die_placement": {"die_placement": "pinned"},
        "utilisation": {"utilisation": 0.8}, "serving_mode": {"serving_mode": "continuous", "output_tokens": 100},
    }  # fmt: skip


@pytest.mark.parametrize("axis", of_one_axis())
def test_an_axis_appears_where_it_is_used_and_only_there(axis):
    """The equations are those of the neutral design but for the axis's, and name it with the user as source."""
    dense_or_not = (LLAMA, *MIXTURES, "google/gemma-3-27b-it")
    others = MIXTURES if axis.startswith("expert") else dense_or_not
    model = (
        LLAMA if axis in {"read_fraction", "prefix_share"} else others[sorted(of_one_axis()).index(axis) % len(others)]
    )
    axes = of_one_axis()[axis]
    found, neutral = explained(model, **axes), explained(model, **{each: axes[each] for each in axes if each != axis})
    check_arithmetic(found)
    assert {(e.symbol, e.substituted) for e in found.equations} != {
        (e.symbol, e.substituted) for e in neutral.equations
    }
    user, before = (
        {each.source for each in explanation.inputs if each.source.endswith("user")} for explanation in (found, neutral)
    )
    words = {"access", "prefix_aware_attention", "die_placement", "serving_mode"}
    assert axis in words or f"axis {axis}, user" in user - before


def test_a_neutral_design_is_short():
    found = explained(LLAMA)
    symbols = {each.symbol for each in found.inputs}
    axes = {"B", "context", "output_tokens", "key_bits", "value_bits", "activation_bits"}
    assert {each.symbol for each in found.inputs if each.source.startswith("axis")} == axes
    assert not {"TP", "utilisation", "M"} & symbols
    assert len(found.equations) < 45


def test_words_of_axes_are_given_as_numbers_with_their_source():
    found = explained(LLAMA, reservation="contiguous", max_model_length=60_000, utilisation=0.9)
    sources = {each.symbol: (each.value, each.source) for each in found.inputs}
    assert sources["max_model_length"] == (60_000, "axis max_model_length, user")
    assert sources["utilisation"] == (0.9, "axis utilisation, user")
    sheet = Sheet()
    single = single_design({"model": LLAMA, "hardware": "h100-sxm", "context": 9000}, task="aggregate", confidence=0.9,
                           mode="ceiling", assume={})  # fmt: skip
    declare_axes(sheet, single)
    sheet.add("Section", "both", "utilisation*max_model_length", 9000, "")
    neutral = {each.symbol: (each.value, each.source) for each in sheet.explanation().inputs}
    assert neutral["utilisation"] == (1, "axis utilisation, neutral: the engine's own")
    assert neutral["max_model_length"] == (9000, "axis max_model_length, neutral: what the sequence needs")


def test_an_impossible_layout_has_no_equations():
    found = explained(LLAMA, tensor_parallel=7)
    assert found.equations == ()
    assert found.notes[0].startswith("no equations: the layout is impossible: ")


def lines_of(model: str, **axes: object) -> dict[str, str]:
    """Symbol -> formula of a design's explanation."""
    design = {"model": model, "hardware": "h200-sxm", "context": 65_536, **axes}
    single = single_design(design, task="aggregate", confidence=0.9, mode="ceiling", assume={})
    return {equation.symbol: equation.formula for equation in explain(single).equations}


def test_layouts_read_as_their_papers_say():
    gemma = lines_of("google/gemma-3-27b-it")
    assert gemma["seen_window"] == "min(C, window)"
    assert gemma["kv_read"] == "B*(read_window + read_full)"
    assert "seen_full" not in gemma
    scout = lines_of("meta-llama/Llama-4-Scout-17B-16E-Instruct", batch=8)
    assert scout["seen_chunked"] == "(chunk + 1)/2"
    assert scout["held_chunked"] == "min(C_end, chunk)"
    assert scout["distinct"] == "E*(1 - (1 - k/E)**B)"
    sparse = lines_of("deepseek-ai/DeepSeek-V3.2")
    assert sparse["prompt_attention"] == "2*layers*(query_heads*prefill_dim*pairs + index_heads*index_dim*indexed)"
    assert sparse["pairs"] == "top_k*(context - top_k/2)"
    assert sparse["entry"] == "(latent_dim*bits_K + rope_dim*16)/8"
    assert sparse["chosen"] == "min(C, top_k)"
    assert sparse["read"] == "layers*(entry*chosen + index*C)"
    assert sparse["growth"] == "layers*index"
    assert "bits_V" not in sparse
    hybrid = lines_of("nvidia/Nemotron-H-56B-Base-8K", tensor_parallel=8)
    assert hybrid["state_recurrent"] == "layers_recurrent*state_bytes_recurrent/TP"
    assert hybrid["fixed"] == "state_recurrent"
    assert "distinct" not in hybrid
    dense = lines_of(LLAMA)
    assert not {"distinct", "chosen", "seen", "state", "keep", "tier_bytes", "scale_up_bytes", "fixed"} & set(dense)
    spread = lines_of("deepseek-ai/DeepSeek-V3.2", tensor_parallel=8, pipeline_parallel=2, expert_parallel=8, batch=64)
    assert spread["distinct"] == "E*(1 - (1 - k/E)**(B/M))"
    few = lines_of("openai/gpt-oss-120b", tensor_parallel=8, expert_parallel=8)
    assert few["met"] == "min(max(distinct/EP, ceil(k/EP)), ceil(E/EP))"
    assert few["t_hbm"] == "(hbm_bytes + experts_more)/memory_bandwidth"
    assert spread["layers_read"] == "M*(dense + experts_read)"
    assert spread["visit"] == "1 - (1 - 1/EP)**k"
    assert "split" not in spread


def test_a_model_without_crossover_says_why():
    single = single_design(
        {"model": "mistralai/Mamba-Codestral-7B-v0.1", "hardware": "h100-sxm", "context": 9000},
        task="aggregate", confidence=0.9, mode="ceiling", assume={},
    )  # fmt: skip
    found = explain(single)
    assert "crossover: never: only a fixed recurrent state" in found.notes
    assert "crossover_context" not in {equation.symbol for equation in found.equations}


def test_the_comparison_of_explained_arithmetic_can_fail():
    sheet = Sheet()
    sheet.given("a", 2.0, "a number", "axis")
    sheet.add("Section", "b", "a + 1", 4.0, "")
    assert eval(sheet.explanation().equations[0].substituted) != 4.0


@pytest.mark.parametrize("arguments", EXPLAINED)
def test_explained_results_are_the_report_s_metrics(capsys, arguments):
    run(["evaluate", "--mode", "ceiling", *arguments, "--explain", "--json"])
    found = json.loads(capsys.readouterr().out)
    results = {equation["symbol"]: equation["result"] for equation in found["explain"]["equations"]}
    for name in (
        "tokens_per_second",
        "time_to_first_token",
        "memory_margin",
        "arithmetic_intensity",
        "energy_per_token",
    ):
        if found["metrics"][name] is not None:
            assert results[name] == pytest.approx(found["metrics"][name], rel=1e-12)
    assert results["crossover_context"] == pytest.approx(found["metrics"]["crossover_context_bytes"], rel=1e-12)


def test_every_symbol_is_a_result_or_an_input_with_a_source():
    axes = {"model": LLAMA, "hardware": "b200-sxm", "context": 9000, "placement_host": 0.2, "key_bits": 4}
    assume = {"host_link_bandwidth": "64 GB/s"}
    single = single_design(axes, task="aggregate", confidence=0.9, mode="ceiling", assume=assume)
    found = explain(single)
    sources = {each.symbol: each.source for each in found.inputs}
    known = {*sources, *(equation.symbol for equation in found.equations)}
    for equation in found.equations:
        assert set(equation.numbers) <= known
    assert all(sources.values())
    assert sources["host"] == "axis placement_host, user"
    assert sources["B"] == "axis batch, neutral"
    assert sources["host_link_bandwidth"].startswith("assumed")
    assert "aiconfigurator" in sources["memory_bandwidth"]
    assert LLAMA in sources["hidden"]
