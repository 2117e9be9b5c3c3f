"""Whether an estimate is outside of what was measured, and in which respect."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.beyond import unmeasured_format
from kvwall.objectives.load import evaluated_context
from kvwall.objectives.step import Step
from kvwall.spaces.design import Design
from kvwall.spaces.units import Code, Flag

RESPECTS = ("no", "engine", "chip", "cache_format", "context", "batch")
"""Codes of the label; of several respects the first."""


def respects(design: Design, step: Step) -> tuple[Flag, ...]:
    """Whether the design is outside, in the order of RESPECTS but the first."""
    reached = step.estimated.calibrated.reached
    return (
        jnp.logical_not(reached.engine),
        jnp.logical_not(reached.chip),
        unmeasured_format(design, reached),
        evaluated_context(design) > reached.context,
        step.load.active > reached.batch,
    )


def extrapolated(design: Design, step: Step) -> Code:
    """Index into RESPECTS."""
    code = jnp.zeros((), dtype=jnp.int32)
    for place, outside in reversed(list(enumerate(respects(design, step), start=1))):
        code = jnp.where(outside, place, code)
    return code
