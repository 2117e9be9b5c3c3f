"""Parallelism: the same devices divided in another way, or more of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from kvwall.spaces.design import NO_LIMIT
from kvwall.sweep.readable import bytes_text
from kvwall.sweep.reasons import devices_of
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import GAIN, lead, speedup, times_text, unknown_sentence
from kvwall.sweep.single import SingleDesign

_DEGREES: Final = ("tensor_parallel", "pipeline_parallel", "context_parallel", "attention_data_parallel")
_EXPERTS: Final = "expert_parallel"
_TIMES: Final = (1, 2, 4, 8)
"""Numbers of devices tried, times the design's."""
_USUAL_DOMAIN: Final = 8
"""Devices tried where no source says how many the scale-up link joins."""


class Parallelism(Family):
    """Every division of a number of devices by tensor, pipeline, context, attention-data and expert parallelism."""

    name = "parallelism"
    letter = "L"
    colour = "#1d4e89"
    lever = True

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Fewest devices first; as many as the design has, then twice as many and so on within the scale-up domain."""
        own = {name: int(single.number(name)) for name in (*_DEGREES, _EXPERTS)}
        found = []
        for count in _counts(single):
            for degrees in _divisions(count, len(_DEGREES)):
                stage = count // degrees[1]
                experts = [1] if single.model.experts is None or stage == 1 else [1, stage]
                for expert in experts:
                    layout = dict(zip((*_DEGREES, _EXPERTS), (*degrees, expert), strict=True))
                    found.append({name: value for name, value in layout.items() if value != own[name]})
        return [Setting(change) for change in found if change]

    def nothing(self, single: SingleDesign) -> str:
        """One device alone."""
        return "the scale-up link joins no more devices, and one device cannot be divided"

    def phrase(self, change: Change) -> str:
        """The degrees that change."""
        words = [f"{name.removesuffix('_parallel').replace('_', '-')} {value}" for name, value in change.items()]
        return ", ".join(words)

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """What a device reads, and what it waits for."""
        ratio = speedup(before, after)
        if ratio is None:
            return unknown_sentence(self.phrase(change), before, after)
        devices, more = int(before["devices"]), int(after["devices"])
        whose = f"the same {devices} devices" if more == devices else f"{more} devices instead of {devices}"
        reads = [
            bytes_text((one["weight_bytes_read"] + one["kv_bytes_read"]) / one["devices"]) for one in (before, after)
        ]
        each = "" if more == devices else f", {times_text(ratio * devices / more)} per device"
        verb = "slow the step to" if ratio < 1 / GAIN else "change no speed," if ratio <= GAIN else "give"
        told = f"{whose} as {self.phrase(change)} {verb} {times_text(ratio)}{each}"
        if after.bound_by != "hbm":
            return f"{told}: the step waits for {lead(after)}"
        return f"{told}: a device reads {reads[1]} a step instead of {reads[0]}"


def _counts(single: SingleDesign) -> list[int]:
    """Numbers of devices to try: those of the design, and more of them as far as the scale-up link joins them."""
    _, devices, domain = devices_of(single)
    most = domain if domain < NO_LIMIT else _USUAL_DOMAIN
    return [devices * times for times in _TIMES if times == 1 or devices * times <= most]


def _divisions(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as an ordered product.

    >>> list(_divisions(4, 2))
    [(4, 1), (2, 2), (1, 4)]
    """
    divisors = [number for number in range(count, 0, -1) if count % number == 0]
    for first in itertools.product(divisors, repeat=parts - 1):
        rest, left = divmod(count, math.prod(first))
        if left == 0 and rest > 0:
            yield (*first, rest)
