"""`python -m sglang.bench_serving --output-file`: one object per run, newer ones with the server's arguments.

Source: sgl-project/sglang python/sglang/bench_serving.py, python/sglang/srt/server_args.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvwall.sweep.runs.result import Found, Label, Result
from kvwall.sweep.runs.serving import serving

KEYS: Final = frozenset({"completed", "total_input_tokens", "random_input_len"})

_SERVER: Final = "server_info"


def read(result: Result) -> Found:
    """Times per token and rates; more than one accepted token per step is no plain decode."""
    found = serving(result, _server(result), "mean_e2e_latency_ms", result.number("concurrency"))
    if (result.number("accept_length") or 0) > 1:
        return Found(refused=("the server speculated: accept_length is above 1",))
    if result.switch(_SERVER, "enable_dp_attention"):
        return replace(found, notes=(*found.notes, "dp_attention=True"))
    return found


def _server(result: Result) -> dict[str, Label | None]:
    """Labels from the server's arguments; replicas are counted as devices, but not groups of shared attention."""
    tensor, pipeline = result.count(_SERVER, "tp_size"), result.count(_SERVER, "pp_size")
    cache = result.text(_SERVER, "kv_cache_dtype")
    replicas = 1 if result.switch(_SERVER, "enable_dp_attention") else result.count(_SERVER, "dp_size") or 1
    return {
        "model": result.text(_SERVER, "model_path"),
        "tp": tensor,
        "pp": pipeline,
        "ep": result.count(_SERVER, "ep_size"),
        "n_devices": tensor and tensor * (pipeline or 1) * replicas,
        "weight_precision": result.text(_SERVER, "quantization"),
        "kv_precision": "" if cache == "auto" else cache,  # auto leaves it to the checkpoint
        "framework": "SGLang" if tensor else "",
        "framework_version": result.text(_SERVER, "version"),
    }
