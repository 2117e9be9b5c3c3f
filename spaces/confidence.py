"""Confidence of the upper quality curves: one number for all tasks, or one for each of some and one for the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import jax
import numpy as np

from kvwall.spaces.errors import Faults
from kvwall.spaces.quality_columns import QualityParameters

DEFAULT: Final = "default"
"""Key of a mapping for the tasks that it does not name; `DEFAULT_CONFIDENCE` where it lacks that too."""
DEFAULT_CONFIDENCE: Final = 0.9

Confidence: TypeAlias = float | Mapping[str, float]
"""Of every task, or task -> confidence."""


def by_row(confidence: Confidence, rows_of: Mapping[str, tuple[int, ...]]) -> tuple[float, ...]:
    """The confidence of each row of the task axis; a task of several rows sets all of them.

    Raises InputError where two tasks ask a row that they share for different confidences.

    >>> by_row({"default": 0.9, "both": 0.95}, {"one": (0,), "other": (1,), "both": (0, 1), "third": (2,)})
    (0.95, 0.95, 0.9)
    """
    count = 1 + max(row for rows in rows_of.values() for row in rows)
    if not isinstance(confidence, Mapping):
        return (confidence,) * count
    faults, asked = Faults(), dict[int, str]()
    for task in (name for name in confidence if name != DEFAULT):
        for row in rows_of[task]:
            other = asked.setdefault(row, task)
            if confidence[other] != confidence[task]:
                faults.add(
                    f"{other} asks for confidence {confidence[other]:g} and {task} for {confidence[task]:g}, but they "
                    "share a curve: give both the same"
                )
    faults.raise_if_any()
    rest = confidence.get(DEFAULT, DEFAULT_CONFIDENCE)
    return tuple(confidence[asked[row]] if row in asked else rest for row in range(count))


def rows_from(by_level: Mapping[float, QualityParameters], levels: tuple[float, ...]) -> QualityParameters:
    """Each row of the task axis from the parameters at its own confidence."""
    if len(by_level) == 1:
        return by_level[levels[0]]
    ordered = [by_level[level] for level in levels]
    found: QualityParameters = jax.tree.map(
        lambda *leaves: np.stack([leaf[row] for row, leaf in enumerate(leaves)]), *ordered
    )
    return found
