"""`vllm bench latency --output-json`: one batch, written from start to end; the file states times alone.

Source: vllm-project/vllm vllm/benchmarks/latency.py.
"""

from __future__ import annotations

from typing import Final

from kvwall.sweep.runs.result import Found, Result

KEYS: Final = frozenset({"avg_latency", "latencies"})


def read(result: Result) -> Found:
    """The median latency, or the mean where no percentiles are written."""
    seconds = result.number("percentiles", "50") or result.number("avg_latency")
    return Found(
        measured={} if seconds is None else {"e2e_latency_ms": seconds * 1e3},
        likely={"framework": "vLLM"},
        batch_kind="static_batch",
        notes=("prefill time included",),
    )
