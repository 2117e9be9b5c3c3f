"""Hardware: one TOML file per chip, every figure with its source; `figures` says what each figure may be.

A figure that no source states is absent and stays `None`; nothing is filled in. Values are per device,
peaks are dense, links count one direction. Energy figures come from `energy.toml`, by technology.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.figures import FIGURES, Figure, checked_value

_CATALOGUE: Final = Path(__file__).parent / "catalog"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device. Figures are in the units of `FIGURES`; `None` means that no source states the figure.

    `assumed` names the figures that the user supplied in place of the catalogue.
    """

    name: str
    vendor: str = ""
    product: str = ""
    status: str = ""
    status_detail: str = ""
    released: str = ""
    memory_type: str = ""
    scale_up_technology: str = ""
    host_link: str = ""
    notes: str = ""
    grade: str = ""
    memory_capacity: Figure
    memory_bandwidth: Figure
    bf16_flops: Figure | None = None
    fp8_flops: Figure | None = None
    int8_ops: Figure | None = None
    fp6_flops: Figure | None = None
    fp4_flops: Figure | None = None
    scale_up_bandwidth: Figure | None = None
    scale_up_domain: Figure | None = None
    scale_out_bandwidth: Figure | None = None
    host_link_bandwidth: Figure | None = None
    cxl_link_bandwidth: Figure | None = None
    nvme_link_bandwidth: Figure | None = None
    remote_link_bandwidth: Figure | None = None
    host_link_devices: Figure | None = None
    cxl_link_devices: Figure | None = None
    nvme_link_devices: Figure | None = None
    remote_link_devices: Figure | None = None
    host_capacity: Figure | None = None
    cxl_capacity: Figure | None = None
    nvme_capacity: Figure | None = None
    remote_capacity: Figure | None = None
    cxl_energy: Figure | None = None
    nvme_energy: Figure | None = None
    remote_energy: Figure | None = None
    memory_domains: Figure | None = None
    compute_dies: Figure | None = None
    die_to_die_bandwidth: Figure | None = None
    sram_capacity: Figure | None = None
    sram_bandwidth: Figure | None = None
    tdp: Figure | None = None
    list_price: Figure | None = None
    cloud_price: Figure | None = None
    tco_price: Figure | None = None
    all_in_power: Figure | None = None
    memory_energy: Figure | None = None
    flop_energy: Figure | None = None
    link_energy: Figure | None = None
    assumed: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of any result with this device must know."""
        return ("announced: vendor target, not a product",) if self.status == "announced" else ()


_STRINGS: Final = tuple(field.name for field in fields(Hardware) if field.type == "str")
_REQUIRED: Final = ("memory_capacity", "memory_bandwidth")
_STATUS: Final = ("shipping", "announced")


def hardware_names() -> tuple[str, ...]:
    """Names of the catalogue, from its file names: `paper-x.toml` is `paper/x`."""
    stems = (path.stem for path in (_CATALOGUE / "hardware").glob("*.toml"))
    return tuple(sorted(re.sub("^paper-", "paper/", stem) for stem in stems))


def load_hardware(name_or_path: str, assume: Mapping[str, str] = _NOTHING) -> Hardware:
    """The device of this catalogue name, or of this path if it ends in `.toml`; only that file is read.

    Args:
        name_or_path: "h100-sxm", "paper/h100", "my/chip.toml".
        assume: field -> quantity ("host_link_bandwidth": "64 GB/s") used in place of the file's figure.

    Raises:
        InputError: with every fault of the file and of `assume`.

    >>> load_hardware("h100-sxm").memory_bandwidth.value
    3350000000000.0
    """
    path = _locate(name_or_path)
    table = _read(path, name_or_path)
    faults = Faults()
    strings = {"name": path.stem} | _strings(table, faults)
    on_chip = "SRAM" in strings.get("memory_type", "").upper()
    figures = _figures(table, on_chip, faults) | _assumed(assume, table, on_chip, faults)
    for field in _REQUIRED:
        if field not in figures and field not in table and field not in assume:
            faults.add(f'{field} is missing: add [{field}] with value = "{FIGURES[field].example}" and a source')
    try:
        faults.raise_if_any()
    except InputError as error:
        raise InputError(f"{name_or_path}: {fault}" for fault in error.faults) from None
    figures = _energy(strings) | figures
    return Hardware(**strings, **figures, assumed=tuple(assume))  # type: ignore[arg-type]


def _locate(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml"):
        return Path(name_or_path)
    names = hardware_names()
    if name_or_path not in names:
        raise InputError(
            f'"{name_or_path}" is no hardware of the catalogue{nearest(name_or_path, names)}: '
            "give one of its names, or the path of a file that ends in .toml"
        )
    return _CATALOGUE / "hardware" / f"{name_or_path.replace('paper/', 'paper-')}.toml"


def _read(path: Path, label: str) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"{label}: cannot be read ({error}): give the path of a hardware file") from error
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(f"{label}: line {line} is not UTF-8 text: save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        last = raw.count(b"\n") + 1
        reason = str(error).replace("at end of document", f"at line {last}, the end of the file")
        raise InputError(f"{label}: not valid TOML: {reason}") from error


def _strings(table: Mapping[str, Any], faults: Faults) -> dict[str, str]:
    allowed = (*_STRINGS, *FIGURES)
    for key in sorted(table.keys() - set(allowed)):
        faults.add(f'"{key}" is no key of a hardware file{nearest(key, allowed)}; allowed: {", ".join(allowed)}')
    found = {key: table[key] for key in _STRINGS if key in table}
    for key, text in found.items():
        if not isinstance(text, str):
            faults.add(f"{key} = {text!r} is not text: write it in quotes")
    status = found.get("status", "shipping")
    if isinstance(status, str) and status not in _STATUS:
        faults.add(f'status = "{status}": write "shipping" or "announced"{nearest(status, _STATUS)}')
    return {key: str(text) for key, text in found.items()}


def _figures(table: Mapping[str, Any], on_chip: bool, faults: Faults) -> dict[str, Figure]:
    found = {}
    for field in (name for name in FIGURES if name in table):
        try:
            found[field] = _figure(field, table[field], on_chip)
        except InputError as error:
            faults.absorb(error)
    return found


def _figure(field: str, entry: Any, on_chip: bool) -> Figure:
    example = f'[{field}] with value = "{FIGURES[field].example}", source and note'
    if not isinstance(entry, dict):
        raise InputError(f"{field} = {entry!r} is not a table: write {example}")
    faults = Faults()
    for key in sorted(entry.keys() - {"value", "source", "note"}):
        faults.add(f'"{key}" is no key of [{field}]{nearest(key, ("value", "source", "note"))}: write {example}')
    for key in ("source", "note"):
        if not isinstance(entry.get(key, ""), str):
            faults.add(f"{key} = {entry[key]!r} of [{field}] is not text: write it in quotes")
    value = math.nan
    if "value" not in entry:
        faults.add(f"[{field}] has no value: write {example}")
    else:
        try:
            value = checked_value(field, entry["value"], on_chip)
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any()
    return Figure(value, entry.get("source", "not stated"), entry.get("note", ""))


def _assumed(assume: Mapping[str, str], table: Mapping[str, Any], on_chip: bool, faults: Faults) -> dict[str, Figure]:
    found = {}
    for field, text in assume.items():
        if field not in FIGURES:
            faults.add(f'assume: "{field}" is no figure{nearest(field, FIGURES)}; allowed: {", ".join(FIGURES)}')
            continue
        try:
            note = "in place of the sourced figure" if field in table else "no sourced figure"
            found[field] = Figure(checked_value(field, text, on_chip), "assumed", note)
        except InputError as error:
            faults.absorb(InputError(f"assume: {fault}" for fault in error.faults))
    return found


@cache
def _energy_table() -> dict[str, Any]:
    return _read(_CATALOGUE / "energy.toml", "energy.toml")


def _energy(strings: Mapping[str, str]) -> dict[str, Figure]:
    """Energy figures of the technologies that the device names; none for a technology without a figure."""
    table = _energy_table()
    entries = {
        "memory_energy": _technology(strings.get("memory_type", ""), table["memory"]),
        "link_energy": _technology(strings.get("host_link", ""), table["host_link"]),
        "flop_energy": table["flop"],
    }
    return {field: _energy_figure(field, entry) for field, entry in entries.items() if "value" in entry}


def _technology(text: str, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry whose name the text starts with, as whole words: "HBM3e + LPDDR5X" is HBM3E, "LPDDR5X" not LPDDR5."""
    for name, entry in known.items():
        if text.upper().startswith(name.upper()) and not text[len(name) : len(name) + 1].isalnum():
            return entry  # type: ignore[no-any-return]
    return _NOTHING


def _energy_figure(field: str, entry: Mapping[str, str]) -> Figure:
    span = f"{entry['low']} to {entry['high']}"
    note = f"grade {entry['grade']}; {entry['boundary']}; {span}; {entry['note']}"
    return Figure(checked_value(field, entry["value"], on_chip=False), entry["source"], note)
