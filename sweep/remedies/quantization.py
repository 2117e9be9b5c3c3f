"""Quantization of the KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.endless import stops_growing
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import traffic_sentence
from kvwall.sweep.single import SingleDesign

_BITS: Final = ((8, 8), (8, 4), (4, 4), (4, 2), (3, 3), (2, 2))
"""Bits of keys and values; keys lose more, so some methods keep them wider. Fewer than 2 has no published curve."""


class Quantization(Family):
    """Fewer bits per stored key and value element; scales as the design states them."""

    name = "quantization"
    letter = "Q"
    colour = "#4292c6"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Bits below the design's own; a latent has the same bits for both."""
        elements = [group.layers * group.kv_heads * (group.key_dim + group.value_dim) for group in single.model.groups]
        latent = any(group.key_dim > group.value_dim == 0 for group in single.model.groups)
        own_keys, own_values = single.number("key_bits"), single.number("value_bits")
        pairs = [
            (keys, values)
            for keys, values in _BITS
            if keys <= own_keys and values <= own_values and keys + values < own_keys + own_values
            if keys == values or not latent
        ]
        return [Setting({"key_bits": keys, "value_bits": values}) for keys, values in pairs if sum(elements) > 0]

    def nothing(self, single: SingleDesign) -> str:
        """Recurrent states only, or already narrow."""
        if stops_growing(single.model) and not any(group.key_dim for group in single.model.groups):
            return "the model keeps a recurrent state and no keys and values"
        return f"keys and values already have {single.number('key_bits'):g} and {single.number('value_bits'):g} bits"

    def phrase(self, change: Change) -> str:
        """Such as "2-bit KV"."""
        keys, values = float(change["key_bits"]), float(change["value_bits"])
        return f"{keys:g}-bit KV" if keys == values else f"{keys:g}-bit keys and {values:g}-bit values"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """KV's part of the traffic decides."""
        plural = change["key_bits"] != change["value_bits"]
        return traffic_sentence(self.phrase(change), "KV", before.kv_share, before, after, plural=plural)
