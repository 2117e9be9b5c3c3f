"""The oracle's first token: one prompt alone on the replica, and whether to reload it or to compute it again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tests.oracle_given import Given
from tests.oracle_kv import found, in_hbm, stored, written
from tests.oracle_time import Step
from tests.oracle_weights import body_read, head, hottest_rank, rows
from tests.oracle_work import Pass, attention_format, flop, handed_on, layer_collectives, peak, prompt_attention_flop


@dataclass(frozen=True)
class Prefill:
    """One prompt of `context` tokens."""

    given: Given

    @property
    def context(self) -> float:
        """Tokens of the prompt."""
        return self.given.axis("context")

    def work(self, new: float) -> Pass:
        """The last `new` tokens of the prompt as one pass."""
        return Pass(new, new, 1.0, prompt_attention_flop(self.given, self.context - new, self.context))

    def seconds(self, new: float) -> float:
        """Time of the last `new` tokens, with what is before them cached in HBM."""
        given, cached = self.given, self.context - new
        moved = body_read(given, new) + head(given) + rows(given, new) + written(given, new)
        if cached > 0:
            moved += in_hbm(given) * stored(given, cached)
        times = [moved / (given.hardware["memory_bandwidth"] or math.nan)]
        for form, (body, end) in flop(given, self.work(new), hottest_rank(given)).items():
            times.append((body + end) / (peak(given, form) or math.nan))
        sent = layer_collectives(given, new, new) + handed_on(given, new)
        for amount, name in ((sent.inside, "scale_up_bandwidth"), (sent.across, "scale_out_bandwidth")):
            if amount > 0:
                times.append(amount / (given.hardware[name] or math.nan))
        return max(times)

    @property
    def first_token(self) -> float:
        """Seconds to the first token; what is found in tiers comes over their links or is computed, as is faster."""
        given, step = self.given, Step(self.given)
        quick, whole = self.seconds(given.new_prompt), self.seconds(self.context)
        if not given.placed or not given.axis("prefix_hit_rate"):
            return quick
        reload = max(fraction * found(given) / (step.link(tier) or math.nan) for tier, fraction in given.placed.items())
        overlap = given.axis("link_overlap")
        return min(whole, max(quick, overlap * reload) + (1 - overlap) * reload)

    @property
    def sequence_bytes(self) -> float:
        """Bytes of the whole sequence on a device."""
        return stored(self.given, self.context)

    @property
    def break_even_bandwidth(self) -> float:
        """Link above which reloading the sequence is faster than computing it."""
        return self.sequence_bytes / self.seconds(self.context)

    @property
    def reload_link(self) -> float | None:
        """Bytes per second at which a sequence comes back: from all tiers in use at once, from the host if none is."""
        placed, step = self.given.placed or {"host": 1.0}, Step(self.given)
        slowest = 0.0
        for tier, fraction in placed.items():
            link = step.link(tier)
            if link is None:
                return None
            slowest = max(slowest, fraction / sum(placed.values()) / link)
        return 1 / slowest

    @property
    def growth(self) -> tuple[float, float]:
        """Seconds of arithmetic per token and per token squared, at this context; the slowest format's."""
        given, work, linear = self.given, self.work(self.context), 0.0
        for form, (body, _) in flop(given, replace(work, attention=0.0), hottest_rank(given)).items():
            linear = max(linear, body / (peak(given, form) or math.nan) / self.context)
        if work.attention == 0:
            return linear, 0.0
        attention = work.attention / given.rank_devices / (peak(given, attention_format(given)) or math.nan)
        return linear, attention / self.context**2

    @property
    def break_even_context(self) -> float | None:
        """Context beyond which reloading is faster, computing bound by arithmetic: a*c + b*c^2 = s*c/link."""
        link = self.reload_link
        if link is None:
            return None
        linear, quadratic = self.growth
        left = self.sequence_bytes / self.context / link - linear
        if quadratic == 0:
            return math.inf if left > 0 else 0.0
        return max(left / quadratic, 0.0)
