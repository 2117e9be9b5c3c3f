"""What a user assumes of a device: single figures, and whole tiers by the name of a technology.

A figure is a quantity, `host_link_bandwidth = "64 GB/s"`. A tier is a name of the catalogue of tiers or the path of a
file, with a count where there are several: `nvme = "4 x nvme-gen5-micron9550"`. It stands for the figures that the
technology has; a figure stated by itself wins over the tier's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.figures import FIGURES, Figure, checked, checked_value, display
from kvwall.spaces.tiers import KINDS, TierTechnology, load_tier

ROLES: Final[Mapping[str, tuple[str, str]]] = {
    "host": ("host", "grace-lpddr5x"),
    "host_link": ("link", "pcie5-x16"),
    "cxl": ("cxl", "cxl2-x16"),
    "nvme": ("nvme", "nvme-gen5-micron9550"),
    "remote": ("remote", "rdma-400g"),
    "scale_out": ("remote", "rdma-400g"),
}
"""Word for a whole tier or link -> kind of technology that it takes, and an example to show."""
_LINKS_FIRST: Final = ("host_link", *(word for word in ROLES if word != "host_link"))
"""How fast a host's memory may be read depends on the link to it."""
_COUNTED: Final = re.compile(r"(?:([1-9][0-9]{0,3})\s*x\s+)?(\S.*)")


@dataclass(frozen=True)
class _Named:
    """A technology that a user named, and how many units of it."""

    count: int
    tier: TierTechnology

    @property
    def words(self) -> str:
        """What it is, in words."""
        of_them = f"{self.count} x {self.tier.name}" if self.count > 1 else self.tier.name
        announced = ", announced" if self.tier.status == "announced" else ""
        return f"{of_them}, each {self.tier.unit}{announced}" if self.count > 1 else f"{of_them}{announced}"


def assumed_figures(
    assume: Mapping[str, str], sourced: Mapping[str, Figure], on_chip: bool, faults: Faults
) -> dict[str, Figure]:
    """The figures that a user's assumptions stand for, each with its source; faults are collected.

    Args:
        assume: figure -> quantity, or word of `ROLES` -> technology.
        sourced: the figures of the device's own file, in whose place they stand.
        on_chip: whether the device's memory is SRAM.
        faults: where to put what is wrong.
    """
    explicit: dict[str, Figure] = {}
    named: dict[str, _Named] = {}
    for word, text in assume.items():
        try:
            if word in ROLES:
                named[word] = _named(word, text)
            elif word in FIGURES:
                explicit[word] = Figure(checked_value(word, text, on_chip), "assumed", _replaced(word, sourced))
            else:
                allowed = (*FIGURES, *ROLES)
                faults.add(f'assume: "{word}" is no figure{nearest(word, allowed)}; allowed: {", ".join(allowed)}')
        except InputError as error:
            faults.absorb(InputError(f"assume: {fault}" for fault in error.faults))
    of_tiers: dict[str, Figure] = {}
    for word in sorted(named, key=_LINKS_FIRST.index):
        try:
            of_tiers |= _of_tier(word, named[word], sourced, {**sourced, **of_tiers, **explicit})
        except InputError as error:
            faults.absorb(InputError(f"assume: {word}: {fault}" for fault in error.faults))
    return of_tiers | explicit


def _replaced(field: str, sourced: Mapping[str, Figure]) -> str:
    return "in place of the sourced figure" if field in sourced else "no sourced figure"


def _named(word: str, text: str) -> _Named:
    kind, example = ROLES[word]
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{word} = "{text}": write the name of a tier, e.g. {word} = "{example}"')
    try:
        tier = load_tier(match[2])
    except InputError as error:
        if text.strip()[0].isdigit() and match[1] is None:
            figures = ", ".join(field for field in FIGURES if field.startswith(f"{word}_"))
            raise InputError(
                f'{word} = "{text}" is a quantity, not a tier: write the name of a tier, e.g. '
                f'{word} = "{example}", or the quantity of a figure: {figures}'
            ) from error
        raise InputError(f"{word}: {fault}" for fault in error.faults) from None
    if tier.kind != kind:
        fitting = [role for role, (taken, _) in ROLES.items() if taken == tier.kind]
        raise InputError(
            f'{word} = "{tier.name}": that is {KINDS[tier.kind]} (kind {tier.kind}), and {word} takes '
            f'kind {kind}, e.g. {example}; write {" or ".join(fitting)} = "{tier.name}"'
        )
    return _Named(int(match[1] or 1), tier)


def _of_tier(word: str, named: _Named, sourced: Mapping[str, Figure], known: Mapping[str, Figure]) -> dict[str, Figure]:
    """The device's figures that a technology states in this role; `known` are all other figures of the device."""
    tier = named.tier
    sharing = known.get(f"{word}_link_devices")
    devices = sharing.value if sharing else 1.0
    bandwidth, capacity = (tier.bandwidth, float(named.count)), (tier.capacity, named.count / devices)
    wanted: dict[str, tuple[Figure | None, float]]
    match word:
        case "host_link":
            wanted = {"host_link_bandwidth": bandwidth, "link_energy": (tier.energy, 1)}
        case "scale_out":
            wanted = {"scale_out_bandwidth": bandwidth}
        case "host":
            wanted = {"host_capacity": capacity, "host_link_bandwidth": bandwidth}
        case _:
            wanted = {f"{word}_link_bandwidth": bandwidth, f"{word}_capacity": capacity}
            wanted[f"{word}_energy"] = (tier.energy, 1)
    part = f", a part of it for each of {devices:g} devices" if devices > 1 else ""
    found = {}
    for field, (figure, times) in wanted.items():
        if figure is not None:
            words = f"{named.words}{part if field.endswith('_capacity') else ''}, {_replaced(field, sourced)}"
            found[field] = _assumed(field, figure, times, tier, words)
    if word == "host" and "host_link_bandwidth" in found:
        found["host_link_bandwidth"] = _behind_link(found["host_link_bandwidth"], known, named)
    if not found:
        first = next(iter(wanted))
        raise InputError(
            f"no source states what {tier.name} gives a device ({', '.join(wanted)}): "
            f'give its true figures, written like {first} = "{FIGURES[first].example}"'
        )
    return found


def _behind_link(memory: Figure, known: Mapping[str, Figure], named: _Named) -> Figure:
    """What a device reads of its host's memory: as fast as the slower of the memory and the link to it."""
    link = known.get("host_link_bandwidth")
    if link is None:
        raise InputError(
            f"{named.tier.name} lies behind the link to the host, which has no source for this device: "
            f'state that as well, e.g. host_link = "{ROLES["host_link"][1]}"'
        )
    if memory.value < link.value:
        return memory
    behind = f"{display('host_link_bandwidth', memory.value)} of {named.words} behind it are not slower"
    return Figure(link.value, link.source, "; ".join(text for text in (behind, link.note) if text))


def _assumed(field: str, figure: Figure, times: float, tier: TierTechnology, words: str) -> Figure:
    """A figure of the technology, so many times, as one of the device."""
    measure = FIGURES[field]
    value = checked(measure, field, f"{figure.value * times!r} {measure.unit}")
    details = [f"grade {tier.grade}"] if tier.grade and "grade " not in figure.note else []
    details += [figure.note] if figure.note else []
    return Figure(value, f"assumed {tier.name}: {figure.source}", "; ".join((words, *details)))
