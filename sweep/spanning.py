"""The grid that holds some designs: columns of all of them, of which only the asked points are ever evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.space import Space, make_space


def stated_values(axes: Mapping[str, Value]) -> dict[str, Value]:
    """The values as their axes hold them. Raises InputError with what is allowed."""
    return {name: AXES[name].check(value) for name, value in axes.items()}


def spanning_space(designs: Sequence[dict[str, Value]]) -> Space:
    """The smallest grid that holds all designs; each is given the neutral value of the axes that others state."""
    values: dict[str, dict[Value, None]] = {}
    for name in dict.fromkeys(name for design in designs for name in design):
        neutral = AXES[name].neutral
        for design in designs:
            if name not in design and neutral is not None:
                design[name] = neutral
            values.setdefault(name, {})[design[name]] = None
    return make_space({name: list(found) for name, found in values.items()})
