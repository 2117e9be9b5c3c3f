"""Products and sums of numbers per row and per column, kept apart: sums of row * column, or row * column * rest.

Laws multiply a point's numbers in the order in which they are explained. Numbers of a row multiplied first are one
number per row, numbers of a column (known while tracing) are one table, and what is left per point is a multiplication
or two. And quantities that differ by a row's factor then share what they are a multiple of, a rate and a time too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import Primitive

from kvwall.sweep.provenance import Provenance, Value, is_constant
from kvwall.sweep.ranges import is_finite

Apply = Callable[[Primitive, Mapping[str, Any], Sequence[Value]], Value]
Do = Callable[..., Value]

ONE = np.ones((1, 1), np.float32)
_COMPARED = {"ge": lax.ge_p, "gt": lax.gt_p, "le": lax.le_p, "lt": lax.lt_p}
_TURNED = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt"}
_MOST_TERMS = 3
"""Of a sum that is written anew: two multiplications and additions at most per point."""


@dataclass(frozen=True)
class Term:
    """A number per row times a number per column."""

    row: Value
    column: Value


@dataclass(frozen=True)
class Form:
    """A sum of terms; or one term times `rest`, or divided by it."""

    terms: tuple[Term, ...]
    rest: Value | None = None
    divided: bool = False

    @property
    def only(self) -> Term | None:
        """Its term, if it is one."""
        return self.terms[0] if len(self.terms) == 1 else None


class _Unsafe(Exception):
    """A factor that float32 may not hold."""


class Separable:
    """What values are made of, and arithmetic on that. Results are None where plain arithmetic is as good."""

    def __init__(self, provenance: Provenance, apply: Apply) -> None:
        self._provenance = provenance
        self._apply = apply
        self._forms: dict[int, tuple[Value, Form]] = {}

    def result(self, name: str, values: Sequence[Value]) -> Value | None:
        """The result of an operation on two values, of rows and columns, of the precision of a streamed grid."""
        if any(np.ndim(value) > ONE.ndim or value.dtype != ONE.dtype for value in values):
            return None
        arithmetic: Mapping[str, Callable[[Form, Form], Form | None]] = {
            "mul": self._times, "div": self._over, "add": self._plus, "sub": self._minus,
        }  # fmt: skip
        if name in _TURNED:
            return self.compared(name, values)
        if name not in arithmetic:
            return None
        try:
            form = arithmetic[name](*map(self._form_of, values))
            made = None if form is None else self._made(form)
        except _Unsafe:
            return None
        if form is not None and made is not None:
            self._forms[id(made)] = made, form
        return made

    def compared(self, name: str, values: Sequence[Value]) -> Value | None:
        """A comparison of row * rest, or row / rest, with a number per row: of the rest alone."""
        one, other = values
        if np.shape(one)[-1:] in {(1,), ()}:
            return self.compared(_TURNED[name], [other, one])
        form = self._form_of(one)
        term, low = form.only, self._provenance.range_of(one)[0]
        if np.shape(other)[-1:] not in {(1,), ()} or term is None or form.rest is None or term.row is ONE or low < 0:
            return None
        try:
            return self._apart(name, form, term, other)
        except _Unsafe:
            return None

    def _apart(self, name: str, form: Form, term: Term, bound: Value) -> Value:
        """`bound` may be negative, which what is compared with it is not."""
        inverse = self._inverse(term.row)
        column = self._inverse(term.column) if form.divided else term.column
        rest = self._do(lax.mul_p, column, form.rest)
        if not form.divided:
            return self._do(_COMPARED[name], rest, self._do(lax.mul_p, bound, inverse))
        least = self._do(lax.max_p, bound, np.zeros((), np.float32))
        return self._do(_COMPARED[_TURNED[name]], rest, self._do(lax.div_p, term.row, least))

    def _form_of(self, value: Value) -> Form:
        if id(value) in self._forms:
            return self._forms[id(value)][1]
        if np.size(value) == 1 or np.shape(value)[-1] == 1:
            return Form((Term(value, ONE),))
        if is_constant(value) and np.shape(value)[0] == 1:
            return Form((Term(ONE, value),))
        return Form((Term(ONE, ONE),), value)

    def _times(self, one: Form, other: Form) -> Form | None:
        if one.rest is not None and other.rest is not None:
            return None
        if len(one.terms) > 1 or len(other.terms) > 1:
            return None
        factor, rest = (other, one) if other.rest is None else (one, other)
        term = Term(
            self._safe(lax.mul_p, factor.terms[0].row, rest.terms[0].row),
            self._safe(lax.mul_p, factor.terms[0].column, rest.terms[0].column),
        )
        return Form((term,), rest.rest, rest.divided)

    def _over(self, one: Form, other: Form) -> Form | None:
        above, below = one.only, other.only
        if above is None or below is None or (one.rest is not None and other.rest is not None):
            return None
        inverse = Term(self._inverse(below.row), self._inverse(below.column))
        return self._times(one, Form((inverse,), other.rest, not other.divided))

    def _plus(self, one: Form, other: Form) -> Form | None:
        if one.rest is not None or other.rest is not None:
            return None
        found: dict[Any, Term] = {}
        for term in (*one.terms, *other.terms):
            key = term.column.tobytes()
            known = found.get(key)
            found[key] = term if known is None else Term(self._safe(lax.add_p, known.row, term.row), term.column)
        return Form(tuple(found.values())) if len(found) <= _MOST_TERMS else None

    def _minus(self, one: Form, other: Form) -> Form | None:
        negative = tuple(Term(self._do(lax.neg_p, each.row), each.column) for each in other.terms)
        return self._plus(one, replace(other, terms=negative))

    def _made(self, form: Form) -> Value:
        term = form.only
        if term is None:
            return self._summed(form.terms)
        if form.rest is None:
            return self._do(lax.mul_p, term.row, term.column)
        if form.divided:
            return self._do(lax.div_p, term.row, self._do(lax.mul_p, self._inverse(term.column), form.rest))
        return self._do(lax.mul_p, term.row, self._do(lax.mul_p, term.column, form.rest))

    def _summed(self, terms: Sequence[Term]) -> Value:
        """What is a row's alone first: each further term is then one fused multiplication and addition."""
        alone = [term for term in terms if term.column is ONE]
        found: Value | None = alone[0].row if alone else None
        for term in terms:
            if term.column is not ONE:
                product = self._do(lax.mul_p, term.row, term.column)
                found = product if found is None else self._do(lax.add_p, found, product)
        return found

    def _do(self, primitive: Primitive, *values: Value) -> Value:
        return self._apply(primitive, {}, values)

    def _safe(self, primitive: Primitive, *values: Value) -> Value:
        """A factor made of others, if it neither overflows nor loses what is above zero."""
        found = self._do(primitive, *values)
        ranges = [self._provenance.range_of(value) for value in (*values, found)]
        vanishes = ranges[-1][0] <= 0 and all(low > 0 for low, _ in ranges[:-1])
        if vanishes or not all(map(is_finite, ranges)):
            raise _Unsafe
        return found

    def _inverse(self, value: Value) -> Value:
        low, high = self._provenance.range_of(value)
        if low <= 0 <= high:
            raise _Unsafe
        return self._safe(lax.div_p, np.ones((), np.float32), value)
