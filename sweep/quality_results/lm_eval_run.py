"""What a file of lm-evaluation-harness says of the run: the model, the type of its cache, how it was evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvwall.sweep.quality_results.cells import SETTINGS
from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.result import AS_THEY_ARE, WEIGHTS, Label

_MODEL: Final = ("pretrained", "model", "path")
_CACHE: Final = "kv_cache_dtype"
_NAMES: Final = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8_e5m2"}
"""Types of a cache -> the quantizers they stand for."""
_BITS = re.compile(r"(?:fp|int|nvfp|mxfp|q)(\d{1,2})(?:_.*)?", re.IGNORECASE)
_WEIGHTS: Final = ("quantization", "load_in_4bit", "load_in_8bit")
_WHOLE: Final = frozenset({"auto", "bf16", "bfloat16", "fp16", "float16", "half"})


def labels_of(document: Document) -> dict[str, Label]:
    """Columns that the file states: the model, and the bits of a served cache that is not of 16 bits."""
    arguments = arguments_of(document)
    model = next((arguments[name] for name in _MODEL if arguments.get(name)), document.text("model_name"))
    labels: dict[str, Label] = {"model": model} if model else {}
    cache = arguments.get(_CACHE, "").lower()
    if cache and cache not in _WHOLE:
        labels["method"] = _NAMES.get(cache, cache)
        bits = _BITS.fullmatch(cache)
        if bits and int(bits[1]) < 16:
            labels |= {"bits_k": float(bits[1]), "bits_v": float(bits[1])}
    return labels


def settings_free(labels: Mapping[str, Label]) -> bool:
    """Whether the file says nothing of compression: it may still have been at work."""
    return "method" not in labels and not any(name in labels for name in SETTINGS)


def conditions_of(document: Document, task: str) -> dict[str, str]:
    """What a result and its baseline must have in common; what the file does not say is left out."""
    top = document.table()
    found = {
        "few-shot examples": document.at("n-shot", task),
        "samples": document.at("n-samples", task, "effective"),
        "task version": document.at("versions", task),
        "chat template": document.at("chat_template_sha") or ("none" if "chat_template_sha" in top else None),
    }
    arguments = arguments_of(document)
    weights = ", ".join(f"{name}={arguments[name]}" for name in _WEIGHTS if arguments.get(name, "None") != "None")
    stated = {name: str(value)[:64] for name, value in found.items() if isinstance(value, str | int | float)}
    return stated | {WEIGHTS: weights or AS_THEY_ARE}


def arguments_of(document: Document) -> dict[str, str]:
    """`model_args`, as text or as an object.

    >>> from pathlib import Path
    >>> arguments_of(Document(Path("r.json"), {"config": {"model_args": "pretrained=a/b,kv_cache_dtype=fp8"}}))
    {'pretrained': 'a/b', 'kv_cache_dtype': 'fp8'}
    """
    stated = document.at("config", "model_args")
    if isinstance(stated, Mapping):
        return {str(name): str(value) for name, value in stated.items() if isinstance(value, str | int | float)}
    if not isinstance(stated, str):
        return {}
    pairs = (part.partition("=") for part in stated.split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}
