"""Faults in what a user gave us: collected, named, with the remedy, never a traceback.

Every boundary (catalogue file, study file, command line) collects *all* its faults and raises one
`InputError`; the command line prints them and exits with code 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The input is wrong. `faults` holds one sentence per fault: value, what is allowed, remedy."""

    exit_code = 2

    def __init__(self, faults: str | Iterable[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class NothingAdmissible(InputError):
    """The input is well formed but no design satisfies it (exit code 3)."""

    exit_code = 3


class Faults:
    """Collects faults so that a file's mistakes are reported together."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, fault: str) -> None:
        """Record one fault, a full sentence."""
        self._found.append(fault)

    def absorb(self, error: InputError) -> None:
        """Record every fault of another error."""
        self._found.extend(error.faults)

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def found(self) -> tuple[str, ...]:
        """Everything recorded."""
        return tuple(self._found)

    def raise_if_any(self, label: str = "") -> None:
        """Raise one InputError with everything recorded, each after the label if any; do nothing for nothing."""
        if self._found:
            raise InputError([f"{label}: {fault}" for fault in self._found] if label else self._found)


def nearest(name: str, allowed: Iterable[str], most: int = 3) -> str:
    """' (did you mean a, b?)' for the closest allowed names, or '' when nothing is close.

    >>> nearest("h100sxm", ["h100-sxm", "mi300x"])
    ' (did you mean h100-sxm?)'
    >>> nearest("zzz", ["h100-sxm"])
    ''
    """
    by_lower = {candidate.lower(): candidate for candidate in allowed}
    short = {candidate.rsplit("/", 1)[-1]: original for candidate, original in by_lower.items()}
    close = difflib.get_close_matches(name.lower(), by_lower, n=most, cutoff=0.6)
    close += difflib.get_close_matches(name.lower().rsplit("/", 1)[-1], short, n=most, cutoff=0.6)
    found = dict.fromkeys(by_lower.get(c) or short[c] for c in close)
    return f" (did you mean {', '.join(list(found)[:most])}?)" if found else ""
