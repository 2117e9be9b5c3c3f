"""Cells of a row of start-up figures as numbers: every fault with the column's name and what it may hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from kvwall.spaces.errors import Faults, InputError

GIB: Final = 2.0**30
_GIB_COLUMNS: Final = (
    "device_total_GiB", "avail_before_GiB", "avail_after_GiB", "weights_GiB", "activation_peak_GiB", "non_torch_GiB",
    "cuda_graph_GiB", "kv_pool_GiB",
)  # fmt: skip
_GIB_RANGE: Final = (1e-6, 1e6)
"""A kibibyte to a pebibyte, of a device."""
_MAY_BE_NEGATIVE: Final = frozenset({"kv_pool_GiB", "cuda_graph_GiB", "non_torch_GiB"})
_POSITIVE: Final[Mapping[str, tuple[float, float]]] = {
    "mem_fraction": (1e-3, 1.0),
    "max_model_len": (1.0, 1e9),
    "block_size": (1.0, 1e6),
    "max_num_seqs": (1.0, 1e6),
    "max_num_batched_tokens": (1.0, 1e9),
    "kv_tokens": (1.0, 1e12),
    "max_concurrency": (1e-6, 1e9),
    "bytes_per_token": (1.0, 1e9),
    "kv_elem_bytes": (0.0625, 16.0),
}
"""Column -> the least and the most that a start-up can have meant, orders of magnitude beside what logs show."""
_WHOLE: Final = ("tp", "pp", "dp", "dcp")
_MOST_DEVICES: Final = 4096
_MOST_DRAFT_TOKENS: Final = 64
_UNKNOWN: Final = frozenset({"", "not seen", "not stated", "unknown", "n/a", "nan", "none", "-"})

_CACHE_BITS: Final[tuple[tuple[str, float], ...]] = (
    (r"q8_0", 8.5),
    (r"q5_1", 6.0),
    (r"q5_0", 5.5),
    (r"q4_1", 5.0),
    (r"q4_0|iq4_nl", 4.5),
    (r"nvfp4", 4.5),
    (r"fp8|int8|e4m3|e5m2", 8.0),
    (r"fp32|float32|f32", 32.0),
    (r"bf16|bfloat16|fp16|float16|f16", 16.0),
    (r"int4|fp4", 4.0),
)
_SCALE_PER_HEAD_BITS: Final = 32
_DRAFT: Final = re.compile(r"\b(?:MTP|draft length|draft tokens)\s*=?\s*(\d+)", re.IGNORECASE)


def numbers(cells: Mapping[str, str], faults: Faults) -> dict[str, float | None]:
    """Every numeric column; bytes for those in GiB. Blank is None; what is no number of its range is a fault."""
    found: dict[str, float | None] = {}
    for name in _GIB_COLUMNS:
        value = _in_range(cells, name, _GIB_RANGE, faults)
        found[name] = None if value is None else value * GIB
    return found | {name: _in_range(cells, name, ends, faults) for name, ends in _POSITIVE.items()}


def _in_range(cells: Mapping[str, str], name: str, ends: tuple[float, float], faults: Faults) -> float | None:
    """A column's number where its size lies between these ends, or is 0 where it may be negative."""
    value, (least, most) = _number(cells, name, faults), ends
    if value is None:
        return None
    signed = name in _MAY_BE_NEGATIVE
    if least <= (abs(value) if signed else value) <= most or (signed and value == 0):
        return value
    if name == "mem_fraction" and value > most:
        faults.add(f"{name} = {value:g} is above 1: it is a fraction of memory")
    elif value <= 0 and not signed:
        faults.add(f"{name} = {value:g} is not above zero")
    else:
        sizes_only = " without its sign" if signed else ""
        faults.add(f"{name} = {value:g} is not from {least:g} to {most:g}{sizes_only}: check its unit")
    return None


def sizes(cells: Mapping[str, str], faults: Faults) -> dict[str, int]:
    """The parallel degrees; 1 where a cell is blank."""
    found = {}
    for name in _WHOLE:
        value = _number(cells, name, faults)
        if value is not None and not (1 <= value <= _MOST_DEVICES and value.is_integer()):
            faults.add(f"{name} = {value:g} is no whole number from 1 to {_MOST_DEVICES}")
            value = None
        found[name] = int(value or 1)
    return found


def _number(cells: Mapping[str, str], name: str, faults: Faults) -> float | None:
    text = cells.get(name, "")
    if text.lower() in _UNKNOWN - {"nan"}:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        faults.add(f"{name} = {text[:40]!r} is not a finite number: leave it blank where it is not known")
        return None
    return value


def known(text: str) -> str:
    """The text, or nothing where it says that it is not known."""
    return "" if text.lower() in _UNKNOWN else text


def cache_bits(words: str, element_bytes: float | None, weights: str) -> float:
    """Bits per stored KV element that the words of `kv_cache_dtype` mean; scales of q8_0 and kin included.

    Where they say nothing: `kv_elem_bytes`; else "auto", which is 16 bits, 32 for float32 weights, and 8 for NVFP4
    checkpoints, which carry scales for an FP8 cache.

    >>> cache_bits("fp8", None, ""), cache_bits("bf16 (auto)", None, ""), cache_bits("q8_0", 1.0625, "")
    (8.0, 16.0, 8.5)
    """
    text = words.lower().split(", recurrent")[0]
    for pattern, bits in _CACHE_BITS:
        if re.search(pattern, text):
            return bits
    if text and known(text) and "auto" not in text:
        raise InputError(f'kv_cache_dtype "{words}" is not known: e.g. bf16, fp8, q8_0, auto')
    if element_bytes is not None:
        return element_bytes * 8
    return 32.0 if "32" in weights else 8.0 if "nvfp4" in weights.lower() else 16.0


def scale_bits(words: str, head: int) -> float:
    """Bits that scales add to each element: one of 32 bits per token and head where the words say so."""
    return _SCALE_PER_HEAD_BITS / head if "per token-head" in words.lower() and head else 0.0


def state_bits(words: str) -> float:
    """Bits of a recurrent state that the words of `kv_cache_dtype` state; 0 where they do not.

    >>> state_bits("bf16 (auto), recurrent state fp16"), state_bits("bf16")
    (16.0, 0.0)
    """
    _, _, state = words.lower().partition("recurrent")
    return 32.0 if "32" in state else 16.0 if "16" in state else 0.0


def draft_tokens(cells: Mapping[str, str], faults: Faults) -> int:
    """Speculative tokens of a step: the column `draft_tokens`, else what the notes say, as in "MTP 3"."""
    column, value = "draft_tokens", _number(cells, "draft_tokens", faults)
    found = _DRAFT.search(cells.get("notes", ""))
    if value is None and found:
        column, value = "draft tokens in notes", float(found[1])
    if value is not None and not (0 <= value <= _MOST_DRAFT_TOKENS and value.is_integer()):
        faults.add(f"{column} = {value:g} is no whole number from 0 to {_MOST_DRAFT_TOKENS}")
        value = None
    return int(value or 0)


def says(cells: Mapping[str, str], column: str, in_notes: str) -> bool:
    """Whether a yes-or-no column, or the notes in its absence, say so."""
    stated = cells.get(column, "").lower()
    if stated:
        return stated in ("true", "yes", "on", "1")
    return re.search(in_notes, cells.get("notes", ""), re.IGNORECASE) is not None
