"""Token eviction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import traffic_sentence
from kvwall.sweep.single import SingleDesign

_KEPT: Final = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


class Eviction(Family):
    """Fewer tokens kept, chosen by the design's `evictor`."""

    name = "eviction"
    letter = "E"
    colour = "#fd8d3c"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Shares below the design's own."""
        if not any(group.evictable and group.layers for group in single.model.groups):
            return []
        return [Setting({"retention": kept}) for kept in _KEPT if kept < single.number("retention")]

    def nothing(self, single: SingleDesign) -> str:
        """Windows and states, or already few tokens."""
        if not any(group.evictable and group.layers for group in single.model.groups):
            return "the model keeps no full context that tokens could be evicted from"
        return f"only {single.number('retention'):g} of the tokens is kept as it is"

    def phrase(self, change: Change) -> str:
        """Such as "keeping half of the tokens"."""
        kept = float(change["retention"])
        return f"keeping {'half' if kept == 0.5 else f'{100 * kept:g} %'} of the tokens"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """KV's part of the traffic decides."""
        return traffic_sentence(self.phrase(change), "KV", before.kv_share, before, after)
