"""Flags of traced laws as alternatives: conjunctions of comparisons, of which at most one holds at a point.

`ok`, `memory` and `capacity phase` are made of the same few comparisons. Written as alternatives, their counts share
reductions, and what does not vary along a row is taken out of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import product
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from kvwall.sweep.provenance import Provenance, Value, identity, is_constant

Literal: TypeAlias = "tuple[int, bool]"
"""A comparison's number, and whether it holds. Numbered as met, not by memory address: every process then goes through
sets of them in the same order and compiles the same program, with the same last bits."""
Alternative: TypeAlias = "frozenset[Literal]"
"""Literals that hold together."""

_MOST_ALTERNATIVES = 12
"""A flag of more is taken as one comparison, for counting it as it is costs less."""


class Conditions:
    """Takes flags apart."""

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._numbers: dict[Hashable, int] = {}
        self._atoms: list[tuple[Value, bool]] = []
        self._found: dict[tuple[int, bool], tuple[Value, list[Alternative]]] = {}

    def alternatives(self, flag: Value, truth: bool = True) -> list[Alternative]:
        """The ways in which `flag` is `truth`; of every two, at most one holds at a point."""
        if is_constant(flag) and (np.all(flag) or not np.any(flag)):
            return [frozenset()] if bool(np.all(flag)) == truth else []
        if (id(flag), truth) not in self._found:
            found = _merged(self._taken_apart(flag, truth))
            few = len(found) <= _MOST_ALTERNATIVES
            self._found[id(flag), truth] = (flag, found if few else [frozenset({self._atom(flag, truth)})])
        return self._found[id(flag), truth][1]

    def whole(self, flag: Value) -> Literal:
        """The flag as one literal."""
        return self._atom(flag, True)

    def flag_of(self, literal: Literal) -> tuple[Value, bool]:
        """A flag, and whether it is true or false where the literal holds."""
        key, truth = literal
        flag, means = self._atoms[key]
        return flag, truth == means

    def value_of(self, literal: Literal) -> Value:
        """The flag that is true where the literal holds."""
        flag, truth = self.flag_of(literal)
        return flag if truth else lax.bitwise_not(flag)

    def all_of(self, literals: Alternative) -> Value:
        """The flag that is true where all hold."""
        return all_of([self.value_of(one) for one in literals])

    def _taken_apart(self, flag: Value, truth: bool) -> list[Alternative]:
        origin = self._provenance.origin_of(flag)
        name, operands = (origin.name, origin.operands) if origin else ("", [])
        ways = self.alternatives
        if name == "not":
            return ways(operands[0], not truth)
        if name == "reshape" and np.ndim(operands[0]) <= 2:
            return ways(operands[0], truth)
        if name in {"and", "or"}:
            one, other = operands
            both = truth == (name == "and")
            if both:
                return _together(ways(one, truth), ways(other, truth))
            return [*ways(one, truth), *_together(ways(one, not truth), ways(other, truth))]
        if name == "select_n" and len(operands) == 3:
            which, off, on = operands
            return [
                *_together(ways(which, False), ways(off, truth)),
                *_together(ways(which, True), ways(on, truth)),
            ]
        return [frozenset({self._atom(flag, truth)})]

    def _atom(self, flag: Value, truth: bool) -> Literal:
        """A literal for a flag that is not taken apart; a < b is the opposite of a >= b, but for NaN."""
        origin = self._provenance.origin_of(flag)
        if origin is None or origin.name not in {"ge", "gt", "le", "lt"}:
            return self._numbered(id(flag), flag, True), truth
        one, other = map(identity, origin.operands)
        means = origin.name in {"ge", "le"}
        key = ("ge", one, other) if origin.name in {"ge", "lt"} else ("ge", other, one)
        return self._numbered(key, flag, means), truth == means

    def _numbered(self, key: Hashable, flag: Value, means: bool) -> int:
        """The number of a comparison; its flag is kept, so that its id is not reused."""
        if key not in self._numbers:
            self._numbers[key] = len(self._atoms)
            self._atoms.append((flag, means))
        return self._numbers[key]


def all_of(flags: Sequence[Value]) -> Value:
    """Conjunction; those that vary least first."""
    together: Value = np.ones((1, 1), bool)
    for flag in sorted(flags, key=np.size):
        together = jnp.logical_and(together, flag)
    return together


def _together(ones: Iterable[Alternative], others: Iterable[Alternative]) -> list[Alternative]:
    """Conjunctions of one of each, without those that contradict themselves."""
    found = [one | other for one, other in product(ones, others)]
    return [each for each in found if not any((key, not truth) in each for key, truth in each)]


def _merged(found: list[Alternative]) -> list[Alternative]:
    """Alternatives that differ in whether one literal holds do not need it."""
    for place, one in enumerate(found):
        for other in found[place + 1 :]:
            differ = one ^ other
            if len(differ) == 2 and len({key for key, _ in differ}) == 1:
                rest = [each for each in found if each is not one and each is not other]
                return _merged([*rest, one & other])
    return found
