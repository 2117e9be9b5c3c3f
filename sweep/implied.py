"""What follows for values where some comparisons hold: where a - b is not negative, a is at least b's least.

A mask is such comparisons. Signs that are certain among its points alone let extremes be led back to simpler ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kvwall.sweep.provenance import Origin, Provenance, Value
from kvwall.sweep.ranges import Range

_SWAPPED = {"le": "ge", "lt": "gt"}
_OPPOSITE = {"ge": "lt", "gt": "le", "le": "gt", "lt": "ge"}


def comparison(provenance: Provenance, flag: Value, truth: bool) -> tuple[Value, Value] | None:
    """(one, other) if the flag's being `truth` means that one is at least, or more than, the other."""
    origin = provenance.origin_of(flag)
    if origin is None or origin.name not in _OPPOSITE:
        return None
    one, other = origin.operands
    name = origin.name if truth else _OPPOSITE[origin.name]
    return (other, one) if name in _SWAPPED else (one, other)


def same(provenance: Provenance, one: Value, other: Value) -> bool:
    """Whether two values are the same numbers, whatever their shapes."""
    return _unshaped(provenance, one) is _unshaped(provenance, other)


def _unshaped(provenance: Provenance, value: Value) -> Value:
    origin = provenance.origin_of(value)
    return _unshaped(provenance, origin.operands[0]) if origin and origin.name == "reshape" else value


class Implied(Provenance):
    """What is known of values at those points of a row where some flags hold."""

    def __init__(self, known: Provenance, holding: Iterable[tuple[Value, bool]]) -> None:
        """`holding`: flags, and whether each is true or false there."""
        super().__init__()
        self._everywhere = known
        self._there: dict[int, Range] = {}
        for flag, truth in holding:
            found = comparison(known, flag, truth)
            if found:
                one, other = found
                self._narrow(one, known.range_of(other)[0], math.inf)
                self._narrow(other, -math.inf, known.range_of(one)[1])

    def origin_of(self, value: Value) -> Origin | None:
        """The operation that gave it."""
        return self._everywhere.origin_of(value)

    def range_of(self, value: Value) -> Range:
        """The range it lies in at these points."""
        return self._there.get(id(value)) or self._everywhere.range_of(value)

    def _narrow(self, value: Value, least: float, greatest: float) -> None:
        low, high = self.range_of(value)
        if least <= low and greatest >= high:
            return
        self._there[id(value)] = max(low, least), min(high, greatest)
        origin = self.origin_of(value)
        if origin is None:
            return
        if origin.name == "reshape":
            self._narrow(origin.operands[0], least, greatest)
        if origin.name == "sub" and least == 0:  # no rounding: a - b has the sign of a compared with b
            one, other = origin.operands
            self._narrow(one, self.range_of(other)[0], math.inf)
            self._narrow(other, -math.inf, self.range_of(one)[1])
