"""Bands of estimates: where nine in ten, and one in ten, of measured deployments are; never beyond the ceiling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import jax.numpy as jnp

from kvwall.objectives.estimate import Estimate
from kvwall.objectives.step import Step
from kvwall.spaces.design import Design
from kvwall.spaces.units import Ratio, Real

DEVIATIONS_OF_BAND = 1.2816
"""Standard deviations from the middle to the 10 % and 90 % bounds of a normal distribution."""

Side: TypeAlias = Literal["low", "high"]


def bound(
    design: Design,
    step: Step,
    *,
    law: Callable[[Design, Step], Real],
    spread: Callable[[Estimate], Ratio],
    side: Side,
    rate: bool,
) -> Real:
    """One bound of a metric.

    Args:
        design: the design.
        step: its estimated step.
        law: the metric.
        spread: standard deviation of its logarithm.
        side: 10 % of deployments are below "low", 10 % above "high".
        rate: whether the metric is a rate, which the ceiling limits from above; a time or a cost it limits from below.
    """
    deviations = DEVIATIONS_OF_BAND if side == "high" else -DEVIATIONS_OF_BAND
    found = law(design, step) * jnp.exp(deviations * spread(step.estimated))
    if rate == (side == "low"):  # on the side away from the ceiling
        return found
    limit = law(design, step.ceiling)
    return jnp.minimum(found, limit) if rate else jnp.maximum(found, limit)
