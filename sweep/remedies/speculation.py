"""Speculative decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import GAIN, lead, speedup, times_text, unknown_sentence
from kvwall.sweep.single import SingleDesign

_DRAFTED: Final = (1, 2, 3, 4, 6, 8)


class Speculation(Family):
    """Drafted tokens at the design's acceptance rate."""

    name = "speculation"
    letter = "S"
    colour = "#e7298a"
    lever = True

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """More drafted tokens than the design's own."""
        return [Setting({"draft_tokens": drafted}) for drafted in _DRAFTED if drafted > single.number("draft_tokens")]

    def nothing(self, single: SingleDesign) -> str:
        """Already many."""
        return f"{single.number('draft_tokens'):g} tokens are drafted already"

    def phrase(self, change: Change) -> str:
        """Such as "3 drafted tokens"."""
        drafted = int(change["draft_tokens"])
        return f"{drafted} drafted token{'s' if drafted > 1 else ''}"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """What a step yields against how long it takes."""
        ratio = speedup(before, after)
        rate = f"an acceptance rate of {single.number('acceptance_rate'):g}"
        if ratio is None:
            return unknown_sentence(self.phrase(change), before, after)
        yielded = after["tokens_per_step"] / before["tokens_per_step"]
        longer = times_text(yielded / ratio)
        told = f"a step yields {after['tokens_per_step']:.3g} tokens at {rate} and takes {longer} as long"
        if after.bound_by != "hbm":
            told = f"{told}, waiting for {lead(after)}"
        end = "s" if change["draft_tokens"] == 1 else ""
        does = "slow{} the step to" if ratio < 1 / GAIN else "gain{} nothing," if ratio <= GAIN else "give{}"
        return f"{self.phrase(change)} {does.format(end)} {times_text(ratio)}: {told}"
