"""Read sparsity: everything is stored, a step reads the pages that matter, found by their smallest and largest keys.

Source: the scheme of Quest (Tang et al., ICML 2024): a minimum and a maximum key per page, read every step.
"""

from __future__ import annotations

import jax.numpy as jnp

from kvwall.objectives.known import surely
from kvwall.spaces.design import Groups
from kvwall.spaces.units import Bytes, Count, Ratio, Tokens

KEYS_PER_PAGE = 2.0
"""The smallest and the largest."""
_BYTES = 2.0
"""Of an element of metadata: 16 bits."""


def fraction_read(fraction: Ratio, groups: Groups) -> Ratio:
    """Per group, share of the entries read: full attention only; windows and sparse methods choose by themselves."""
    if surely(fraction, 1.0):
        return 1.0
    return jnp.where(groups.evictable, fraction, 1.0)


def metadata_bytes(groups: Groups, heads: Count, fraction: Ratio, block_size: Tokens) -> Bytes:
    """Bytes of page metadata per entry; none where everything is read.

    Args:
        groups: KV stores.
        heads: KV heads of each on the device.
        fraction: share of the kept tokens that a step reads.
        block_size: tokens per page.
    """
    per_entry = KEYS_PER_PAGE * _BYTES * heads * groups.key_dim * groups.evictable / block_size
    return jnp.where(fraction < 1, per_entry, 0.0)
