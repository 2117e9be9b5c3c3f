"""How a study states an axis: a list, {geom=[a,b,n]}, {linear=[a,b,n]}, {range=[a,b,step]}, or one value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvwall.spaces.axes import Axis, Value
from kvwall.spaces.errors import Faults, InputError

FORMS = "a list, {geom=[first,last,n]}, {linear=[first,last,n]}, {range=[first,last,step]}, or one value"
_MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class AxisValues:
    """The values of one axis, checked, in the order stated, without repeats."""

    axis: Axis
    values: tuple[Value, ...]
    notices: tuple[str, ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.values)


def axis_values(axis: Axis, stated: object) -> AxisValues:
    """Expand and check what a study states for an axis. Raises InputError with every fault.

    >>> from kvwall.spaces.axes import AXES
    >>> axis_values(AXES["batch"], {"geom": [1, 8, 4]}).values
    (1, 2, 4, 8)
    """
    if isinstance(stated, Mapping):
        return _generated(axis, stated)
    listed: Sequence[object] = stated if isinstance(stated, list | tuple) else [stated]
    if not listed:
        raise InputError(f"{axis.name} = []: an axis needs at least one value, or leave it out to keep it neutral")
    faults = Faults()
    values: dict[Value, None] = {}
    for entry in listed:
        try:
            value = axis.check(entry)
        except InputError as error:
            faults.absorb(error)
            continue
        if value in values:
            faults.add(f"{axis.name} holds {entry!r} twice: every value of an axis must be unique")
        values[value] = None
    faults.raise_if_any()
    return AxisValues(axis, tuple(values))


def _generated(axis: Axis, stated: Mapping[object, object]) -> AxisValues:
    if len(stated) != 1 or next(iter(stated)) not in {"geom", "linear", "range"}:
        raise InputError(f"{axis.name} = {dict(stated)!r}: write {FORMS}")
    if axis.kind not in {"int", "real"}:
        raise InputError(f"{axis.name} takes {axis.allowed}: list its values")
    form, arguments = next(iter(stated.items()))
    if not (isinstance(arguments, list) and len(arguments) == 3 and all(_is_number(a) for a in arguments)):
        raise InputError(f"{axis.name} = {{{form} = {arguments!r}}}: three finite numbers are needed; write {FORMS}")
    first, last, third = (float(argument) for argument in arguments)
    numbers = _range(axis, first, last, third) if form == "range" else _spaced(axis, str(form), first, last, third)
    return _settled(axis, numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _spaced(axis: Axis, form: str, first: float, last: float, count: float) -> list[float]:
    if not count.is_integer() or not 1 <= count <= _MOST_VALUES:
        raise InputError(f"{axis.name}: {form} with n = {count:g}: n is a whole number from 1 to {_MOST_VALUES}")
    if form == "geom" and (first <= 0 or last <= 0):
        raise InputError(f"{axis.name}: geom from {first:g} to {last:g}: both ends must be above 0; use linear")
    if count == 1 and first != last:
        raise InputError(f"{axis.name}: {form} from {first:g} to {last:g} with n = 1: two ends need n of at least 2")
    space = np.geomspace if form == "geom" else np.linspace
    return [float(number) for number in space(first, last, int(count))]


def _range(axis: Axis, first: float, last: float, step: float) -> list[float]:
    if step == 0 or (last - first) / step < 0:
        raise InputError(f"{axis.name}: range from {first:g} to {last:g} never arrives with step {step:g}")
    steps = (last - first) / step
    if steps >= _MOST_VALUES:
        raise InputError(
            f"{axis.name}: range makes {steps + 1:.3g} values; the most is {_MOST_VALUES}: "
            "shorten the range or widen the step"
        )
    return [first + step * i for i in range(math.floor(steps + 1e-9) + 1)]


def _settled(axis: Axis, numbers: list[float]) -> AxisValues:
    """Round integer axes, drop what rounding made equal and say so; clean reals of binary dust."""
    rounded = [float(round(n)) if axis.kind == "int" else float(f"{n:.12g}") for n in numbers]
    unique = list(dict.fromkeys(rounded))
    notices: tuple[str, ...] = ()
    if len(unique) < len(rounded):
        notices = (f"{axis.name}: {len(rounded) - len(unique)} values fell together on rounding and were dropped",)
    checked = axis_values(axis, unique)
    return AxisValues(axis, checked.values, notices)
