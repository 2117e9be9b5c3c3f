"""Units: plain SI floats inside, parsed and checked with pint at the edge only.

A law's return annotation is its unit: `def step_time(...) -> Seconds`. The metadata string is the
unit in UDUNITS spelling where one exists ("byte s-1"), and is what property tests rescale.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import jax

from kvwall.spaces.errors import InputError

if TYPE_CHECKING:
    import pint

Real: TypeAlias = jax.Array | float
Flag: TypeAlias = jax.Array | bool
Code: TypeAlias = jax.Array | int

Bytes: TypeAlias = Annotated[Real, "byte"]
Seconds: TypeAlias = Annotated[Real, "s"]
PerSecond: TypeAlias = Annotated[Real, "s-1"]
Flop: TypeAlias = Annotated[Real, "FLOP"]
FlopPerSecond: TypeAlias = Annotated[Real, "FLOP s-1"]
FlopPerByte: TypeAlias = Annotated[Real, "FLOP byte-1"]
BytesPerSecond: TypeAlias = Annotated[Real, "byte s-1"]
Joules: TypeAlias = Annotated[Real, "J"]
Usd: TypeAlias = Annotated[Real, "USD"]
Tokens: TypeAlias = Annotated[Real, "1"]
Count: TypeAlias = Annotated[Real, "1"]
Ratio: TypeAlias = Annotated[Real, "1"]
Bits: TypeAlias = Annotated[Real, "bit"]


@cache
def _registry() -> pint.UnitRegistry[Any]:
    import pint

    registry: pint.UnitRegistry[Any] = pint.UnitRegistry()
    registry.define("FLOP = [computation]")
    registry.define("USD = [money]")
    return registry


_NUMBER_AND_UNIT = re.compile(
    r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:nan|inf))\s*([a-zµ]+(?:\s*/\s*[a-zµ]+)?)\s*",
    re.IGNORECASE,
)


def parse_quantity(text: str, unit: str) -> float:
    """The number in `unit` that a string such as "3.35 TB/s" states.

    Raises InputError when the text is no number with one unit, or a unit of another kind. A number that is not
    finite comes back as it is: whether it makes sense is the caller's to say.

    >>> parse_quantity("64 GB/s", "byte/s")
    64000000000.0
    >>> parse_quantity("80 GiB", "byte")
    85899345920.0
    """
    import pint

    parts = _NUMBER_AND_UNIT.fullmatch(text)
    # pint takes a bit for a pure number, so that "Hz" would pass for bytes per second: the form must match as well
    if parts and parts[2].count("/") == unit.count("/"):
        try:
            quantity: Any = _registry().Quantity(float(parts[1]), parts[2])
            return float(quantity.to(unit).magnitude)
        except (pint.errors.PintError, ValueError, TypeError, AttributeError, OverflowError, AssertionError):
            pass
    raise InputError(f'"{text}" is not a quantity in {unit}: write a number and a unit, e.g. "64 GB/s" or "80 GiB"')
