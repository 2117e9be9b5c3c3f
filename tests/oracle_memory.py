"""The oracle's capacity: what is left on the worst device and in its tiers, and by search the most that fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from tests.oracle_given import Given
from tests.oracle_kv import reserved, set_apart
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

    @property
    def usable(self) -> float | None:
        """Bytes of the device that may be used; all of them where the axis says nothing else."""
        capacity, utilisation = self.given.hardware["memory_capacity"], self.given.axes["utilisation"]
        return capacity if capacity is None or utilisation is None else self.given.axis("utilisation") * capacity

    def left(self, held: float, each: float) -> float | None:
        """Bytes left in what is fullest where a rank holds so many sequences of `each` bytes of KV per device."""
        given, usable = self.given, self.usable
        if usable is None:
            return None
        body, end = self.resting
        used = given.fullest(body + (1 - given.outside) * held * each, end)
        left = [usable - used - given.decoding(held) * self.activations]
        for tier, fraction in given.placed.items():
            room = given.hardware[f"{tier}_capacity"]
            if room is not None:
                left.append(room - given.fullest(fraction * held * each))
        return min(left)

    def margin(self, context: float, batch: float) -> float | None:
        """Bytes left with so many sequences on the replica; negative does not fit."""
        held = self.given.on_rank(batch)
        return self.left(held, reserved(self.given, context, self.given.copies(held)))

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

    # The pool of engines

    @property
    def for_weights_and_kv(self) -> float | None:
        """Usable bytes but those this batch works with."""
        working = self.given.decoding(self.given.on_rank(self.given.axis("batch"))) * self.activations
        return None if self.usable is None else self.usable - working

    @property
    def pool(self) -> float | None:
        """Bytes of the worst stage that are left for KV."""
        return None if self.for_weights_and_kv is None else self.for_weights_and_kv - self.given.fullest(*self.resting)

    @property
    def longest(self) -> float:
        """Tokens of the longest sequence that is served."""
        design = self.given
        return design.axis("max_model_length") or design.axis("context") + design.axis("output_tokens")

    def most(self, left: Callable[[float, float], float]) -> float:
        """How many of the longest requests fit on a rank, parts of one included, by what so many of a size leave."""

        def fits(held: float) -> bool:
            prompt, copies = self.given.axis("context"), self.given.copies(held)
            return left(held, set_apart(self.given, self.longest, prompt, copies)) >= 0

        low, high = 0.0, 1.0
        if not fits(0.0):
            return 0.0
        while fits(high):
            low, high = high, 2 * high
            if high > SEARCH_LIMIT:
                return math.inf
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    @property
    def concurrency(self) -> float | None:
        """How many of the longest requests fit, parts of one included; prefixes are shared as they fill up."""
        return (
            None if self.usable is None else self.given.ranks * self.most(lambda held, each: self.left(held, each) or 0)
        )

    @property
    def pool_tokens(self) -> float | None:
        """Tokens that the pool holds as requests of the longest length."""
        if self.for_weights_and_kv is None:
            return None
        room, inside, (body, end) = self.for_weights_and_kv, 1 - self.given.outside, self.resting
        requests = self.most(lambda held, each: room - self.given.fullest(body + inside * held * each, end))
        return float(math.floor(requests * self.longest)) if math.isfinite(requests) else requests

    @property
    def pool_blocks(self) -> float | None:
        """Whole pages of those tokens."""
        tokens = self.pool_tokens
        return tokens if tokens is None or math.isinf(tokens) else tokens // self.given.axis("block_size")
