"""Tiering: a part of the KV cache in memory beyond the device's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.objectives.tiers import TIERS
from kvwall.sweep.readable import prefixed
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import GAIN, lead, percent, speedup, times_text
from kvwall.sweep.single import SingleDesign

_PLACED: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
_WORDS: Final = {"host": "in host memory", "cxl": "in CXL memory", "nvme": "on NVMe", "remote": "in remote memory"}


class Tiering(Family):
    """Streamed: each step reads its part over the link. Parked: that of idle sequences, which wait meanwhile."""

    name = "tiering"
    letter = "T"
    colour = "#7a5195"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Fractions in each tier with a link whose bandwidth has a source; the host's even without, to say so."""
        elsewhere = sum(single.number(f"placement_{tier}") for tier in TIERS)
        found: list[Change] = []
        for tier in TIERS:
            if tier != "host" and getattr(single.hardware, f"{tier}_link_bandwidth") is None:
                continue
            own = single.number(f"placement_{tier}")
            for placed in _PLACED:
                if placed > own and placed + elsewhere - own <= 1:
                    found.append({f"placement_{tier}": placed, "access": "streamed"})
                    found.append({f"placement_{tier}": placed, "access": "parked"})
        return [Setting(change) for change in found]

    def nothing(self, single: SingleDesign) -> str:
        """Everything is placed already."""
        return "the KV cache is in tiers already"

    def phrase(self, change: Change) -> str:
        """How much is where."""
        tier, placed = _placed(change)
        if change["access"] == "parked":
            return f"parking {percent(placed)} of the sequences {_WORDS[tier]}"
        return f"{percent(placed)} of the KV {_WORDS[tier]}"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """The link, or the sequences that wait; whether anything limits what the tier holds."""
        tier, _ = _placed(change)
        unlimited = getattr(single.hardware, f"{tier}_capacity") is None
        assumption = f"; no source limits {tier}_capacity" if unlimited else ""
        return f"{self._speed_sentence(single, change, before, after)}{assumption}"

    def _speed_sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        ratio, (tier, placed) = speedup(before, after), _placed(change)
        phrase = self.phrase(change)
        if ratio is None:
            return f"{phrase}: the step's time is not known"
        if change["access"] == "parked":
            decode = f"{percent(1 - placed)} of them decode at a time"
            return f"{phrase} {'slows all to' if ratio < 1 else 'gives'} {times_text(ratio)}: {decode}"
        if after.bound_by == "tier_link":
            wall = "moves the wall to" if ratio < 1 / GAIN else "makes the step wait for"
            return f"{phrase} {wall} {_link(single, tier)}: {times_text(ratio)}"
        if ratio < 1 / GAIN:
            waits = f"transfers are not hidden, it waits for {lead(after)}"
            return f"{phrase} slows the step to {times_text(ratio)}: {waits}"
        hidden = f"{_link(single, tier)} keeps up"
        if ratio <= GAIN:
            return f"{phrase} costs no speed, {hidden}"
        return f"{phrase} gives {times_text(ratio)}: {hidden} and device memory is read less"


def _placed(change: Change) -> tuple[str, float]:
    name = next(axis for axis in change if axis.startswith("placement_"))
    return name.removeprefix("placement_"), float(change[name])


def _link(single: SingleDesign, tier: str) -> str:
    """The link in words, such as "PCIe 5.0 x16 at 64 GB/s"."""
    bandwidth = getattr(single.hardware, f"{tier}_link_bandwidth")
    name = single.hardware.host_link if tier == "host" and single.hardware.host_link else f"the {tier} link"
    return f"{name} at {prefixed(bandwidth.value, 'B/s')}" if bandwidth else name
