"""Prefix sharing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import percent, traffic_sentence
from kvwall.sweep.single import SingleDesign

ASSUMED_SHARE: Final = 0.5
"""What if so much of the context were common: where the design states nothing, shown but never combined."""


class PrefixSharing(Family):
    """A common prefix stored once, and read once where attention knows of it."""

    name = "prefix_sharing"
    letter = "X"
    colour = "#74c476"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Stored once; stored and read once. All sequences share it unless the design states a group."""
        batch, group = int(single.number("batch")), int(single.number("prefix_group"))
        share, stated = _share(single), single.number("prefix_share") > 0
        if batch < 2 or single.inputs["prefix_aware_attention"]:
            return []
        once: Change = {"prefix_share": share, "prefix_group": group if group > 1 else batch}
        aware = Setting({**once, "prefix_aware_attention": True}, stated)
        return [aware] if stated and group > 1 else [Setting(once, stated), aware]

    def nothing(self, single: SingleDesign) -> str:
        """One sequence, or shared already."""
        if single.number("batch") < 2:
            return "one sequence has nobody to share a prefix with"
        return "prefixes are already stored and read once"

    def phrase(self, change: Change) -> str:
        """How much is shared by how many."""
        does = "stored and read" if change.get("prefix_aware_attention") else "stored"
        group = int(change["prefix_group"])
        return f"a common prefix of {percent(float(change['prefix_share']))} {does} once for {group:,} sequences"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """KV's part of the traffic decides; whether the prefix is the user's or a what-if is said."""
        aware = bool(change.get("prefix_aware_attention"))
        slower = "" if aware else "every sequence still reads the prefix"
        found = traffic_sentence(self.phrase(change), "KV", before.kv_share, before, after, slower)
        if aware:
            found = f"{found}; reading once needs a prefix-aware attention kernel"
        if single.number("prefix_share") > 0:
            return found
        return f"{found}; the prefix is a what-if: state prefix_share for yours, until then it is not combined"


def _share(single: SingleDesign) -> float:
    return single.number("prefix_share") or ASSUMED_SHARE
