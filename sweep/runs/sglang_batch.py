"""`python -m sglang.bench_one_batch --result-filename`: one static batch, without a server.

Source: sgl-project/sglang python/sglang/bench_one_batch.py.
"""

from __future__ import annotations

from typing import Final

from kvwall.sweep.runs.result import Found, Result, stated_only

KEYS: Final = frozenset({"batch_size", "input_len", "output_len", "prefill_latency"})


def read(result: Result) -> Found:
    """The median time of a step of decode."""
    seconds = result.number("median_decode_latency")
    if seconds is None:
        return Found(refused=("it holds no step of decode: output_len is 1, or the run was stopped",))
    return Found(
        measured={"tpot_ms": seconds * 1e3},
        labels=stated_only(
            {
                "batch_or_concurrency": result.count("batch_size"),
                "input_tokens": result.count("input_len"),
                "output_tokens": result.count("output_len"),
                "framework": "SGLang",
            }
        ),
        batch_kind="static_batch",
    )
