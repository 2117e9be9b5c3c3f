"""Tiering: a part of the KV cache in memory beyond the device's own, read over its link by every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kvwall.objectives.tiers import TIERS
from kvwall.sweep.readable import prefixed
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import GAIN, lead, percent, speedup, times_text, unknown_sentence
from kvwall.sweep.single import SingleDesign

_PLACED: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
_WORDS: Final = {"host": "in host memory", "cxl": "in CXL memory", "nvme": "on NVMe", "remote": "in remote memory"}


class Tiering(Family):
    """Streamed: each step reads its part over the link."""

    name = "tiering"
    letter = "T"
    colour = "#7a5195"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """More of the KV in a tier than the design has."""
        return [Setting({**placed, "access": "streamed"}) for placed in more_placed(single)]

    def nothing(self, single: SingleDesign) -> str:
        """Everything is placed already."""
        return "the KV cache is in tiers already"

    def phrase(self, change: Change) -> str:
        """How much is where."""
        return f"{share_placed(change)} of the KV {where_placed(change)}"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """Whether the link keeps up; whether anything limits what the tier holds."""
        ratio, phrase, link = speedup(before, after), self.phrase(change), _link(single, change)
        if ratio is None:
            told = unknown_sentence(phrase, before, after)
        elif after.bound_by == "tier_link":
            wall = "moves the wall to" if ratio < 1 / GAIN else "makes the step wait for"
            told = f"{phrase} {wall} {link}: {times_text(ratio)}"
        elif ratio < 1 / GAIN:
            waits = f"transfers are not hidden, it waits for {lead(after)}"
            told = f"{phrase} slows the step to {times_text(ratio)}: {waits}"
        elif ratio <= GAIN:
            told = f"{phrase} costs no speed, {link} keeps up"
        else:
            told = f"{phrase} gives {times_text(ratio)}: {link} keeps up and device memory is read less"
        return f"{told}{unlimited(single, change)}"


def more_placed(single: SingleDesign) -> Iterator[Change]:
    """Larger fractions in each tier with a link whose bandwidth has a source; the host's even without, to say so."""
    placed = {tier: single.number(f"placement_{tier}") for tier in TIERS}
    for tier, own in placed.items():
        if tier != "host" and getattr(single.hardware, f"{tier}_link_bandwidth") is None:
            continue
        elsewhere = sum(placed.values()) - own
        yield from ({f"placement_{tier}": more} for more in _PLACED if more > own and more + elsewhere <= 1)


def share_placed(change: Change) -> str:
    """The fraction of a change, in percent."""
    return percent(float(change[_axis(change)]))


def where_placed(change: Change) -> str:
    """The tier of a change, such as "in host memory"."""
    return _WORDS[_tier(change)]


def unlimited(single: SingleDesign, change: Change) -> str:
    """A clause where no source limits what the tier holds."""
    field = f"{_tier(change)}_capacity"
    return f"; no source limits {field}" if getattr(single.hardware, field) is None else ""


def _axis(change: Change) -> str:
    return next(axis for axis in change if axis.startswith("placement_"))


def _tier(change: Change) -> str:
    return _axis(change).removeprefix("placement_")


def _link(single: SingleDesign, change: Change) -> str:
    """The link in words, such as "PCIe 5.0 x16 at 64 GB/s"."""
    tier = _tier(change)
    bandwidth = getattr(single.hardware, f"{tier}_link_bandwidth")
    name = single.hardware.host_link if tier == "host" and single.hardware.host_link else f"the {tier} link"
    return f"{name} at {prefixed(bandwidth.value, 'B/s')}" if bandwidth else name
