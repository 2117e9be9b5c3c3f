"""Parking: whole sequences wait in memory beyond the device's own while others decode."""

from __future__ import annotations

from collections.abc import Sequence

from kvwall.objectives.tiers import TIERS
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import GAIN, speedup, times_text, unknown_sentence
from kvwall.sweep.remedies.tiering import more_placed, share_placed, unlimited, where_placed
from kvwall.sweep.single import SingleDesign


class Parking(Family):
    """Nothing is read over the link by a step, but fewer sequences decode at a time."""

    name = "parking"
    letter = "I"
    colour = "#bc80bd"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """More of the sequences in a tier than the design has; some must decode."""
        changes = [{**placed, "access": "parked"} for placed in more_placed(single)]
        return [Setting(change) for change in changes] if single.number("batch") > 1 else []

    def nothing(self, single: SingleDesign) -> str:
        """One sequence, or all in tiers."""
        if single.number("batch") <= 1:
            return "the only sequence cannot wait for others"
        return "the sequences are in tiers already"

    def phrase(self, change: Change) -> str:
        """How many wait where."""
        return f"parking {share_placed(change)} of the sequences {where_placed(change)}"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """Fewer decode, each of them faster."""
        ratio = speedup(before, after)
        placed = sum(float(change.get(f"placement_{tier}", single.number(f"placement_{tier}"))) for tier in TIERS)
        if ratio is None:
            return unknown_sentence(self.phrase(change), before, after)
        decode = single.number("batch") * (1 - placed)
        does = "slows all together to" if ratio < 1 / GAIN else "changes no speed," if ratio <= GAIN else "gives"
        told = f"{self.phrase(change)} {does} {times_text(ratio)}: {decode:.3g} decode at a time"
        return f"{told}{unlimited(single, change)}"
