"""Vetoes: settings that are known to collapse, whatever a quality curve says. Pure, elementwise laws.

Every limit is neutral where a veto cannot apply, or the user allows it; work that no limit asks for is left out.
"""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.known import surely
from kvwall.spaces.design import KVFormat
from kvwall.spaces.units import Code, Flag, Ratio
from kvwall.spaces.veto_columns import VetoLimits
from kvwall.spaces.vetoes import VETO_NAMES

VETOES = ("none", *VETO_NAMES)


def k_outliers(kv_format: KVFormat, limits: VetoLimits) -> Flag:
    """Whether keys have fewer bits than the outliers of the model's keys bear.

    Source: `spaces/catalog/quality/model_traits.toml`.
    """
    if surely(limits.smallest_key_bits, 0.0):
        return jnp.asarray(False)
    return kv_format.key_bits < limits.smallest_key_bits


def naive_low_bits(kv_format: KVFormat, limits: VetoLimits) -> Flag:
    """Whether keys or values have fewer bits than naive rounding bears on the model.

    Source: `spaces/catalog/quality/model_traits.toml`.
    """
    if surely(limits.smallest_naive_bits, 0.0):
        return jnp.asarray(False)
    return jnp.minimum(kv_format.key_bits, kv_format.value_bits) < limits.smallest_naive_bits


def blind_retrieval(kept_fraction: Ratio, limits: VetoLimits) -> Flag:
    """Whether tokens that hard retrieval may ask for are dropped by what cannot know the question."""
    if surely(limits.blind, False):
        return jnp.asarray(False)
    return jnp.logical_and(limits.blind, kept_fraction < 1)


def each(kv_format: KVFormat, kept_fraction: Ratio, limits: VetoLimits) -> tuple[Flag, Flag, Flag]:
    """Whether each veto applies, in the order of VETO_NAMES."""
    return (
        k_outliers(kv_format, limits),
        naive_low_bits(kv_format, limits),
        blind_retrieval(kept_fraction, limits),
    )


def vetoed(kv_format: KVFormat, kept_fraction: Ratio, limits: VetoLimits) -> Flag:
    """Whether any veto applies."""
    keys, naive, blind = each(kv_format, kept_fraction, limits)
    return jnp.logical_or(jnp.logical_or(keys, naive), blind)


def first_veto(kv_format: KVFormat, kept_fraction: Ratio, limits: VetoLimits) -> Code:
    """Index into VETOES of the first veto that applies.

    >>> kv_format, limits = KVFormat(3.0, 16.0, 0.0, 16.0, 16.0, 0.0, 0.0), VetoLimits(8.0, 4.0, False)
    >>> VETOES[int(first_veto(kv_format, 1.0, limits))]
    'k_outliers'
    """
    keys, naive, blind = each(kv_format, kept_fraction, limits)
    return jnp.where(keys, 1, jnp.where(naive, 2, jnp.where(blind, 3, 0)))
