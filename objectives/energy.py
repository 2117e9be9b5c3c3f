"""Energy of a step: bytes and FLOP at sourced energies. Idle power has no source and is not in it."""

from __future__ import annotations

from kvwall.spaces.units import Bytes, Flop, Joules, Real


def step_energy(*parts: tuple[Bytes | Flop, Real]) -> Joules:
    """Joules of memory traffic, link traffic and arithmetic: amounts, each with its energy in J/byte or J/FLOP.

    >>> step_energy((1e9, 2e-11), (1e12, 1e-12))
    1.02
    """
    return sum(amount * energy for amount, energy in parts)
