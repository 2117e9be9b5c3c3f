"""NVIDIA AIPerf (`profile_export_aiperf.json`) and GenAI-Perf (`profile_export_genai_perf.json`).

Their inter-token latency is a request's time after the first token over its further tokens, which is what others call
time per output token. Source: ai-dynamo/aiperf docs/metrics-reference.md, triton-inference-server/perf_analyzer
genai-perf/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvwall.sweep.runs.result import Found, Result, stated_only

KEYS: Final = frozenset({"request_throughput", "request_latency"})

_MS: Final[Mapping[str, float]] = {"": 1, "ms": 1, "s": 1e3, "sec": 1e3, "us": 1e-3, "ns": 1e-6}
"""Unit -> milliseconds; both write ms where they write none."""

_CONFIG: Final = "input_config"
_MODELS: Final = (
    (_CONFIG, "endpoint", "model_names", 0),
    (_CONFIG, "models", "items", 0, "name"),
    (_CONFIG, "model_names", 0),
    (_CONFIG, "model", 0),
)
_CONCURRENCY: Final = (
    (_CONFIG, "loadgen", "concurrency"),
    (_CONFIG, "phases", -1, "concurrency"),
    (_CONFIG, "perf_analyzer", "stimulus", "concurrency"),
    (_CONFIG, "concurrency"),
)
"""Where versions of the two keep them."""


def read(result: Result) -> Found:
    """Time per output token and rate of output tokens."""
    output = result.number("output_sequence_length", "avg")
    if output is not None and output < 2:
        return Found(refused=("requests write fewer than two tokens: there is no step of decode",))
    measured = {
        "tpot_ms": _milliseconds(result, "inter_token_latency"),
        "output_tokens_per_s_total": result.number("output_token_throughput", "avg"),
    }
    batch = next(filter(None, (result.count(*path) for path in _CONCURRENCY)), None)
    notes: tuple[str, ...] = ()
    rate, latency = result.number("request_throughput", "avg"), _milliseconds(result, "request_latency", "avg")
    if batch is None and rate and latency:
        batch = max(round(rate * latency / 1e3), 1)
        notes = (f"mean concurrency {rate * latency / 1e3:.3g}, from the rate of requests and their latency",)
    prompt = result.number("input_sequence_length", "avg")
    own = {
        "model": next(filter(None, (result.text(*path) for path in _MODELS)), ""),
        "batch_or_concurrency": batch,
        "input_tokens": None if prompt is None else max(round(prompt), 1),
        "output_tokens": None if output is None else round(output),
    }
    kept = {metric: value for metric, value in measured.items() if value}
    return Found(measured=kept, labels=stated_only(own), notes=notes)


def _milliseconds(result: Result, name: str, *statistics: str) -> float | None:
    """The first statistic that is there, by default the median before the mean."""
    found = (result.number(name, statistic) for statistic in statistics or ("p50", "avg"))
    value = next((each for each in found if each is not None), None)
    unit = result.text(name, "unit")
    if value is None or unit in _MS:
        return None if value is None else value * _MS[unit]
    result.faults.add(f'{name}.unit is "{unit}": it must be any of {", ".join(filter(None, _MS))}')
    return None
