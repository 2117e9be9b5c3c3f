"""`--explain`: the arithmetic that is printed, computed again, and the source of every number in it."""

from __future__ import annotations

import json
import math
import re

import pytest

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
    assert len(blocks) > 25
    assert len(blocks) == explained.count("\n   ") // 2
    for symbol, _formula, substituted, result in blocks:
        assert not {word for word in re.findall(r"[A-Za-z_]{2,}", substituted)} - FUNCTIONS
        again = eval(substituted, {"__builtins__": {}}, CALCULATOR)
        largest = max(abs(float(number)) for number in re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", substituted))
        tolerance = 1e-7 * (largest if symbol == "memory_margin" else abs(float(result)))
        assert again == pytest.approx(float(result), rel=0, abs=tolerance + 1e-12), symbol


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
