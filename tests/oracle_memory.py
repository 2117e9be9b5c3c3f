"""The oracle's capacity: what is left on the worst device and in its tiers, and by search the most that fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tests.oracle_given import Given
from tests.oracle_kv import reserved
from tests.oracle_weights import resting

SEARCH_LIMIT = 10**15


@dataclass(frozen=True)
class Memory:
    """Of one design, at any number of tokens and sequences."""

    given: Given

    @cached_property
    def resting(self) -> tuple[float, float]:
        """Weight bytes of a column's device: of the decoder layers, of the ends."""
        return resting(self.given)

    @property
    def activations(self) -> float:
        """Working bytes of one sequence that decodes."""
        model = self.given.model
        wide = max(2 * model["intermediate"], model["vocab"]) / self.given.stage_devices
        return float((2 * model["hidden"] + wide) * self.given.axis("activation_bits") / 8)

    def margin(self, context: float, batch: float) -> float | None:
        """Bytes left at `context` tokens plus the output in what is fullest; negative does not fit."""
        given, capacity = self.given, self.given.hardware["memory_capacity"]
        if capacity is None:
            return None
        held = given.on_rank(batch)
        each = reserved(given, context, given.copies(held))
        body, end = self.resting
        used = given.fullest(body + (1 - given.outside) * held * each, end)
        used += given.decoding(held) * self.activations
        utilisation = 1.0 if given.axes["utilisation"] is None else given.axis("utilisation")
        left = [utilisation * capacity - used]
        for tier, fraction in given.placed.items():
            room = given.hardware[f"{tier}_capacity"]
            if room is not None:
                left.append(room - given.fullest(fraction * held * each))
        return min(left)

    def largest(self, margin: Callable[[int], float | None]) -> float | None:
        """The largest whole number >= 1 whose margin is not negative, 0 if none, inf if all."""

        def fits(count: int) -> bool:
            left = margin(count)
            return left is not None and left >= 0

        if self.given.hardware["memory_capacity"] is None:
            return None
        if not fits(1):
            return 0.0
        good, bad = 1, 2
        while fits(bad):
            good, bad = bad, 2 * bad
            if bad > SEARCH_LIMIT:
                return math.inf
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return float(good)

    @property
    def max_batch(self) -> float | None:
        """Most sequences at this context."""
        return self.largest(lambda count: self.margin(self.given.axis("context"), count))

    @property
    def max_context(self) -> float | None:
        """Most tokens at this batch that are served and fit."""
        batch, stated, output = (self.given.axis(name) for name in ("batch", "max_model_length", "output_tokens"))
        # A last page that is full takes no more than one that is begun, and more of it may be shared: whole pages.
        page = 1.0 if self.given.axes["reservation"] == "contiguous" else self.given.axis("block_size")
        before = output // page

        def tokens(pages: float) -> float:
            return (before + pages) * page - output

        found = self.largest(lambda pages: self.margin(tokens(pages), batch))
        if not found:
            return found
        return max(min(tokens(found), stated - output if stated else math.inf), 0.0)
