"""A model's recurrent states and a checkpoint's draft as the pool laws read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvwall.spaces.engine_columns import StateColumns
from kvwall.spaces.models.layers import LayerGroup


def state_columns(groups: Sequence[LayerGroup], padded: int) -> StateColumns:
    """The states of these layer groups, padded to so many groups as `design.Groups` is."""

    def each(read: Callable[[LayerGroup], float]) -> Any:
        return np.array([read(group) for group in groups] + [0.0] * (padded - len(groups)), dtype=np.float64)

    return StateColumns(
        elements=each(lambda group: group.state_elements),
        bits=each(_stated_bits),
        convolution=each(lambda group: group.convolution_elements),
        taps=each(lambda group: group.convolution_taps),
    )


def _stated_bits(group: LayerGroup) -> float:
    """Bits of a state element where the model states them, from the bytes of the whole state; else 0."""
    if not group.state_stated or not group.state_elements:
        return 0.0
    convolution = group.convolution_elements * group.convolution_taps * 2
    return (group.state_bytes - convolution) * 8 / group.state_elements
