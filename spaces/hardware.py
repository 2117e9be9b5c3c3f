"""Hardware: one TOML file per chip, every figure with its source; `figures` says what each figure may be.

A figure that no source states is absent and stays `None`; nothing is filled in. Values are per device,
peaks are dense, links count one direction. Energy figures come from `energy.toml`, by technology.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kvwall.spaces.assumptions import assumed_figures
from kvwall.spaces.energy import flop_energy, link_energy, memory_energy
from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.figures import FIGURES, Figure
from kvwall.spaces.sourced_file import read_figures, read_table, read_texts

_CATALOGUE: Final = Path(__file__).parent / "catalog"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One device. Figures are in the units of `FIGURES`; `None` means that no source states the figure.

    `assumed` names the figures that are not this file's: those of the user, and those of a tier the user named.
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


def hardware_names() -> tuple[str, ...]:
    """Names of the catalogue, from its file names: `paper-x.toml` is `paper/x`."""
    stems = (path.stem for path in (_CATALOGUE / "hardware").glob("*.toml"))
    return tuple(sorted(re.sub("^paper-", "paper/", stem) for stem in stems))


def load_hardware(name_or_path: str, assume: Mapping[str, str] = _NOTHING) -> Hardware:
    """The device of this catalogue name, or of this path if it ends in `.toml`; only that file is read.

    Args:
        name_or_path: "h100-sxm", "paper/h100", "my/chip.toml".
        assume: field -> quantity ("host_link_bandwidth": "64 GB/s") used in place of the file's figure, or
            tier -> name of the catalogue of tiers ("nvme": "nvme-gen4"), as in `assumptions`.

    Raises:
        InputError: with every fault of the file and of `assume`.

    >>> load_hardware("h100-sxm").memory_bandwidth.value
    3350000000000.0
    """
    path = _locate(name_or_path)
    table = read_table(path, name_or_path, "hardware")
    faults = Faults()
    strings = {"name": path.stem} | read_texts(table, _STRINGS, FIGURES, "hardware", faults)
    on_chip = "SRAM" in strings.get("memory_type", "").upper()
    figures = _energy(strings) | read_figures(table, FIGURES, faults, on_chip)
    assumed = assumed_figures(assume, figures, on_chip, faults)
    for field in _REQUIRED:
        if field not in figures and field not in table and field not in assume:
            faults.add(f'{field} is missing: add [{field}] with value = "{FIGURES[field].example}" and a source')
    faults.raise_if_any(name_or_path)
    return Hardware(**strings, **(figures | assumed), assumed=tuple(assumed))  # type: ignore[arg-type]


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


def _energy(strings: Mapping[str, str]) -> dict[str, Figure]:
    """Energy figures of the technologies that the device names; none for a technology without a figure."""
    found = {
        "memory_energy": memory_energy(strings.get("memory_type", "")),
        "link_energy": link_energy(strings.get("host_link", "")),
        "flop_energy": flop_energy(),
    }
    return {field: figure for field, figure in found.items() if figure is not None}
