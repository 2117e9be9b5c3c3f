"""A model as another checkpoint of it stores its weights: the format that a row or a user names in words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kvwall.spaces.errors import InputError
from kvwall.spaces.models.layers import Model


@dataclass(frozen=True)
class StoredFormat:
    """Bits per weight of the matrices inside layers; embedding, head, routers and vectors keep the dtype."""

    matrix_bits: float
    payload_bits: int
    dtype_bits: int = 16
    only_experts: bool = False


_PLAIN = {"bfloat16": 16, "bf16": 16, "float16": 16, "fp16": 16, "float32": 32, "fp32": 32}
_QUANTIZED: tuple[tuple[str, StoredFormat], ...] = (
    (r"nvfp4", StoredFormat(4.5, 4)),
    (r"mxfp4", StoredFormat(4.25, 4, only_experts=True)),
    (r"int4|w4a16|4bit|awq|gptq|q4", StoredFormat(4 + 16 / 128, 4)),
    (r"fp8|int8|w8a8|w8a16|smoothquant", StoredFormat(8, 8)),
)


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
            return model if model.weight_payload_bits == form.payload_bits else _with(model, form)
    raise InputError(f'weight format "{words}" is not known: e.g. bfloat16, fp8, int4 awq, nvfp4, mxfp4')


def _with(model: Model, form: StoredFormat) -> Model:
    matrices = {}
    spared = form.only_experts and model.experts is not None
    bits, payload = (form.dtype_bits, form.dtype_bits) if spared else (form.matrix_bits, form.payload_bits)
    for name in ("query_output", "key_value", "ffn"):
        matrices |= {f"{name}_bits": bits, f"{name}_payload_bits": payload}
    whole = {name: form.dtype_bits for name in ("head_bits", "head_payload_bits", "embedding_bits", "vector_bits")}
    experts = model.experts and replace(model.experts, bits=form.matrix_bits, payload_bits=form.payload_bits)
    router = {"router_bits": form.dtype_bits, "router_payload_bits": form.dtype_bits}
    return replace(model, experts=experts, **matrices, **whole, **router)  # type: ignore[arg-type]
