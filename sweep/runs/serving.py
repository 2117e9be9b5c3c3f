"""What the load generators of vLLM and SGLang have in common: lengths, and how many requests ran at once.

Fields as both write them. Source: vllm-project/vllm vllm/benchmarks/serve.py, sgl-project/sglang
python/sglang/bench_serving.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kvwall.sweep.runs.result import Found, Label, Result, stated_only

_FRAMEWORKS: Final[Mapping[str, str]] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt": "TensorRT-LLM",
    "trt": "TensorRT-LLM",
    "tgi": "TGI",
    "llama.cpp": "llama.cpp",
}
"""A client's word for the protocol it speaks -> the server that most likely answered; others speak for none."""


def serving(result: Result, labels: Mapping[str, Label | None], latency: str, measured_mean: float | None) -> Found:
    """Rates and times of a run of many requests.

    Args:
        result: the result.
        labels: what the format found beside the shared fields.
        latency: field of the mean time of a whole request, ms.
        measured_mean: requests that ran at once on average, where the format states it.
    """
    completed = result.count("completed")
    if not completed:
        return Found(refused=("no request was completed",))
    output = _each(result.number("total_output_tokens"), completed)
    if (output or 0) < 2:
        return Found(refused=("requests write fewer than two tokens: there is no step of decode",))
    measured = {
        "tpot_ms": result.number("median_tpot_ms") or result.number("mean_tpot_ms"),
        "output_tokens_per_s_total": result.number("output_throughput"),
    }
    batch, note = _at_once(result, completed, measured_mean or _mean(result, completed, output or 0, latency))
    own = {
        **labels,
        "batch_or_concurrency": batch,
        "input_tokens": _each(result.number("total_input_tokens"), completed),
        "output_tokens": output,
    }
    return Found(
        measured={metric: value for metric, value in measured.items() if value},
        labels=stated_only(own),
        likely=stated_only({"framework": _FRAMEWORKS.get(result.text("backend").lower().partition("-")[0])}),
        notes=(note,) if note else (),
    )


def _each(total: float | None, completed: int) -> int | None:
    """Tokens of one request; an empty prompt counts as one token."""
    return None if total is None else max(round(total / completed), 1)


def _mean(result: Result, completed: int, output: int, latency: str) -> float | None:
    """Little's law: requests that ran at once are those that came per second times how long each took."""
    duration = result.number("duration")
    each = result.number(latency)
    first, token = result.number("mean_ttft_ms"), result.number("mean_tpot_ms")
    if each is None and first is not None and token is not None:
        each = first + token * (output - 1)
    return completed * each / 1e3 / duration if each and duration else None


def _at_once(result: Result, completed: int, mean: float | None) -> tuple[int | None, str]:
    """Requests at once, and what must be said of it. A rate of arrivals makes the limit an upper bound only."""
    limit = result.count("max_concurrency")
    if limit:
        limit = min(limit, result.count("num_prompts") or completed)
        if not _paced(result) or mean is None:
            return limit, ""
    if mean is None:
        return None, ""
    return max(round(mean), 1), f"mean concurrency {mean:.3g}, from completed requests, their latency and the duration"


def _paced(result: Result) -> bool:
    """Whether requests arrived at a rate, and not as soon as another was done."""
    rate = result.at("request_rate")
    return isinstance(rate, int | float) and 0 < rate < math.inf
