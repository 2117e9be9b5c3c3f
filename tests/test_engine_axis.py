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
    report = kv.evaluate(model=model, tensor_parallel=tensor, max_model_length=length, **SETTINGS)
    found = report.metrics
    assert found["kv_pool_bytes"] / GIB == pytest.approx(gib, rel=0.03)
    assert found["kv_pool_blocks"] == pytest.approx(blocks, rel=0.03)
    assert found["max_concurrency"] == pytest.approx(concurrency, rel=0.03)
    per_block = found["kv_pool_bytes"] / found["kv_pool_blocks"]
    assert per_block == pytest.approx(gib * GIB / blocks, rel=2e-4)
    assert found["kv_pool_tokens"] == 16 * found["kv_pool_blocks"]


def test_gemma_pays_for_pad_layers_and_for_windows_by_what_a_batch_spans() -> None:
    """62 layers take 7 groups of 10: 19.53 GiB held 15,997 blocks, and 4.46 requests of 8,192 tokens."""
    found = kv.evaluate(model="google/gemma-3-27b-it", max_model_length=8192, **SETTINGS).metrics
    assert found["kv_pool_bytes"] / found["kv_pool_blocks"] == pytest.approx(19.53 * GIB / 15_997, rel=1e-3)
    assert found["max_concurrency"] / found["kv_pool_blocks"] == pytest.approx(4.46 / 15_997, rel=2e-3)


def test_every_engine_reserves_memory_that_the_ideal_one_does_not() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192, "batch": 16}
    ideal = kv.evaluate(**design).metrics
    for engine in ENGINES:
        found = kv.evaluate(**design, engine=engine).metrics
        assert found["time_per_output_token"] == ideal["time_per_output_token"]
        assert found["kv_pool_bytes"] <= ideal["kv_pool_bytes"] + 1 or engine in {"llamacpp", "ideal"}
        assert found["max_batch"] == int(found["max_concurrency"])


def test_pools_grow_with_utilisation_and_its_word_is_the_engine_s_own() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192}
    for engine in ("vllm", "sglang", "trtllm"):
        pools = [
            kv.evaluate(**design, engine=engine, utilisation=share).metrics["kv_pool_bytes"]
            for share in (0.6, 0.8, 0.95)
        ]
        assert all(fewer < more for fewer, more in pairwise(pools))
        own = kv.evaluate(**design, engine=engine).metrics["kv_pool_bytes"]
        assert own == kv.evaluate(**design, engine=engine, utilisation="engine").metrics["kv_pool_bytes"]
        assert pools[0] < own < pools[-1] + 0.1 * own


def test_remedies_reach_engines_too() -> None:
    design = {"model": LLAMA, "hardware": "h100-sxm", "context": 8192, "engine": "vllm"}
    plain = kv.evaluate(**design).metrics["max_concurrency"]
    assert kv.evaluate(**design, key_bits=8, value_bits=8).metrics["max_concurrency"] == pytest.approx(
        2 * plain, rel=0.01
    )
    assert kv.evaluate(**design, retention=0.5).metrics["max_concurrency"] == pytest.approx(2 * plain, rel=0.01)
    shared = kv.evaluate(**design, prefix_share=0.5, prefix_group=1000).metrics["max_concurrency"]
    assert shared == pytest.approx(2 * plain, rel=0.02)
