"""Cost of output tokens."""

from __future__ import annotations

from kvwall.spaces.units import Count, Real, Seconds, Usd

TOKENS_PRICED = 1e6


def token_cost(devices: Count, usd_per_second: Real, step: Seconds, batch: Count) -> Usd:
    """USD per million output tokens of a replica that is always busy: `batch` tokens every `step`.

    >>> round(token_cost(8.0, 0.001, 0.01, 80.0), 9)
    1.0
    """
    return devices * usd_per_second * TOKENS_PRICED / batch * step
