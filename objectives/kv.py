"""The KV cache: tokens kept, bytes per token, bytes of a sequence on one device."""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.spaces.design import Groups, KVFormat
from kvwall.spaces.units import Bits, Bytes, BytesPerToken, Count, Ratio, Tokens

FULL_BITS = 16.0
"""Precision of the residual window, and the one at which quantization ends."""
OUTLIER_BITS = 32.0
"""A kept outlier: its 16-bit value and where it belongs."""
BITS_PER_BYTE = 8.0


def kept_fraction(retention: Ratio, pinned: Tokens, context: Tokens) -> Ratio:
    """Share of the context kept: pinned tokens (sinks and recent), and `retention` of the others.

    >>> float(kept_fraction(0.5, 0.0, 1000.0)), float(kept_fraction(0.5, 200.0, 800.0))
    (0.5, 0.625)
    """
    return retention + (1 - retention) * jnp.minimum(pinned / context, 1.0)


def context_of_kept(kept: Tokens, retention: Ratio, pinned: Tokens) -> Tokens:
    """The context of which `kept` tokens are kept: the inverse of kept_fraction * context.

    >>> float(context_of_kept(600.0, 0.5, 200.0))
    1000.0
    """
    return jnp.minimum(kept, pinned) + jnp.maximum(kept - pinned, 0.0) / retention


def stored_bits(payload: Bits, kv_format: KVFormat) -> Bits:
    """Bits of one element outside the residual window: payload, scale and zero-point, outliers. 16 bits are bare.

    >>> kv = KVFormat(2.0, 2.0, 32.0, 16.0, 16.0, 0.0, 0.0)
    >>> float(stored_bits(2.0, kv))
    3.0
    """
    grouped = kv_format.group_size > 0
    per_group = kv_format.scale_bits + kv_format.zero_bits
    overhead = jnp.where(grouped, per_group / jnp.where(grouped, kv_format.group_size, 1.0), 0.0)
    return payload + jnp.where(payload < FULL_BITS, overhead + OUTLIER_BITS * kv_format.outlier_fraction, 0.0)


def device_heads(groups: Groups, devices: Count) -> Count:
    """KV heads on the fullest device under tensor parallelism; past one head a device, heads are replicated."""
    return jnp.ceil(groups.kv_heads / devices)


def token_bytes(groups: Groups, devices: Count, key_bits: Bits, value_bits: Bits) -> BytesPerToken:
    """KV bytes of one token on one device, over all layers, at these stored bits per element."""
    bits = groups.key_dim * key_bits + groups.value_dim * value_bits
    return jnp.sum(groups.layers * device_heads(groups, devices) * bits, axis=0) / BITS_PER_BYTE


def sequence_bytes(kept: Tokens, token: BytesPerToken, full_token: BytesPerToken, window: Tokens) -> Bytes:
    """KV bytes of a sequence with `kept` tokens, the most recent `window` of them at 16 bits.

    >>> float(sequence_bytes(1000.0, 2.0, 16.0, 100.0))
    3400.0
    """
    return token * kept + (full_token - token) * jnp.minimum(window, kept)


def kept_of_bytes(size: Bytes, token: BytesPerToken, full_token: BytesPerToken, window: Tokens) -> Tokens:
    """The kept tokens whose KV fills `size`: the inverse of sequence_bytes.

    >>> float(kept_of_bytes(3400.0, 2.0, 16.0, 100.0))
    1000.0
    """
    return jnp.minimum(size / full_token, window) + jnp.maximum(size - full_token * window, 0.0) / token
