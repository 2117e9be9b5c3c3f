"""The quality curves and vetoes of a design: columns gathered at its positions along the name axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from kvwall.spaces.gather import take
from kvwall.spaces.quality_columns import CacheCurve, QualityParameters
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, WEIGHT_QUANTIZERS
from kvwall.spaces.space import Space
from kvwall.spaces.veto_columns import VetoColumns, VetoLimits

At = Callable[[str], Any]
"""Axis -> a design's positions along it."""


class QualityGather:
    """The quality columns of a space; a call gathers them."""

    def __init__(self, space: Space, parameters: QualityParameters, veto: VetoColumns) -> None:
        # As wide as every other table: numbers of one design are then the same however many are computed at once.
        self._parameters = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), parameters)
        self._veto = veto
        self._cache = _told_apart(self._parameters.cache, space)
        names = {"quantizer": QUANTIZERS, "evictor": EVICTORS, "weight_quantizer": WEIGHT_QUANTIZERS}
        self._codes = {
            axis: np.array([known.index(str(value)) for value in space.values(axis)]) for axis, known in names.items()
        }
        self._codes["question_visible"] = np.array([int(value) for value in space.values("question_visible")])

    def curves(self, at: At, rank: int) -> QualityParameters:
        """The curves, leaves of shape (task, ...) with `rank` dimensions behind the task's."""
        quantizer, evictor, visible, weight = (
            take(self._codes[axis], at(axis))
            for axis in ("quantizer", "evictor", "question_visible", "weight_quantizer")
        )
        model = at("model")

        def gathered(curve: Any, *index: Any) -> Any:
            return jax.tree.map(lambda leaf: take(leaf, *index), curve)

        def spread_out(curve: Any) -> Any:
            return jax.tree.map(lambda leaf: leaf.reshape(leaf.shape + (1,) * rank), curve)

        own = self._parameters
        of_model = np.zeros((1,) * rank, dtype=np.int64) if np.shape(self._cache.key.scale)[-1] == 1 else model
        return QualityParameters(
            cache=gathered(self._cache, quantizer, of_model),
            evictor=gathered(own.evictor, evictor, visible),
            reader=gathered(own.reader, evictor, visible),
            weight=gathered(own.weight, weight),
            activation=spread_out(own.activation),
            small_budget=spread_out(own.small_budget),
            log_ratio=spread_out(own.log_ratio),
        )

    def veto(self, at: At) -> VetoColumns:
        """The limits that veto a design."""
        model, quantizer = at("model"), at("quantizer")
        evictor, visible = at("evictor"), at("question_visible")

        def gathered(limits: VetoLimits) -> VetoLimits:
            return VetoLimits(
                take(limits.smallest_key_bits, model),
                take(limits.smallest_naive_bits, model, quantizer),
                take(limits.blind, evictor, visible),
            )

        return VetoColumns(gathered(self._veto.known), gathered(self._veto.imposed))


def _told_apart(cache: CacheCurve, space: Space) -> CacheCurve:
    """The curves along the model axis, or of size 1 there where the quantizers in use do not tell models apart."""
    used = sorted({QUANTIZERS.index(str(value)) for value in space.values("quantizer")})
    leaves = [np.asarray(leaf)[:, used] for leaf in jax.tree.leaves(cache)]
    if not all(np.array_equal(leaf, np.broadcast_to(leaf[..., :1], leaf.shape)) for leaf in leaves):
        return cache
    alike: CacheCurve = jax.tree.map(lambda leaf: leaf[..., :1], cache)
    return alike
