"""Energy of a step: bytes and FLOP at sourced energies. Idle power has no source and is not in it."""

from __future__ import annotations

from kvwall.spaces.units import Bytes, Flop, Joules, Real


def step_energy(
    hbm: Bytes, memory_energy: Real, tier: Bytes, link_energy: Real, flop: Flop, flop_energy: Real
) -> Joules:
    """Joules of memory traffic, host-link traffic and arithmetic; energies in J/byte and J/FLOP.

    >>> step_energy(1e9, 2e-11, 0.0, 0.0, 1e12, 1e-12)
    1.02
    """
    return hbm * memory_energy + tier * link_energy + flop * flop_energy
