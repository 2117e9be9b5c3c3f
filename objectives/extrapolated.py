"""Whether an estimate is outside of what was measured, and in which respect."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives.load import evaluated_context
from kvwall.objectives.step import Step
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bits, Code, Flag

RESPECTS = ("no", "engine", "chip", "cache_format", "context", "batch")
"""Codes of the label; of several respects the first."""
_ALIKE = 0.6
"""Bits by which two KV formats differ that are one: 8 and, scales included, 8.5."""


def respects(design: Design, step: Step) -> tuple[Flag, ...]:
    """Whether the design is outside, in the order of RESPECTS but the first."""
    reached, form = step.estimated.calibrated.reached, design.kv_format

    def unmeasured(bits: Bits) -> Flag:
        alike = [jnp.abs(bits - each) < _ALIKE for each in reached.cache_bits]
        return jnp.logical_not(reduce(jnp.logical_or, alike))

    return (
        jnp.logical_not(reached.engine),
        jnp.logical_not(reached.chip),
        jnp.logical_or(unmeasured(form.key_bits), unmeasured(form.value_bits)),
        evaluated_context(design) > reached.context,
        step.load.active > reached.batch,
    )


def extrapolated(design: Design, step: Step) -> Code:
    """Index into RESPECTS."""
    code = jnp.zeros((), dtype=jnp.int32)
    for place, outside in reversed(list(enumerate(respects(design, step), start=1))):
        code = jnp.where(outside, place, code)
    return code
