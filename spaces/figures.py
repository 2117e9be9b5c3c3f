"""Figures of a device: what each may be, how a written one is checked, and how a value is shown.

A value is in the unit that `FIGURES` declares for its field, and must lie in that field's plausible range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kvwall.spaces.errors import InputError
from kvwall.spaces.units import parse_quantity

_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
# unit -> how it is shown: symbol, factor from the unit to the symbol, and whether an SI prefix may precede it
_SYMBOLS: Final[Mapping[str, tuple[str, float, bool]]] = {
    "byte": ("B", 1.0, True),
    "byte/s": ("B/s", 1.0, True),
    "FLOP/s": ("FLOP/s", 1.0, True),
    "W": ("W", 1.0, True),
    "J/byte": ("pJ/bit", 1e12 / 8, False),
    "J/FLOP": ("pJ/FLOP", 1e12, False),
    "s": ("us", 1e6, False),
    "USD/byte": ("USD/GB", 1e9, False),
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
    "bf16_flops": Measure("FLOP/s", "989.4 TFLOP/s", 1e12, 1e17, on_chip=(3e12, 1e18)),
    "fp8_flops": Measure("FLOP/s", "1979 TFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "int8_ops": Measure("FLOP/s", "1979 TFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "fp6_flops": Measure("FLOP/s", "4.5 PFLOP/s", 6e12, 2e17, on_chip=(6e12, 2e18)),
    "fp4_flops": Measure("FLOP/s", "9 PFLOP/s", 1e13, 4e17, on_chip=(1e13, 4e18)),
    "scale_up_bandwidth": Measure("byte/s", "450 GB/s", 5e9, 2e13),
    "scale_up_domain": Measure("1", "8", 1, 1e5),
    "scale_out_bandwidth": Measure("byte/s", "50 GB/s", 1e8, 4e12),
    "host_link_bandwidth": Measure("byte/s", "64 GB/s", 2e9, 4e12),
    "cxl_link_bandwidth": Measure("byte/s", "64 GB/s", 1e9, 4e12),
    "nvme_link_bandwidth": Measure("byte/s", "14 GB/s", 1e8, 1e12),
    "remote_link_bandwidth": Measure("byte/s", "50 GB/s", 1e8, 4e12),
    "host_link_devices": Measure("1", "2", 1, 1024),
    "cxl_link_devices": Measure("1", "8", 1, 1024),
    "nvme_link_devices": Measure("1", "8", 1, 1024),
    "remote_link_devices": Measure("1", "1", 1, 1024),
    "host_capacity": Measure("byte", "256 GB", 1e9, 1e14),
    "cxl_capacity": Measure("byte", "1 TB", 1e9, 1e15),
    "nvme_capacity": Measure("byte", "8 TB", 1e9, 1e16),
    "remote_capacity": Measure("byte", "1 TB", 1e9, 1e18),
    "cxl_energy": Measure("J/byte", "10 pJ/bit", 8e-13, 4e-8),
    "nvme_energy": Measure("J/byte", "14 pJ/bit", 8e-13, 4e-8),
    "remote_energy": Measure("J/byte", "20 pJ/bit", 8e-13, 4e-8),
    "compute_dies": Measure("1", "2", 1, 64),
    "memory_domains": Measure("1", "4", 1, 64),
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


def display(field: str, value: float) -> str:
    """A device figure's value as people write it.

    >>> display("memory_bandwidth", 3.35e12)
    '3.35 TB/s'
    >>> display("memory_energy", 3.12e-11)
    '3.9 pJ/bit'
    """
    return shown(FIGURES[field], value)


def shown(measure: Measure, value: float) -> str:
    """A value of this measure as people write it."""
    symbol, factor, prefixed = _SYMBOLS[measure.unit]
    number = value * factor
    power = min(max(math.floor(math.log10(number) / 3), 0), len(_PREFIXES) - 1) if prefixed and number > 0 else 0
    return f"{number / 1000**power:.6g} {_PREFIXES[power]}{symbol}".rstrip()


def checked_value(field: str, written: Any, on_chip: bool) -> float:
    """The value, in the field's unit, of what a file or a user wrote. Raises InputError for what it cannot be."""
    return checked(FIGURES[field], field, written, on_chip)


def checked(measure: Measure, field: str, written: Any, on_chip: bool = False) -> float:
    """The value, in the measure's unit, of what was written for `field`. Raises InputError for what it cannot be."""
    value = _count(measure, field, written) if measure.unit == "1" else _quantity(measure, field, written)
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{str(written)[:40]} for {field}: write a finite number above zero, e.g. {measure.example}")
    low, high = measure.on_chip if on_chip and measure.on_chip else (measure.low, measure.high)
    if not low <= value <= high:
        raise InputError(
            f"{shown(measure, value)} for {field}: {_slip(measure, value, low, high)} "
            f"Plausible values run from {shown(measure, low)} to {shown(measure, high)}; written: {str(written)[:40]}"
        )
    return value


def _count(measure: Measure, field: str, written: Any) -> float:
    try:
        value = math.nan if isinstance(written, bool) else float(written)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isnan(value) or (math.isfinite(value) and value % 1):
        raise InputError(
            f"{str(written)[:40]!r} for {field} is not a count: write a whole number, e.g. {measure.example}"
        )
    return value


def _quantity(measure: Measure, field: str, written: Any) -> float:
    try:
        return parse_quantity(written if isinstance(written, str) else "", measure.unit)
    except InputError:
        raise InputError(
            f"{str(written)[:40]!r} for {field} is not a quantity in {_SYMBOLS[measure.unit][0]}: "
            f'write one number and one unit, e.g. "{measure.example}"'
        ) from None


def _slip(measure: Measure, value: float, low: float, high: float) -> str:
    """The question that names the likely slip: a wrong SI prefix, or a price per second."""
    unit = measure.unit
    powers = (1e3, 1e-3, 1e6, 1e-6, 1e9, 1e-9)
    for factor in (1 / 3600, *powers) if unit == "USD/hour" else powers:
        if unit != "1" and low <= value * factor <= high:
            meant = shown(measure, value * factor)
            return f"did you mean {meant.split()[-1] if _SYMBOLS[unit][2] else meant}?"
    return "check the number and its unit."
