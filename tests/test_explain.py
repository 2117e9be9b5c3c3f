"""`--explain`: the arithmetic that is printed, computed again, and the source of every number in it."""

from __future__ import annotations

import json
import math
import re

import pytest

from kvwall.spaces.models.load import loadable_model_names
from kvwall.sweep.cli import run
from kvwall.sweep.equation import FUNCTIONS, Sheet
from kvwall.sweep.explain import explain
from kvwall.sweep.single import single_design

LLAMA = "meta-llama/Meta-Llama-3-70B"
DESIGN = ("--model", LLAMA, "--hardware", "h100-sxm", "--tensor-parallel", "8", "--batch", "4")


CALCULATOR = {"min": min, "max": max, "ceil": math.ceil, "ln": math.log, "exp": math.exp}
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
    run(["evaluate", *arguments, "--explain"])
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
    "tensor_parallel": 8,
}  # fmt: skip


LAYOUTS = (
    "deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V3.2", "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "google/gemma-3-27b-it", "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "nvidia/Nemotron-H-56B-Base-8K", "mistralai/Mamba-Codestral-7B-v0.1",
)  # fmt: skip
EVERY_MODEL = [
    *((name, (3000, 30_000)[number % 3 > 0], number % 2 > 0) for number, name in enumerate(loadable_model_names())),
    *((name, 30_000, remedied) for name in LAYOUTS for remedied in (False, True)),
]


@pytest.mark.parametrize(("model", "context", "remedied"), EVERY_MODEL)
def test_arithmetic_of_every_model_gives_its_result(model, context, remedied):
    """Plain designs and designs with every remedy, at contexts on both sides of windows and top-k."""
    axes = {"model": model, "hardware": "h100-sxm", "context": context, "batch": 3}
    axes |= REMEDIES if remedied else {}
    found = explain(single_design(axes, task="aggregate", confidence=0.9, mode="ceiling", assume={}))
    wall = {"crossover_context", "memory_margin"}  # differences
    for equation in found.equations:
        again = eval(equation.substituted, {"__builtins__": {}}, CALCULATOR)
        largest = max([abs(value) for value in equation.numbers.values()], default=0)
        if equation.symbol == "crossover_context":
            largest = equation.numbers["weights_per_sequence"] / equation.numbers["growth"]
        tolerance = 1e-7 * (largest if equation.symbol in wall else abs(equation.result)) + 1e-12
        assert again == pytest.approx(equation.result, rel=0, abs=tolerance), equation.symbol
    symbols = {equation.symbol for equation in found.equations}
    assert symbols >= {"kv_read", "kv_stored", "kv_written", "weights_read", "hbm_bytes", "step", "memory_margin"}


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
    assert sparse["entry"] == "(latent_dim*bits_K + rope_dim*16)/8"
    assert sparse["chosen"] == "min(C, top_k)"
    assert sparse["read"] == "layers*(entry*chosen + index*C)"
    assert sparse["growth"] == "layers*index"
    assert "bits_V" not in sparse
    hybrid = lines_of("nvidia/Nemotron-H-56B-Base-8K", tensor_parallel=8)
    assert hybrid["state_recurrent"] == "layers_recurrent*state_bytes_recurrent/n"
    assert hybrid["fixed"] == "state_recurrent"
    assert "distinct" not in hybrid
    dense = lines_of(LLAMA)
    assert not {"distinct", "chosen", "seen", "state", "keep", "tier_bytes", "scale_up_bytes", "fixed"} & set(dense)


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
    run(["evaluate", *arguments, "--explain", "--json"])
    found = json.loads(capsys.readouterr().out)
    results = {equation["symbol"]: equation["result"] for equation in found["explain"]["equations"]}
    for name in ("tokens_per_second", "memory_margin", "arithmetic_intensity", "energy_per_token"):
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
