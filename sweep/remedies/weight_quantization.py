"""Quantization of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import traffic_sentence
from kvwall.sweep.single import SingleDesign

_BITS: Final = (8.0, 4.25)
"""8 bits, and 4 with a scale of 8 bits per 32 weights.

Source: MXFP4 of the OCP Microscaling Formats specification 1.0.
"""
_CLEARLY: Final = 0.9
"""A checkpoint's 8 bits with their scales are no wider format."""


class WeightQuantization(Family):
    """Fewer bits per weight; arithmetic stays in the activations' format."""

    name = "weight_quantization"
    letter = "W"
    colour = "#238b45"
    lever = True

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Formats narrower than the design's own."""
        own = _own_bits(single)
        return [Setting({"weight_bits": bits}) for bits in _BITS if bits < _CLEARLY * own]

    def nothing(self, single: SingleDesign) -> str:
        """Already narrow."""
        return f"the weights already have {_own_bits(single):.3g} bits"

    def phrase(self, change: Change) -> str:
        """Such as "4.25-bit weights"."""
        return f"{float(change['weight_bits']):g}-bit weights"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """The weights' part of the traffic decides."""
        return traffic_sentence(self.phrase(change), "weights", 1 - before.kv_share, before, after, plural=True)


def _own_bits(single: SingleDesign) -> float:
    """Bits of the class that most weights are of."""
    if not isinstance(single.inputs["weight_bits"], str):
        return single.number("weight_bits")
    model = single.model
    classes = [(model.query_output, model.query_output_bits), (model.ffn, model.ffn_bits)]
    classes += [(model.experts.elements, model.experts.bits)] if model.experts else []
    return max(classes)[1]
