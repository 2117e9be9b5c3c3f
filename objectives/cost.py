"""Cost of output tokens."""

from __future__ import annotations

from kvwall.spaces.units import Count, PerSecond, Real, Usd

TOKENS_PRICED = 1e6


def token_cost(devices: Count, usd_per_second: Real, tokens_per_second: PerSecond) -> Usd:
    """USD per million output tokens of a replica that is always busy.

    >>> token_cost(8.0, 0.001, 8000.0)
    1.0
    """
    return devices * usd_per_second / tokens_per_second * TOKENS_PRICED
