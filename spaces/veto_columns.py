"""What vetoes a design, as the laws read it: numeric columns along the name axes.

`vetoes` fills them with NumPy arrays. Where nothing can be vetoed they are neutral, so that the law does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from kvwall.spaces.units import Bits, Flag


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VetoLimits:
    """Limits that a design must keep; 0 bits and false are neutral."""

    smallest_key_bits: Bits
    """Of the model: fewer bits of keys collapse."""
    smallest_naive_bits: Bits
    """Of the model and the quantizer: fewer bits of keys or values collapse."""
    blind: Flag
    """Of the evictor and whether the question is visible: tokens are dropped that hard retrieval may ask for."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VetoColumns:
    """The limits that the label tells of, and those that the status imposes: all but what the user allows."""

    known: VetoLimits
    imposed: VetoLimits
