"""`vllm bench serve --save-result`, also appended and with the details of each request.

`--metadata hardware=h100-sxm tp=8` writes the names of `OPTIONS` into the file: they are read as the file's own.
Source: vllm-project/vllm vllm/benchmarks/serve.py.
"""

from __future__ import annotations

from typing import Final

from kvwall.sweep.runs.result import Found, Label, Result
from kvwall.sweep.runs.serving import serving
from kvwall.sweep.runs.stated import OPTIONS

KEYS: Final = frozenset({"model_id", "completed", "total_input_tokens", "request_throughput"})

_OF_THE_RUN: Final = ("model", "batch", "input_tokens", "output_tokens")
"""What the result states by its own fields."""


def read(result: Result) -> Found:
    """Times per token and rates; more than one accepted token per step is no plain decode."""
    labels: dict[str, Label | None] = {"model": result.text("model_id")}
    for name in OPTIONS.keys() - set(_OF_THE_RUN):
        labels[OPTIONS[name]] = _metadata(result, name)
    found = serving(result, labels, "mean_e2el_ms", None)
    if (result.number("spec_decode_acceptance_length") or 0) > 1:
        return Found(refused=("the server speculated: a step writes more than one token",))
    return found


def _metadata(result: Result, name: str) -> Label | None:
    """A count as a number: metadata is text."""
    if name in ("n_devices", "tp", "pp", "ep"):
        return result.count(name)
    return result.text(name)
