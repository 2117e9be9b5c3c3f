"""Forms of the model that were tried beside the one that is used, to be held against it on rows left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.estimate import OperatorTimes
from kvwall.spaces.terms import Term
from kvwall.sweep.calibration.estimate_fit import Form, log_seconds
from kvwall.sweep.calibration.steps import MeasuredSteps

_USUAL_SHARE: Final = 0.8
_USUAL_COST: Final = 6e-6
"""In s, of a collective."""


def _of_ceiling(steps: MeasuredSteps, terms: jax.Array) -> jax.Array:
    """The ceiling times one factor."""
    nothing = jnp.zeros(len(steps))
    ceiling = jnp.asarray(steps.served.ceiling)
    whole = OperatorTimes(ceiling, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing)
    return jnp.log(steps.in_kind(whole)) + terms[:, 0]


def _without_kernels(steps: MeasuredSteps, terms: jax.Array) -> jax.Array:
    """Operators, but every kernel reaches the usual share."""
    shares = jax.tree.map(lambda leaf: np.full_like(leaf, _USUAL_SHARE), steps.kernels)
    costs = jax.tree.map(lambda leaf: np.full_like(leaf, _USUAL_COST), steps.kernels.collective)
    return log_seconds(replace(steps, kernels=replace(shares, collective=costs)), terms)


CHOSEN: Final = "operators"
FORMS: Final[Mapping[str, tuple[str, Form]]] = {
    "ceiling": (
        "the ceiling times a factor of engine, architecture and chip",
        Form(
            _of_ceiling,
            {"factor": Term("time over the ceiling", "1", 0.8, 0.5, {"engine": 0.5, "architecture": 0.3, "chip": 0.3})},
        ),
    ),
    "operators without kernels": (
        "operators, with no regard to measurements of single kernels",
        Form(_without_kernels),
    ),
    "operators, rows independent": ("operators, every row counted in full", Form(repeated=0.0)),
    CHOSEN: ("operators on top of kernels, rows of a group counted as the few they are worth", Form()),
}
