"""What a sweep keeps of its grid and how it stores numbers: the words of `store` and `profile` in [sweep]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvwall.spaces.errors import InputError, nearest
from kvwall.sweep.bitround import KEEP_BITS, MANTISSA_BITS


@dataclass(frozen=True)
class Store:
    """What the results folder of a sweep holds."""

    name: str
    about: str
    points: bool
    """Whether every point of the slice is stored: shards and the view over them."""
    summary: bool
    """Whether every point of the grid is evaluated, so that there is a summary."""


@dataclass(frozen=True)
class Profile:
    """How blocks of numbers are stored."""

    name: str
    about: str
    keep_bits: int
    """Explicit mantissa bits of metrics that are kept."""
    filters: Mapping[str, object] = field(default_factory=dict)
    """Of netCDF4's `createVariable`: what undoes on reading what is done to numbers on writing."""

    def filters_for(self, points: int) -> Mapping[str, object]:
        """The filters of chunks of so many points: small ones are not worth it, and blosc's filter fails on them."""
        return self.filters if points >= _LEAST_PACKED else {}

    @property
    def rounds(self) -> bool:
        """Whether metrics lose bits."""
        return self.keep_bits < MANTISSA_BITS

    @property
    def needs_plugin(self) -> bool:
        """Whether readers need a filter that HDF5 itself does not have."""
        return self.filters.get("compression") == "blosc_lz4"

    @property
    def precision(self) -> str:
        """How exact stored metrics are, in words."""
        if not self.rounds:
            return "metrics are stored as they were computed, in single precision"
        return (
            f"metrics are stored with {self.keep_bits} explicit mantissa bits: the relative error is at most "
            f"{2.0 ** -(self.keep_bits + 1):.2g}"
        )


_LEAST_PACKED: Final = 1000  # points of a chunk

FULL: Final = "full"
REDUCED: Final = "reduced"
STORES: Final[Mapping[str, Store]] = {
    store.name: store
    for store in (
        Store(FULL, "the points of the slice, the front and the summary", points=True, summary=True),
        Store(REDUCED, "the front and the summary, and no points", points=False, summary=True),
    )
}

DEFAULT_PROFILE: Final = "portable"
_DEFLATED: Final = {"compression": "zlib", "complevel": 1, "shuffle": True}
PROFILES: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile("portable", "rounded, shuffled and deflated: every reader of netCDF knows it", KEEP_BITS, _DEFLATED),
        Profile(
            "fast",
            "rounded, bitshuffled and packed by blosc_lz4: quick to read, with a plugin",
            KEEP_BITS,
            {"compression": "blosc_lz4", "complevel": 5, "blosc_shuffle": 2},
        ),
        Profile("exact", "not rounded, shuffled and deflated", MANTISSA_BITS, _DEFLATED),
        Profile("plain", "neither rounded nor compressed: for a disk that is faster than this", MANTISSA_BITS),
    )
}


def known_store(name: str) -> str:
    """The name, if it is one of `store`. Raises InputError otherwise."""
    return _known("store", name, {store.name: store.about for store in STORES.values()})


def known_profile(name: str) -> str:
    """The name, if it is one of `profile`. Raises InputError otherwise."""
    return _known("profile", name, {profile.name: profile.about for profile in PROFILES.values()})


def _known(key: str, name: str, meanings: Mapping[str, str]) -> str:
    if name not in meanings:
        told = "; ".join(f'"{known}" ({about})' for known, about in meanings.items())
        raise InputError(f'{key} = "{name}" is not known{nearest(name, meanings)}: it is {told}')
    return name
