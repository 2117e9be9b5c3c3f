"""Serving engines: one TOML file per engine and band of versions, every figure with its source.

A file that is `like` another takes the figures it does not state from that one.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from kvwall.spaces.engine_columns import EngineColumns
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.figures import Figure
from kvwall.spaces.units import parse_quantity

_FOLDER: Final = Path(__file__).parent / "catalog" / "engines"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")

_BYTES: Final = frozenset(
    ("encoder_bytes", "large_memory", "activation_bytes", "non_torch_single", "non_torch_parallel", "graph_bytes")
    + ("bytes_per_graph", "small_non_torch_parallel")
)
_SHOWN_IN_GIB: Final = 2**20

Version = tuple[int, int]


@dataclass(frozen=True)
class Engine:
    """The memory rules of an engine in one band of versions."""

    name: str
    engine: str
    meaning: str
    """What its memory fraction is of, and what it covers."""
    from_version: Version
    figures: Mapping[str, Figure]

    @property
    def columns(self) -> EngineColumns:
        """The figures as the laws read them."""
        return EngineColumns(**{name: np.float64(figure.value) for name, figure in self.figures.items()})


@cache
def engine_bands() -> tuple[str, ...]:
    """Names of the files: an engine, or an engine and the last version of the band."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def engine_names() -> tuple[str, ...]:
    """What the axis `engine` takes: every engine, which is its newest band, and every band."""
    engines = {_read(band)["engine"] for band in engine_bands()}
    return ("ideal", *sorted((engines | set(engine_bands())) - {"ideal"}))


@cache
def load_engine(name: str) -> Engine:
    """The rules of this name; an engine's own name is its newest band. Raises InputError for an unknown one.

    >>> load_engine("vllm").name, load_engine("vllm-0.20").figures["covers_graphs"].value
    ('vllm-0.21', 0.0)
    """
    if name not in engine_names():
        known = ", ".join(engine_names())
        raise InputError(f'engine "{name}" is unknown{nearest(name, engine_names())}: use one of {known}')
    return _loaded(name) if name in engine_bands() else _bands_of(name)[-1]


def engine_of_version(engine: str, version: str) -> Engine:
    """The band that a version belongs to; the newest where it states no number.

    >>> engine_of_version("vllm", "0.19.1.dev6+g6d4a8e6d2").name, engine_of_version("vllm", "not stated").name
    ('vllm-0.20', 'vllm-0.21')
    """
    bands = _bands_of(load_engine(engine).engine)
    found = _VERSION.search(version)
    if found is None:
        return bands[-1]
    number = (int(found[1]), int(found[2]))
    return [band for band in bands if band.from_version <= number][-1]


def _bands_of(engine: str) -> list[Engine]:
    bands = [_loaded(band) for band in engine_bands() if _read(band)["engine"] == engine]
    return sorted(bands, key=lambda band: band.from_version)


@cache
def _loaded(band: str) -> Engine:
    table = _read(band)
    major, _, minor = table["from_version"].partition(".")
    figures = _figures(band)
    missing = [field.name for field in fields(EngineColumns) if field.name not in figures]
    if missing or len(figures) > len(fields(EngineColumns)):
        unknown = figures.keys() - {field.name for field in fields(EngineColumns)}
        raise InputError(f"engine {band}: missing figures {missing}, unknown ones {sorted(unknown)}")
    return Engine(band, table["engine"], table["meaning"], (int(major), int(minor or 0)), figures)


def _figures(band: str) -> dict[str, Figure]:
    table = _read(band)
    inherited = _figures(table["like"]) if "like" in table else {}
    stated = {key: entry for key, entry in table.items() if isinstance(entry, dict)}
    return inherited | {key: _figure(entry) for key, entry in stated.items()}


def _figure(entry: Mapping[str, Any]) -> Figure:
    value = entry["value"]
    number = parse_quantity(value, "byte") if isinstance(value, str) else float(value)
    return Figure(number, entry["source"], entry.get("note", ""))


def engine_figure(name: str, value: float) -> str:
    """A figure as people read it: bytes in GiB where they are many.

    >>> engine_figure("non_torch_single", 0.25 * 2**30), engine_figure("group_slack", 1.5)
    ('0.25 GiB', '1.5')
    """
    large = value >= _SHOWN_IN_GIB and name in _BYTES
    return f"{value / 2**30:.4g} GiB" if large else f"{value:g}"


@cache
def _read(band: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{band}.toml").read_text(encoding="utf-8"))
