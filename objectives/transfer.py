"""Transfer: what a link reaches when KV moves in pieces, such as pages, instead of one large copy."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives import engine_memory, tiers
from kvwall.objectives.kv import Cache
from kvwall.spaces.design import NO_LIMIT, Design
from kvwall.spaces.transfer import load_transfer_curve
from kvwall.spaces.units import Bytes, BytesPerSecond, Flag, Ratio, Seconds


def effective_bandwidth(size: Bytes, link: BytesPerSecond, per_piece: Seconds, large_share: Ratio) -> BytesPerSecond:
    """Bandwidth in pieces of a size, one after another: size/(per_piece + size/(large_share*link)).

    Args:
        size: of a piece.
        link: bandwidth of the datasheet.
        per_piece: what a piece costs besides its bytes.
        large_share: of the link, what a large copy reaches.

    Source: fitted to published copies between host and device, `catalog/transfer.json`.

    >>> effective_bandwidth(1e6, 2e6, 0.5, 1.0), effective_bandwidth(3e6, 2e6, 0.5, 1.0)
    (1000000.0, 1500000.0)
    """
    return size / (per_piece + size / (large_share * link))


def piece_bytes(cache: Cache, design: Design) -> Bytes:
    """Bytes that move at once: a page of one layer, of the largest store on the device.

    Contiguous reservation has no pages: the sequence's tokens lie together. Where a model stores nothing per token, a
    layer's recurrent state.
    """
    groups = cache.groups
    tokens = jnp.where(design.paging.contiguous, design.workload.context, engine_memory.paging_of(design).block_size)
    there = groups.layers > 0
    page = jnp.max(jnp.where(there, cache.entry * tokens / groups.stride, 0.0), axis=0)
    state = jnp.max(jnp.where(there, groups.state_bytes / cache.devices, 0.0), axis=0)
    return jnp.where(page > 0, page, state)


def slowest_link(design: Design) -> BytesPerSecond:
    """Bandwidth of the slowest link to a tier that holds KV, or of the host's where none does."""
    placed = tiers.placed_tiers(design.placement, design.hardware)
    used = [jnp.where(fraction > 0, tier.bandwidth.value, NO_LIMIT) for fraction, tier in placed]
    host = design.hardware.host.bandwidth.value
    return jnp.where(tiers.placed_fraction(design.placement) > 0, reduce(jnp.minimum, used), host)


def link_sourced(design: Design) -> Flag:
    """Whether that link has a source: of every placed tier, or of the host's where none is."""
    none = tiers.placed_fraction(design.placement) <= 0
    known = tiers.links_known(design.placement, design.hardware)
    return jnp.where(none, design.hardware.host.bandwidth.known, known)


def reached_bandwidth(design: Design, cache: Cache) -> BytesPerSecond:
    """Bandwidth that the slowest placed tier, or host memory, reaches when KV moves page by page, layer by layer."""
    curve = load_transfer_curve()
    return effective_bandwidth(
        piece_bytes(cache, design), slowest_link(design), curve.seconds_per_piece, curve.large_share
    )


def slowdown(design: Design, cache: Cache) -> Ratio:
    """The slowest link's bandwidth over what it reaches: 1 where no KV is in tiers.

    Blocks of one token, the neutral value, say nothing of pages: KV moves in large copies then.
    """
    placed, curve = tiers.placed_fraction(design.placement) > 0, load_transfer_curve()
    pages = jnp.logical_or(design.paging.contiguous, engine_memory.paging_of(design).block_size > 1)
    pieces = curve.seconds_per_piece * slowest_link(design) * (1 / piece_bytes(cache, design))
    return jnp.where(placed, jnp.where(pages, pieces, 0.0) + 1 / curve.large_share, 1.0)
