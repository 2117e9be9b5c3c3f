"""A model as another checkpoint of it stores its weights: the format that a row or a user names in words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from kvwall.spaces.errors import InputError
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import CATALOGUE, read_model


@dataclass(frozen=True)
class StoredFormat:
    """Bits per weight of the matrices inside layers; embedding, head, routers and vectors keep the dtype."""

    matrix_bits: float
    payload_bits: int
    dtype_bits: int = 16
    only_experts: bool = False


_EXPERT_ROWS_PADDED: Final = 3072 / 2880
"""Kernels for MXFP4 pad an expert's rows to a multiple of 256: those of gpt-oss, the one family that has them."""
_PLAIN: Final = {"bfloat16": 16, "bf16": 16, "float16": 16, "fp16": 16, "float32": 32, "fp32": 32}
_QUANTIZED: Final[tuple[tuple[str, StoredFormat], ...]] = (
    (r"nvfp4", StoredFormat(4.5, 4)),
    (r"mxfp4", StoredFormat(4.25 * _EXPERT_ROWS_PADDED, 4, only_experts=True)),
    (r"int4|w4a16|4bit|awq|gptq|q4", StoredFormat(4 + 16 / 128, 4)),
    (r"fp8|int8|w8a8|w8a16|smoothquant", StoredFormat(8, 8)),
)
_SPARED_OF_HYBRIDS: Final = ("lm_head", "re:.*linear_attn.*", "re:.*mamba.*", "re:.*shared_expert_gate.*")
_EIGHT_BIT_CHANNELS: Final[dict[str, Any]] = {
    "quant_method": "compressed-tensors",
    "config_groups": {"all": {"targets": ["Linear"], "weights": {"num_bits": 8, "strategy": "channel"}}},
    "ignore": list(_SPARED_OF_HYBRIDS),
}


def stored_as(model: Model, words: str) -> Model:
    """The model in the format that `words` name; its own where they name it, or nothing. Raises InputError if unknown.

    A checkpoint that is already quantized to as many bits keeps its own, scales and spared modules included.
    """
    text = words.lower().strip()
    if not text:
        return model
    plain = next((bits for name, bits in _PLAIN.items() if text.startswith(name)), None)
    if plain is not None:
        return _with(model, StoredFormat(plain, plain, plain))
    for pattern, form in _QUANTIZED:
        if re.search(pattern, text):
            return _quantized(model, text, form)
    raise InputError(f'weight format "{words}" is not known: e.g. bfloat16, fp8, int4 awq, nvfp4, mxfp4')


def _quantized(model: Model, text: str, form: StoredFormat) -> Model:
    if model.weight_payload_bits == form.payload_bits and not form.only_experts:
        return model
    hybrid = any(group.kind == "recurrent" for group in model.groups)
    file = CATALOGUE / f"{model.name.replace('/', '--', 1)}.json"
    if hybrid and form.payload_bits == 8 and "compressed-tensors" in text and file.is_file():
        config = json.loads(file.read_text(encoding="utf-8"))
        config.pop("quantization_config", None)
        return read_model(json.dumps(config | {"quantization_config": _EIGHT_BIT_CHANNELS}), model.name, model.source)
    return _with(model, form)


def _with(model: Model, form: StoredFormat) -> Model:
    spared = form.only_experts and model.experts is not None
    bits, payload = (form.dtype_bits, form.dtype_bits) if spared else (form.matrix_bits, form.payload_bits)
    classes = ("query_output", "key_value", "ffn")
    matrices = {f"{name}_bits": bits for name in classes} | {f"{name}_payload_bits": payload for name in classes}
    whole = {name: form.dtype_bits for name in ("head_bits", "head_payload_bits", "embedding_bits", "vector_bits")}
    experts = model.experts and replace(model.experts, bits=form.matrix_bits, payload_bits=form.payload_bits)
    router = {"router_bits": form.dtype_bits, "router_payload_bits": form.dtype_bits}
    return replace(model, experts=experts, **matrices, **whole, **router)  # type: ignore[arg-type]
