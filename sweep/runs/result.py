"""One result of a benchmark, read field by field, and what a format found in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kvwall.spaces.errors import Faults

LARGEST: Final = 1e12
"""No count of tokens, requests or milliseconds comes near it."""

Label = str | int


@dataclass(frozen=True)
class Found:
    """What one result states; names of fields are those of `MeasuredRow`."""

    measured: Mapping[str, float] = field(default_factory=dict)
    """Metric -> value, in the units of `METRIC_UNITS`."""
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Field -> value."""
    likely: Mapping[str, Label] = field(default_factory=dict)
    """Field -> value, taken where neither the result nor the user states it."""
    batch_kind: str = "concurrency"
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why the result is no measurement of decode; no rows are made of it then."""


class Result:
    """The fields of one result. A field that is there but cannot be read is a fault; one that is absent is None."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.fields = fields
        self.faults = Faults()

    def at(self, *path: str | int) -> object:
        """The value at a path of keys and places, as in ("phases", -1, "concurrency"); None where there is none."""
        found: object = self.fields
        for step in path:
            if isinstance(step, str) and isinstance(found, Mapping):
                found = found.get(step)
            elif isinstance(step, int) and isinstance(found, Sequence) and not isinstance(found, str) and found:
                found = found[step]
            else:
                return None
        return found

    def number(self, *path: str | int) -> float | None:
        """A finite number that is not below 0; a CSV file's text is read as one."""
        found = self.at(*path)
        if found is None or found == "":
            return None
        number = _number(found)
        if number is None:
            name = ".".join(map(str, path))
            self.faults.add(f"{name} is {_shown(found)}: it must be a number from 0 to {LARGEST:g}")
        return number

    def count(self, *path: str | int) -> int | None:
        """A whole number that is not below 0."""
        number = self.number(*path)
        if number is None or number == round(number):
            return None if number is None else round(number)
        self.faults.add(f"{'.'.join(map(str, path))} is {number:g}: it must be a whole number")
        return None

    def text(self, *path: str | int) -> str:
        """A text without the space around it; '' where there is none, or something else."""
        found = self.at(*path)
        return found.strip() if isinstance(found, str) else ""

    def switch(self, *path: str | int) -> bool:
        """Whether a field is on: true, or in a CSV file 1."""
        return self.at(*path) in (True, "1", "true")


def stated_only(labels: Mapping[str, Label | None]) -> dict[str, Label]:
    """The labels that state something."""
    return {name: value for name, value in labels.items() if value not in (None, "")}


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        return None
    try:
        number = float(found)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None


def _shown(found: object) -> str:
    text = f'"{found}"' if isinstance(found, str) else type(found).__name__
    if isinstance(found, float) or (isinstance(found, int) and abs(found) < 10**30):
        text = str(found)
    return text if len(text) <= 60 else f"{text[:60]}..."
