"""The register of JSON and CSV formats, and which of them a result has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvwall.sweep.runs import aiperf, llama_bench, sglang_batch, sglang_serving, vllm_latency, vllm_serve
from kvwall.sweep.runs.result import Found, Result


@dataclass(frozen=True)
class Format:
    """How a result is recognised, and read."""

    keys: frozenset[str]
    """Fields that every result of this format has, and none of another."""
    read: Callable[[Result], Found]


FORMATS: Final[Mapping[str, Format]] = {
    "vllm bench serve": Format(vllm_serve.KEYS, vllm_serve.read),
    "vllm bench latency": Format(vllm_latency.KEYS, vllm_latency.read),
    "sglang.bench_serving": Format(sglang_serving.KEYS, sglang_serving.read),
    "sglang.bench_one_batch": Format(sglang_batch.KEYS, sglang_batch.read),
    "AIPerf or GenAI-Perf": Format(aiperf.KEYS, aiperf.read),
    "llama-bench": Format(llama_bench.KEYS, llama_bench.read),
}


def format_of(fields: Mapping[str, object]) -> str:
    """The name of the format whose keys a result has; '' where there is none."""
    return next((name for name, each in FORMATS.items() if each.keys <= fields.keys()), "")
