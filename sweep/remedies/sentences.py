"""Why a remedy pays or not: plain sentences made from the numbers before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.objectives.estimate import BOUNDS
from kvwall.sweep.readable import bytes_text
from kvwall.sweep.remedies.outcome import OF_THE_STEP, Outcome

GAIN: Final = 1.005
"""Below this, and above its inverse, a speed counts as unchanged in words."""
_MOST: Final = 0.5
_SMALL: Final = 0.01
"""Of the memory, below which a change is not worth a word."""
_TIMES: Final = dict(zip(BOUNDS, OF_THE_STEP, strict=True))
_WORDS: Final = {
    "hbm": "memory traffic",
    "compute": "compute",
    "scale_up": "the links between devices",
    "tier_link": "the tier's link",
    "overhead": "the engine's own work between kernels",
}


def speedup(before: Outcome, after: Outcome) -> float | None:
    """How many times as many tokens per second; None where either is not known."""
    if not (before.known and after.known) or before["tokens_per_second"] <= 0:
        return None
    return after["tokens_per_second"] / before["tokens_per_second"]


def times_text(ratio: float) -> str:
    """A speedup.

    >>> times_text(1.9083), times_text(0.0312), times_text(12.34)
    ('1.91x', '0.031x', '12.3x')
    """
    if ratio >= 10:
        return f"{ratio:.3g}x"
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.7692), percent(0.004), percent(0.9995), percent(1.0)
    ('77 %', '0.4 %', '99.9 %', '100 %')
    """
    if 0.99 < share < 1:
        return f"{min(100 * share, 99.9):.3g} %"
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def binding(outcome: Outcome) -> str:
    """What a step waits for."""
    return _WORDS[outcome.bound_by]


def lead(outcome: Outcome) -> str:
    """What a step waits for, and how far that is ahead of memory traffic."""
    ahead = outcome[_TIMES[outcome.bound_by]] / outcome["hbm_time"]
    return f"{binding(outcome)}, {times_text(ahead)} the time of memory traffic"


def traffic_sentence(
    phrase: str, what: str, share: float, before: Outcome, after: Outcome, slower: str = "", plural: bool = False
) -> str:
    """Why a remedy that shrinks a part of the memory traffic makes a step faster or not.

    Args:
        phrase: the remedy, such as "2-bit KV".
        what: the part that it shrinks: "KV" or "weights".
        share: of the bytes read, that part before.
        before: the step without.
        after: the step with it.
        slower: why it can be slower.
        plural: whether the phrase is one.
    """
    ratio, end = speedup(before, after), "" if plural else "s"
    if ratio is None:
        return unknown_sentence(phrase, before, after)
    if ratio < 1 / GAIN:
        return f"{phrase} slow{end} the step to {times_text(ratio)}: {slower or f'it then waits for {lead(after)}'}"
    shares = _share_text(what, share)
    if ratio <= GAIN:
        if before.bound_by != "hbm":
            return f"{phrase} change{end} no speed: the step waits for {lead(before)}"
        return f"{phrase} gain{end} nothing: {slower or shares}"
    gives = f"{phrase} give{end} {times_text(ratio)}"
    if before.bound_by == "hbm" and after.bound_by != "hbm":
        return f"{gives}, then the step waits for {binding(after)}: {shares}"
    if before.bound_by != "hbm":
        return f"{gives}: the step waited for {binding(before)}, now for {binding(after)}"
    return f"{gives}: {shares}"


def _share_text(what: str, share: float) -> str:
    """The larger part of the traffic, which explains best."""
    other = {"KV": "weights", "weights": "KV"}[what]
    if share >= _MOST:
        return f"{what} {_is(what)} {percent(share)} of the traffic"
    if share < 0.1:
        return f"{what} {_is(what)} only {percent(share)} of the traffic"
    return f"{other} {_is(other)} {percent(1 - share)} of the traffic"


def _is(what: str) -> str:
    return "are" if what == "weights" else "is"


def unknown_sentence(phrase: str, before: Outcome, after: Outcome) -> str:
    """What can be said where there is no speed to compare."""
    if before.known or not after.known:
        return f"{phrase}: the step's time is not known"
    return f"{phrase}: {after['tokens_per_second']:,.4g} tok/s, where the design as it is has no known speed"


def memory_clause(before: Outcome, after: Outcome, applied: bool = False) -> str:
    """What happens to memory: whether it makes the design fit, what it frees, the largest batch; empty if nothing.

    `applied` says that the design has the remedy already, so that `before` is what it would be without.
    """
    if not before.known:
        return f"largest batch {count_text(after['max_batch'])}" if after.holds else ""
    freed = after["device_margin"] - before["device_margin"]
    batches = f"largest batch {count_text(before['max_batch'])} to {count_text(after['max_batch'])}"
    changed = count_text(before["max_batch"]) != count_text(after["max_batch"])
    if after.holds and not before.holds:
        return f"{'without it the design would not fit' if applied else 'makes it fit'} ({batches})"
    if not after.holds:
        short = bytes_text(-after["memory_margin"])
        frees = f"frees {bytes_text(freed)} a device, but " if freed > _SMALL * -after["memory_margin"] else ""
        return f"{frees}it is still {short} short" if not before.holds else f"then it does not fit: {short} short"
    if abs(freed) < _SMALL * max(abs(before["device_margin"]), 1.0) and not changed:
        return ""
    verb = "frees" if freed >= 0 else "takes"
    return f"{verb} {bytes_text(abs(freed))} a device{f' ({batches})' if changed else ''}"


def count_text(count: float) -> str:
    """A number of sequences.

    >>> count_text(25.0), count_text(1e20)
    ('25', 'unlimited')
    """
    return f"{count:,.0f}" if count < 1e12 else "unlimited"


def joined(clauses: Sequence[str]) -> str:
    """Clauses as one sentence."""
    return "; ".join(clause for clause in clauses if clause) + "."
