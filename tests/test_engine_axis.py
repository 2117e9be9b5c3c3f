"""Engines as an axis: what published start-up logs printed, from the settings a user knows beforehand.

Logs: llm-d-incubation/llm-d-planner pull 205, vLLM 0.19.0 on an 80 GB H100 at 0.95 of its memory, 16-token blocks.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

import kvwall as kv
from kvwall.spaces.axes import ENGINES

GIB = 2**30
LLAMA, QWEN = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct"
SETTINGS = {"hardware": "h100-sxm", "context": 1, "engine": "vllm-0.20", "utilisation": 0.95}


@pytest.mark.parametrize(
    ("model", "tensor", "length", "gib", "blocks", "concurrency"),
    [
        (LLAMA, 1, 8192, 58.11, 29_751, 58.11),
        (LLAMA, 1, 32_768, 58.11, 29_751, 14.53),
        (LLAMA, 4, 8192, 67.44, 138_112, 269.75),
        (QWEN, 1, 8192, 58.53, 68_500, 133.79),
        (QWEN, 2, 8192, 63.84, 149_412, 291.82),
    ],
)
def test_a_pool_is_what_the_log_says(
    model: str, tensor: int, length: int, gib: float, blocks: float, concurrency: float
) -> None:
    report = kv.evaluate(mode="ceiling", model=model, tensor_parallel=tensor, max_model_length=length, **SETTINGS)
    found = report.metrics
    assert found["kv_pool_bytes"] / GIB == pytest.approx(gib, rel=0.03)
    assert found["kv_pool_blocks"] == pytest.approx(blocks, rel=0.03)
    assert found["max_concurrency"] == pytest.approx(concurrency, rel=0.03)
    per_block = found["kv_pool_bytes"] / found["kv_pool_blocks"]
    assert per_block == pytest.approx(gib * GIB / blocks, rel=2e-4)
    assert found["kv_pool_tokens"] == 16 * found["kv_pool_blocks"]


def test_gemma_pays_for_pad_layers_and_for_windows_by_what_a_batch_spans() -> None:
    """62 layers take 7 groups of 10: 19.53 GiB held 15,997 blocks, and 4.46 requests of 8,192 tokens."""
    found = kv.evaluate(mode="ceiling", model="google/gemma-3-27b-it", max_model_length=8192, **SETTINGS).metrics
    assert found["kv_pool_bytes"] / found["kv_pool_blocks"] == pytest.approx(19.53 * GIB / 15_997, rel=1e-3)
    assert found["max_concurrency"] / found["kv_pool_blocks"] == pytest.approx(4.46 / 15_997, rel=2e-3)


def test_every_engine_reserves_memory_that_the_ideal_one_does_not() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192, "batch": 16}
    ideal = kv.evaluate(mode="ceiling", **design).metrics
    for engine in ENGINES:
        found = kv.evaluate(mode="ceiling", **design, engine=engine).metrics
        assert found["time_per_output_token"] == ideal["time_per_output_token"]
        assert found["kv_pool_bytes"] <= ideal["kv_pool_bytes"] + 1 or engine in {"llamacpp", "ideal"}
        assert found["max_batch"] == int(found["max_concurrency"])


def test_pools_grow_with_utilisation_and_its_word_is_the_engine_s_own() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192}
    for engine in ("vllm", "sglang", "trtllm"):
        pools = [
            kv.evaluate(mode="ceiling", **design, engine=engine, utilisation=share).metrics["kv_pool_bytes"]
            for share in (0.6, 0.8, 0.95)
        ]
        assert all(fewer < more for fewer, more in pairwise(pools))
        own = kv.evaluate(mode="ceiling", **design, engine=engine).metrics["kv_pool_bytes"]
        assert (
            own == kv.evaluate(mode="ceiling", **design, engine=engine, utilisation="engine").metrics["kv_pool_bytes"]
        )
        assert pools[0] < own < pools[-1] + 0.1 * own


def test_remedies_reach_engines_too() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192, "engine": "vllm"}
    plain = kv.evaluate(mode="ceiling", **design).metrics["max_concurrency"]
    assert kv.evaluate(mode="ceiling", **design, key_bits=8, value_bits=8).metrics["max_concurrency"] == pytest.approx(
        2 * plain, rel=0.01
    )
    assert kv.evaluate(mode="ceiling", **design, retention=0.5).metrics["max_concurrency"] == pytest.approx(
        2 * plain, rel=0.01
    )
    shared = kv.evaluate(mode="ceiling", **design, prefix_share=0.5, prefix_group=1000).metrics["max_concurrency"]
    assert shared == pytest.approx(2 * plain, rel=0.02)


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang"])
@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_the_longest_context_fits_and_one_block_more_does_not(model: str, engine: str) -> None:
    """Whatever context was asked about: windows are charged by what a batch spans, so the answer is found by search."""
    design = {"model": model, "hardware": "h200-sxm", "tensor_parallel": 2, "batch": 8, "engine": engine}
    longest = kv.evaluate(mode="ceiling", **design, context=200_000).metrics["max_context"]
    assert longest is not None
    assert kv.evaluate(mode="ceiling", **design, context=int(longest)).metrics["max_context"] == longest
    assert kv.evaluate(mode="ceiling", **design, context=int(longest)).metrics["memory_margin"] >= 0
    assert kv.evaluate(mode="ceiling", **design, context=int(longest) + 16).metrics["memory_margin"] < 0


def test_a_block_longer_than_the_context_leaves_room_for_more() -> None:
    found = kv.evaluate(mode="ceiling", model=LLAMA, hardware="h200-sxm", engine="vllm", context=1, block_size=1000)
    assert found.metrics["max_context"] >= 1000
    assert found.metrics["memory_margin"] > 0


def test_nothing_fits_where_weights_alone_do_not_however_large_the_group() -> None:
    large = {"model": "meta-llama/Meta-Llama-3.1-405B", "hardware": "h200-sxm", "context": 5000, "batch": 7}
    found = kv.evaluate(mode="ceiling", **large, engine="vllm", prefix_share=1, prefix_group=7)
    assert found.status == "memory"
    assert found.metrics["max_batch"] == 0
