"""`llama-bench -o json`, `-o jsonl` and `-o csv`: tests of token generation; those of prompts hold no decode.

Source: ggml-org/llama.cpp tools/llama-bench/README.md, and llama_ftype_name in src/llama-model-loader.cpp.
"""

from __future__ import annotations

import re
from typing import Final

from kvwall.sweep.runs.result import Found, Result, stated_only

KEYS: Final = frozenset({"build_commit", "n_prompt", "n_gen", "avg_ts"})

_WEIGHTS: Final = re.compile(r"\b(I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4|NVFP4)(?: - (Small|Medium|Large)| (mix))?")
_MARK: Final = re.compile(r"[-._](?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|MXFP4\w*)$", re.IGNORECASE)
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
_DEVICES: Final = re.compile(r", |/(?=NVIDIA)")


def read(result: Result) -> Found:
    """The speed of one sequence; a cache filled to `n_depth` before is its prompt."""
    refused = _refused(result)
    if refused:
        return Found(refused=refused)
    names = _DEVICES.split(result.text("gpu_info"))
    devices = _devices(result, names)
    own = {
        "model": _model(result),
        "hardware": names[0],
        "n_devices": devices,
        "tp": devices if result.text("split_mode") in ("row", "tensor") else 1,
        "weight_precision": _weights(result.text("model_type")),
        "kv_precision": result.text("type_k"),
        "framework": "llama.cpp",
        "framework_version": f"b{result.count('build_number') or 0}",
        "batch_or_concurrency": 1,
        "input_tokens": result.count("n_depth") or 1,
        "output_tokens": result.count("n_gen"),
    }
    notes = [f"n_gpu_layers={result.at('n_gpu_layers')}"]
    if own["tp"] != devices:
        notes.append("layer split across GPUs")
    speed = result.number("avg_ts")
    return Found(
        measured={"decode_tokens_per_s_per_user": speed} if speed else {},
        labels=stated_only(own),
        batch_kind="static_batch",
        notes=tuple(notes),
    )


def _refused(result: Result) -> tuple[str, ...]:
    names = set(_DEVICES.split(result.text("gpu_info")))
    reasons = {
        "a test of a prompt, not of decode": not result.count("n_gen"),
        "a test of a prompt and of decode in one time": bool(result.count("n_gen") and result.count("n_prompt")),
        "K and V are of different types": result.text("type_k") != result.text("type_v"),
        "it ran on the processor: gpu_info is empty, or no layer was on a device": names == {""}
        or result.text("gpu_info").startswith("CPU")
        or result.at("n_gpu_layers") in (0, "0"),
        "devices of several kinds": len(names) > 1,
        "experts were kept in the host's memory: n_cpu_moe": bool(result.count("n_cpu_moe")),
        "the cache was kept in the host's memory: no_kv_offload": result.switch("no_kv_offload"),
        "tensors were moved by hand: tensor_buft_overrides": result.text("tensor_buft_overrides") not in ("", "none"),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def _devices(result: Result, names: list[str]) -> int:
    """Devices that took part: all that are seen, the one of split mode `none`, or those that were named."""
    if result.text("split_mode") == "none":
        return 1
    named = result.text("devices")
    return len(names) if named in ("", "auto") else len(named.split("/"))


def _model(result: Result) -> str:
    """A file's name without its folder, part and weight label.

    >>> _model(Result({"model_filename": "models/Llama-3.1-8B-Instruct-Q4_K_M-00001-of-00002.gguf"}))
    'Llama-3.1-8B-Instruct'
    """
    name = re.split(r"[/\\]", result.text("model_filename"))[-1].removesuffix(".gguf")
    return _MARK.sub("", _PART.sub("", name))


def _weights(model_type: str) -> str:
    """The weight label in a description of a model; '' where there is none.

    >>> _weights("qwen3moe 30B.A3B Q4_K - Medium"), _weights("llama 8B IQ2_XS - 2.3125 bpw"), _weights("llama 8B F16")
    ('Q4_K_M', 'IQ2_XS', 'F16')
    """
    found = list(_WEIGHTS.finditer(model_type))
    if not found:
        return ""
    label, size, mixed = found[-1].groups()
    if mixed:
        return "IQ3_M"
    return label if not size or (label, size) == ("Q2_K", "Medium") else f"{label}_{size[0]}"
