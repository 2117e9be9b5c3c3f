"""Hardware: one TOML file per chip, every figure with its unit, source and a check of its magnitude.

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
from kvwall.spaces.units import parse_quantity

_CATALOGUE: Final = Path(__file__).parent / "catalog"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
# unit -> how it is shown: symbol, factor from the unit to the symbol, and whether an SI prefix may precede it
_SYMBOLS: Final[Mapping[str, tuple[str, float, bool]]] = {
    "byte": ("B", 1.0, True),
    "byte/s": ("B/s", 1.0, True),
    "FLOP/s": ("FLOP/s", 1.0, True),
    "W": ("W", 1.0, True),
    "J/byte": ("pJ/bit", 1e12 / 8, False),
    "J/FLOP": ("pJ/FLOP", 1e12, False),
    "USD": ("USD", 1.0, False),
    "USD/hour": ("USD/hour", 1.0, False),
    "1": ("", 1.0, False),
}


@dataclass(frozen=True)
class Figure:
    """A sourced number, in the unit that `FIGURES` declares for its field."""

    value: float
    source: str
    note: str = ""


@dataclass(frozen=True)
class Measure:
    """What a figure may be: its unit, an example to show, and the range of plausible values in that unit.

    `on_chip` is the range where the main memory is SRAM (a wafer or a chip without DRAM); unit "1" is a whole number.
    """

    unit: str
    example: str
    low: float
    high: float
    on_chip: tuple[float, float] | None = None


# The one declaration of every figure's unit: it drives parsing, checking and showing.
FIGURES: Final[Mapping[str, Measure]] = {
    "memory_capacity": Measure("byte", "80 GiB", 4e9, 4e12, on_chip=(5e7, 1e12)),
    "memory_bandwidth": Measure("byte/s", "3.35 TB/s", 3e10, 1e14, on_chip=(1e12, 1e17)),
    "bf16_flops": Measure("FLOP/s", "989.4 TFLOP/s", 3e12, 1e17, on_chip=(3e12, 1e18)),
    "fp8_flops": Measure("FLOP/s", "1979 TFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "int8_ops": Measure("FLOP/s", "1979 TFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "fp6_flops": Measure("FLOP/s", "4.5 PFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "fp4_flops": Measure("FLOP/s", "9 PFLOP/s", 1e13, 4e17, on_chip=(1e13, 4e18)),
    "scale_up_bandwidth": Measure("byte/s", "450 GB/s", 5e9, 2e13),
    "scale_up_domain": Measure("1", "8", 1, 1e5),
    "host_link_bandwidth": Measure("byte/s", "64 GB/s", 2e9, 4e12),
    "compute_dies": Measure("1", "2", 1, 64),
    "die_to_die_bandwidth": Measure("byte/s", "10 TB/s", 1e11, 1e15),
    "sram_capacity": Measure("byte", "50 MiB", 1e6, 8e9, on_chip=(5e7, 1e12)),
    "sram_bandwidth": Measure("byte/s", "7.2 TB/s", 2e11, 1e15, on_chip=(1e12, 1e17)),
    "tdp": Measure("W", "700 W", 5, 1e4, on_chip=(5, 1e5)),
    "list_price": Measure("USD", "15000 USD", 100, 1e7),
    "cloud_price": Measure("USD/hour", "3.9 USD/hour", 0.02, 500),
    "tco_price": Measure("USD/hour", "1.69 USD/hour", 0.02, 500),
    "all_in_power": Measure("W", "1730 W", 10, 2e4, on_chip=(10, 2e5)),
    "memory_energy": Measure("J/byte", "3.9 pJ/bit", 8e-13, 8e-10),
    "flop_energy": Measure("J/FLOP", "0.23 pJ/FLOP", 1e-14, 1e-10),
    "link_energy": Measure("J/byte", "5.5 pJ/bit", 8e-13, 4e-9),
}


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
    host_link_bandwidth: Figure | None = None
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


def display(field: str, value: float) -> str:
    """A figure's value as people write it.

    >>> display("memory_bandwidth", 3.35e12)
    '3.35 TB/s'
    >>> display("memory_energy", 3.12e-11)
    '3.9 pJ/bit'
    """
    symbol, factor, prefixed = _SYMBOLS[FIGURES[field].unit]
    shown = value * factor
    power = min(max(math.floor(math.log10(shown) / 3), 0), len(_PREFIXES) - 1) if prefixed and shown > 0 else 0
    return f"{shown / 1000**power:.6g} {_PREFIXES[power]}{symbol}".rstrip()


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
            value = _value(field, entry["value"], on_chip)
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
            found[field] = Figure(_value(field, text, on_chip), "assumed", note)
        except InputError as error:
            faults.absorb(InputError(f"assume: {fault}" for fault in error.faults))
    return found


def _value(field: str, written: Any, on_chip: bool) -> float:
    """The checked value, in the field's unit, of what a file or a user wrote."""
    measure = FIGURES[field]
    value = _count(field, written) if measure.unit == "1" else _quantity(field, written)
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{str(written)[:40]} for {field}: write a finite number above zero, e.g. {measure.example}")
    low, high = measure.on_chip if on_chip and measure.on_chip else (measure.low, measure.high)
    if not low <= value <= high:
        raise InputError(
            f"{display(field, value)} for {field}: {_slip(field, value, low, high)} "
            f"Plausible values run from {display(field, low)} to {display(field, high)}; written: {str(written)[:40]}"
        )
    return value


def _count(field: str, written: Any) -> float:
    try:
        value = math.nan if isinstance(written, bool) else float(written)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isnan(value) or (math.isfinite(value) and value % 1):
        raise InputError(
            f"{str(written)[:40]!r} for {field} is not a count: write a whole number, e.g. {FIGURES[field].example}"
        )
    return value


def _quantity(field: str, written: Any) -> float:
    unit = FIGURES[field].unit
    try:
        return parse_quantity(written if isinstance(written, str) else "", unit)
    except InputError:
        raise InputError(
            f"{str(written)[:40]!r} for {field} is not a quantity in {_SYMBOLS[unit][0]}: "
            f'write one number and one unit, e.g. "{FIGURES[field].example}"'
        ) from None


def _slip(field: str, value: float, low: float, high: float) -> str:
    """The question that names the likely slip: a wrong SI prefix, or a price per second."""
    unit = FIGURES[field].unit
    powers = (1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9)
    for factor in (1 / 3600, *powers) if unit == "USD/hour" else powers:
        if unit != "1" and low <= value * factor <= high:
            meant = display(field, value * factor)
            return f"did you mean {meant.split()[-1] if _SYMBOLS[unit][2] else meant}?"
    return "check the number and its unit."


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
    return Figure(_value(field, entry["value"], on_chip=False), entry["source"], note)
