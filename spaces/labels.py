"""What the labels of published rows stand for: models and devices of the catalogue, through `catalog/aliases.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.engines import Engine, engine_of_version, load_engine
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.models.load import loadable_model_names, model_names
from kvwall.spaces.units import parse_quantity

_FILE: Final = Path(__file__).parent / "catalog" / "aliases.toml"
_REMARK: Final = re.compile(r"\(([^)]*)\)")
_STATED: Final = re.compile(r"\(([\d.]+ GiB)\)")
_SIZE: Final = re.compile(r"\b(\d+)[- ]?Gi?B\b")
_REPORTED: Final = 0.985
"""Share of the GB of a label that a driver reports as GiB."""
_MEMORY: Final = (2.0**20, 2.0**50)
"""Bytes that a device may have: a mebibyte to a pebibyte."""
_NOMINAL: Final = "paper/"
"""Models of round numbers: labels of published rows mean real ones, unless they give the full name."""
_PARTS: Final = re.compile(r"[-_ ]+|\.(?=w\da)")
_FORK: Final = re.compile(r"\bfork\b", re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}")


@dataclass(frozen=True)
class Device:
    """A device that an engine runs on: its memory as the driver reports it."""

    memory: float
    """Bytes."""
    small: bool
    """Whether engines give it the defaults of small devices however much memory it has."""
    plain_sparse_rows: bool
    """Whether vLLM keeps 8-bit sparse MLA there in plain rows, not in those with scales and 16-bit rope."""
    other: float
    """Bytes that start-up takes there beside what engines print: driver and platform libraries."""
    other_with_experts: float
    """The same for models with routed experts, whose weights the platform lays out anew."""
    pads_experts: bool
    """Whether 16-bit experts are padded there."""
    smallest_rank: float
    """Bytes that the poorest of eight or more devices has less than the one that prints its pool."""
    unmodelled: str
    """Why a pool there is not predicted; empty where it is."""
    source: str


def reduced(label: str) -> str:
    """A model's label without what does not change its shape: organisation, format, tuning, date.

    >>> reduced("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"), reduced("Qwen/Qwen3-235B-A22B-Instruct-2507")
    ('llama-3.1-8b', 'qwen3-235b-a22b')
    """
    bare = _REMARK.sub("", label.lower().rpartition("/")[2]).strip()
    parts = [part for part in _PARTS.split(bare) if part not in _words() and not _DATE.fullmatch(part)]
    return "-".join(part for part in parts if part)


def model_of_label(label: str) -> str:
    """The catalogue's name of the model that a label means. Raises InputError where it is not in the catalogue.

    >>> model_of_label("Qwen3-235B-A22B-FP8"), model_of_label("meta-llama/Llama-3.1-8B-Instruct")
    ('Qwen/Qwen3-235B-A22B-FP8', 'meta-llama/Meta-Llama-3.1-8B')
    >>> model_of_label("Llama-3-70B"), model_of_label("paper/llama-3-70b")
    ('meta-llama/Meta-Llama-3-70B', 'paper/llama-3-70b')
    """
    bare = _REMARK.sub("", label).strip().lower()
    names = loadable_model_names()
    exact = [name for name in names if bare == name.lower()]
    exact += [name for name in names if bare == name.lower().rpartition("/")[2] and not name.startswith(_NOMINAL)]
    if exact:
        return exact[0]
    short = reduced(label)
    found = _table()["models"].get(short) or _by_reduced_name().get(short)
    if found is None:
        raise InputError(f'model "{label}" is not in the catalogue{nearest(short, _by_reduced_name())}')
    return str(found)


def device_of_label(label: str) -> Device | None:
    """The device that a label names, or of the memory that it states; None where it does neither.

    Raises InputError where what it states is no memory of a device.
    Memory stated in brackets, as in "(79.14 GiB)", goes before the table's.

    >>> device_of_label("H100-80GB (79.14 GiB)").memory / 2**30, device_of_label("not seen")
    (79.14, None)
    """
    entry = _table()["devices"].get(_REMARK.sub("", label.lower()).strip())
    stated = _STATED.search(label)
    size = _SIZE.search(_REMARK.sub("", label))
    if entry is None and not stated and not size:
        return None
    entry = entry or {}
    memory, source = entry.get("memory", ""), entry.get("source", f'the label "{label}"')
    if stated:
        memory, source = stated[1], f'the label "{label}"'
    elif size and not memory:
        memory = f"{float(size[1]) * _REPORTED} GiB"
    return Device(
        memory=_device_bytes(label, memory),
        small=entry.get("small", False),
        plain_sparse_rows=entry.get("plain_sparse_rows", False),
        other=parse_quantity(entry.get("other", "0 GiB"), "byte"),
        other_with_experts=parse_quantity(entry.get("other_with_experts", entry.get("other", "0 GiB")), "byte"),
        pads_experts=entry.get("pads_experts", False),
        smallest_rank=parse_quantity(entry.get("smallest_rank", "0 GiB"), "byte"),
        unmodelled=entry.get("unmodelled", ""),
        source=source,
    )


def _device_bytes(label: str, memory: str) -> float:
    least, most = _MEMORY
    found = parse_quantity(memory, "byte")
    if not least <= found <= most:
        raise InputError(
            f'gpu "{label[:40]}": {found / 2**30:g} GiB is no memory of a device: state it as "(79.14 GiB)"'
        )
    return found


def engine_of_labels(label: str, version: str) -> tuple[Engine, bool]:
    """The band of an engine's label and version, and whether the version decided. Raises InputError if unknown.

    >>> [engine_of_labels("vLLM", each)[0].name for each in ("0.6.x (V0)", "not stated (before 0.17 by its sizes)")]
    ['vllm-0.7', 'vllm-0.16']
    """
    known = _table()["engines"]
    name = known.get(label.lower())
    if name is None:
        raise InputError(f'engine "{label}" is unknown{nearest(label.lower(), known)}: use one of {", ".join(known)}')
    if _FORK.search(version):
        raise InputError(f'engine_version "{version}": the memory rules of a fork are not known')
    for pattern, band in _table()["versions"].get(name, {}).items():
        if re.search(pattern, version.lower()):
            return load_engine(band), True
    return engine_of_version(name, version), re.search(r"\d+\.\d+", version) is not None


def tower_bytes(label: str) -> float:
    """Bytes of the encoders of a model's label, at 16 bits; 0 for a language model alone, or cut to it ("-Text").

    >>> tower_bytes("meta-llama/Llama-3.1-8B-Instruct"), round(tower_bytes("google/gemma-3-27b-it") / 2**30, 2)
    (0.0, 1.2)
    """
    short = reduced(label)
    found = [entry for name, entry in _table()["towers"].items() if short.startswith(name)]
    if "text" in _PARTS.split(label.lower()):
        return 0.0
    return parse_quantity(found[0]["memory"], "byte") if found else 0.0


@cache
def usable_memory(hardware: str) -> float | None:
    """Bytes that the driver reports on a chip of the catalogue; None where no source states them."""
    for entry in _table()["devices"].values():
        if entry.get("hardware") == hardware:
            return parse_quantity(entry["memory"], "byte")
    return None


@cache
def _by_reduced_name() -> Mapping[str, str]:
    """Reduced name -> the plainest name of the catalogue that reduces to it."""
    names = sorted((name for name in model_names() if not name.startswith(_NOMINAL)), key=len, reverse=True)
    return {reduced(name): name for name in names}


@cache
def _words() -> frozenset[str]:
    return frozenset(_table()["words"])


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
