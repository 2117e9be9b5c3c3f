"""`--explain` of an estimate: the arithmetic that is printed, computed again, operator by operator."""

from __future__ import annotations

import re

import pytest

from kvwall.sweep.equation import Explanation
from kvwall.sweep.explain import explain
from kvwall.sweep.single import single_design
from tests.calculator import ASSUMED, CALCULATOR

DESIGN = {"hardware": "h100-sxm", "context": 30_000, "batch": 8, "engine": "vllm"}
CASES = [
    {"model": "meta-llama/Meta-Llama-3-70B", "tensor_parallel": 4},
    {"model": "meta-llama/Meta-Llama-3-8B", "key_bits": 8, "value_bits": 8, "weight_bits": 8, "activation_bits": 8},
    {"model": "deepseek-ai/DeepSeek-V3", "tensor_parallel": 8, "output_tokens": 500, "serving_mode": "continuous"},
    {"model": "openai/gpt-oss-120b", "pipeline_parallel": 2, "tensor_parallel": 2, "draft_tokens": 2},
    {"model": "meta-llama/Meta-Llama-3-70B", "tensor_parallel": 4, "placement_host": 0.4, "link_overlap": 0.5,
     "output_tokens": 300, "serving_mode": "continuous", "prefix_hit_rate": 0.3},
]  # fmt: skip


def explained(**axes: object) -> Explanation:
    """The explanation of an estimate."""
    design = DESIGN | axes
    return explain(single_design(design, task="aggregate", confidence=0.9, mode="estimate", assume=ASSUMED))


@pytest.mark.parametrize("axes", CASES, ids=lambda axes: str(axes["model"]))
def test_the_arithmetic_gives_the_result(axes: dict[str, object]) -> None:
    found = explained(**axes)
    for equation in found.equations:
        again = eval(equation.substituted, {"__builtins__": {}}, CALCULATOR)
        largest = max(map(float, re.findall(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", equation.substituted)))
        size = largest if equation.symbol == "memory_margin" else abs(equation.result)
        assert again == pytest.approx(equation.result, rel=0, abs=1e-7 * size + 1e-12), equation.symbol
    symbols = {equation.symbol for equation in found.equations}
    assert {"t_matrices", "t_attention", "t_overhead", "step", "step_ceiling", "time_per_output_token",
            "time_per_output_token_low", "tokens_per_second_high", "time_to_first_token"} <= symbols  # fmt: skip


def test_the_estimate_is_what_evaluate_reports() -> None:
    single = single_design(DESIGN | CASES[0], task="aggregate", confidence=0.9, mode="estimate", assume={})
    results = {equation.symbol: equation.result for equation in explain(single).equations}
    for name in ("time_per_output_token", "tokens_per_second", "time_to_first_token", "time_per_output_token_high"):
        assert results[name] == pytest.approx(float(single.evaluation.metrics[name])), name
    assert results["time_per_output_token"] > results["step_ceiling"]


def test_every_number_of_the_calibration_names_it() -> None:
    inputs = {each.symbol: each for each in explained(**CASES[2]).inputs}
    for symbol in ("share_latent", "per_layer", "per_routing", "per_step", "per_call", "share_link", "mixing"):
        assert re.match(r"calibration \S+, fitted \S+ to \d+ rows, of vllm on h100-sxm", inputs[symbol].source), symbol
    assert 0 < inputs["share_latent"].value <= 1


def test_an_unsourced_design_has_the_sections_that_need_no_time() -> None:
    found = explained(model="meta-llama/Meta-Llama-3-70B", hardware="groq-lpu1", tensor_parallel=8, placement_cxl=0.2)
    assert "t_matrices" not in {equation.symbol for equation in found.equations}
