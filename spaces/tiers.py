"""Technologies of memory tiers and of the links to them: one TOML file each, every figure with its source.

Figures are of one unit (a drive, a port, a memory channel), bandwidths of one direction. A figure that no source
states is absent. `assumptions` says how one becomes figures of a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from kvwall.spaces.energy import link_energy
from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.figures import Figure, Measure
from kvwall.spaces.sourced_file import read_figures, read_table, read_texts

_CATALOGUE: Final = Path(__file__).parent / "catalog" / "tiers"
KINDS: Final[Mapping[str, str]] = {
    "host": "memory of the host's CPU",
    "link": "link from a device to its host",
    "cxl": "memory behind a CXL link",
    "nvme": "flash drive",
    "remote": "network to other nodes",
}
"""What a technology is."""
TIER_FIGURES: Final[Mapping[str, Measure]] = {
    "bandwidth": Measure("byte/s", "14 GB/s", 1e8, 4e12),
    "write_bandwidth": Measure("byte/s", "10 GB/s", 1e8, 4e12),
    "capacity": Measure("byte", "30.72 TB", 1e9, 1e18),
    "latency": Measure("s", "3 us", 1e-9, 1e-2),
    "energy": Measure("J/byte", "223 pJ/bit", 8e-13, 4e-8),
    "price": Measure("USD/byte", "13 USD/GB", 1e-12, 1e-5),
}


@dataclass(frozen=True, kw_only=True)
class TierTechnology:
    """One technology. Figures are in the units of `TIER_FIGURES`; `None` means that no source states the figure."""

    name: str
    kind: str
    unit: str
    """What the figures are of: "one drive"."""
    technology: str = ""
    status: str = ""
    grade: str = ""
    notes: str = ""
    bandwidth: Figure | None = None
    """Read, one direction."""
    write_bandwidth: Figure | None = None
    capacity: Figure | None = None
    latency: Figure | None = None
    energy: Figure | None = None
    """Per byte moved."""
    price: Figure | None = None
    """Per byte of capacity."""


_TEXTS: Final = tuple(field.name for field in fields(TierTechnology) if field.type == "str")
_REQUIRED: Final[Mapping[str, str]] = {
    "kind": f"one of {', '.join(KINDS)}",
    "unit": 'what its figures are of, e.g. "one drive"',
}


def tier_names() -> tuple[str, ...]:
    """Names of the catalogue, from its file names."""
    return tuple(sorted(path.stem for path in _CATALOGUE.glob("*.toml")))


def load_tier(name_or_path: str) -> TierTechnology:
    """The technology of this catalogue name, or of this path if it ends in `.toml`.

    Raises InputError with every fault of the file.

    >>> load_tier("rdma-400g").bandwidth.value
    50000000000.0
    """
    path = _locate(name_or_path)
    table = read_table(path, name_or_path, "tier")
    faults = Faults()
    texts = {"name": path.stem} | read_texts(table, _TEXTS, TIER_FIGURES, "tier", faults)
    figures = read_figures(table, TIER_FIGURES, faults)
    for key, meaning in _REQUIRED.items():
        if key not in texts:
            faults.add(f"{key} is missing: write {meaning}")
    kind = texts.get("kind")
    if kind is not None and kind not in KINDS:
        faults.add(f'kind = "{kind}": write {_REQUIRED["kind"]}{nearest(kind, KINDS)}')
    faults.raise_if_any(name_or_path)
    of_link = link_energy(texts.get("technology", ""))
    if of_link is not None:
        figures = {"energy": of_link} | figures
    return TierTechnology(**texts, **figures)  # type: ignore[arg-type]


def _locate(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml"):
        return Path(name_or_path)
    names = tier_names()
    if name_or_path not in names:
        raise InputError(
            f'"{name_or_path}" is no tier of the catalogue{nearest(name_or_path, names)}: '
            f"`kvwall catalog tiers` lists them; or give the path of a file that ends in .toml"
        )
    return _CATALOGUE / f"{name_or_path}.toml"
