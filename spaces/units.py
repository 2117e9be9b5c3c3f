"""Units: plain SI floats inside, parsed and checked with pint at the edge only.

A law's return annotation is its unit: `def step_time(...) -> Seconds`. The metadata string is the
unit in UDUNITS spelling where one exists ("byte s-1"), and is what property tests rescale.
"""

from __future__ import annotations

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
BytesPerToken: TypeAlias = Annotated[Real, "byte"]
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


def parse_quantity(text: str, unit: str) -> float:
    """The number in `unit` that a string such as "3.35 TB/s" states.

    Raises InputError when the text is no quantity, carries no unit, or has another dimension.

    >>> parse_quantity("64 GB/s", "byte/s")
    64000000000.0
    >>> parse_quantity("80 GiB", "byte")
    85899345920.0
    """
    import pint

    registry = _registry()
    try:
        quantity = registry.Quantity(text)
        if quantity.unitless:  # pint holds bits to be dimensionless: a bare "64" must not pass
            raise ValueError("no unit")
        return float(quantity.to(unit).magnitude)
    except (pint.errors.PintError, ValueError, TypeError, AttributeError, AssertionError) as fault:
        raise InputError(
            f'"{text}" is not a quantity in {unit}: write a number and a unit, e.g. "64 GB/s" or "80 GiB"'
        ) from fault
