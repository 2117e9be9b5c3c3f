"""The KV cache of every layout by one law: what a store holds, what a step reads and writes, on one device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp

from kvwall.objectives import prefix, sparse_read
from kvwall.spaces.design import Design, Groups, KVFormat
from kvwall.spaces.units import Bits, Bytes, Count, Flag, Ratio, Tokens

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
    some = context > 0
    return retention + (1 - retention) * jnp.minimum(pinned / jnp.where(some, context, 1.0), 1.0)


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


def held_tokens(context: Tokens, window: Tokens) -> Tokens:
    """Tokens a store holds: the context, up to its window.

    >>> float(held_tokens(1000.0, 512.0)), float(held_tokens(1000.0, 1e20))
    (512.0, 1000.0)
    """
    return jnp.minimum(context, window)


def restarted(context: Tokens, groups: Groups) -> Flag:
    """Whether attention is in chunks and the first is full."""
    return jnp.logical_and(groups.chunked, context > groups.window)


def attended_tokens(context: Tokens, groups: Groups) -> Tokens:
    """Tokens a step may read: those held; of chunks that restart, half a chunk on average once one is full."""
    held = held_tokens(context, groups.window)
    return jnp.where(restarted(context, groups), (groups.window + 1) / 2, held)


def entries(tokens: Tokens, kept_fraction: Ratio, groups: Groups) -> Count:
    """Stored entries of so many tokens: eviction where it applies, then one entry per stride."""
    return tokens * jnp.where(groups.evictable, kept_fraction, 1.0) / groups.stride


def device_heads(groups: Groups, devices: Count) -> Count:
    """KV heads on the fullest device under tensor parallelism; past one head a device, heads are replicated."""
    return jnp.ceil(groups.kv_heads / devices)


def entry_bytes(groups: Groups, devices: Count, key_bits: Bits, value_bits: Bits) -> Bytes:
    """Bytes of one entry in one store on one device, without its index, at these stored bits per element."""
    bits = groups.key_dim * key_bits + groups.value_dim * value_bits
    return (device_heads(groups, devices) * bits + groups.fixed_dim * FULL_BITS) / BITS_PER_BYTE


def index_bytes(groups: Groups) -> Bytes:
    """Bytes of one entry's sparse index in one store; every device holds it."""
    return groups.index_dim * FULL_BITS / BITS_PER_BYTE


def state_bytes(groups: Groups, devices: Count) -> Bytes:
    """Bytes of a sequence's recurrent state on one device, over all stores; heads divide."""
    return jnp.sum(groups.layers * groups.state_bytes, axis=0) / devices


def sequence_bytes(held: Count, entry: Bytes, full_entry: Bytes, window: Tokens) -> Bytes:
    """Bytes of `held` entries, the most recent `window` of them at 16 bits.

    >>> float(sequence_bytes(1000.0, 2.0, 16.0, 100.0))
    3400.0
    """
    return entry * held + (full_entry - entry) * jnp.minimum(window, held)


@dataclass(frozen=True)
class Cache:
    """How a design keeps and reads KV on one device: what is needed at any context."""

    groups: Groups
    devices: Count
    """That tensor parallelism spreads heads over."""
    token_ranks: Count
    """That divide the tokens of a sequence: everything per token, not the recurrent state."""
    entry: Bytes
    """Per group, as `entry_bytes`, quantized."""
    full_entry: Bytes
    """Per group, at 16 bits."""
    guide: Bytes
    """Per group and entry, what tells which entries to read: a sparse index, and page metadata of read sparsity."""
    residual_window: Tokens
    retention: Ratio
    sinks: Tokens
    pinned: Tokens
    """Sinks and recent tokens."""
    read_fraction: Ratio
    prefix_share: Ratio
    stored_saving: Ratio
    """Of a common prefix, the share that a sequence need not store: 1 - 1/copies."""
    read_saving: Ratio
    draft_layers: Ratio
    """Layers of a draft per decoder layer, which keep KV of their own."""
    draft_reads: Ratio
    """Passes over those layers in a step."""

    @property
    def recent(self) -> Count:
        """Per group, entries of the residual window."""
        return self.residual_window / self.groups.stride

    def kept_fraction(self, context: Tokens) -> Ratio:
        """Share of a context's tokens that eviction keeps."""
        return kept_fraction(self.retention, self.pinned, context)

    def shared_entries(self, context: Tokens, own: Tokens) -> Count:
        """Per group, held entries that belong to a common prefix; the last `own` tokens are of no prompt."""
        groups = self.groups
        tokens = prefix.shared_tokens(context, own, self.prefix_share, groups.window)
        kept = prefix.kept_of_prefix(tokens, context, self.retention, self.sinks, self.pinned - self.sinks)
        return jnp.where(groups.evictable, kept, tokens) / groups.stride

    def spared(self, shared: Count, held: Count) -> Bytes:
        """Per group, bytes of `shared` entries, the oldest of `held`: those of the residual window are at 16 bits."""
        full = jnp.maximum(shared - jnp.maximum(held - self.recent, 0.0), 0.0)
        return (self.entry + self.guide) * shared + (self.full_entry - self.entry) * full

    def growing(self, context: Tokens, own: Tokens) -> Bytes:
        """KV bytes of a sequence of this context, without draft and recurrent state, before tokens are divided."""
        groups = self.groups
        held = entries(held_tokens(context, groups.window), self.kept_fraction(context), groups)
        bytes_held = sequence_bytes(held, self.entry, self.full_entry, self.recent) + self.guide * held
        spared = self.spared(self.shared_entries(context, own), held) * self.stored_saving
        return jnp.sum(groups.layers * (bytes_held - spared), axis=0)

    def stored(self, context: Tokens, own: Tokens) -> Bytes:
        """KV bytes of a sequence of this context, of which the last `own` tokens are of no prompt."""
        return self.growing(context, own) * (1 + self.draft_layers) / self.token_ranks + self.state

    @property
    def alone(self) -> Cache:
        """The cache of a sequence that has nothing in common with others."""
        return replace(self, stored_saving=0.0, read_saving=0.0)

    @property
    def state(self) -> Bytes:
        """Bytes of a sequence's recurrent state."""
        return state_bytes(self.groups, self.devices)

    def read_entries(self, context: Tokens) -> tuple[Count, Count]:
        """Per group: (entries read, entries whose index is read) by a step at this context."""
        groups = self.groups
        seen = entries(attended_tokens(context, groups), self.kept_fraction(context), groups)
        return jnp.minimum(seen * sparse_read.fraction_read(self.read_fraction, groups), groups.top_k), seen

    def read(self, context: Tokens, own: Tokens) -> Bytes:
        """KV bytes a step reads for a sequence of this context, the recurrent state included."""
        groups = self.groups
        chosen, seen = self.read_entries(context)
        bytes_read = sequence_bytes(chosen, self.entry, self.full_entry, self.recent) + self.guide * seen
        shared = jnp.where(restarted(context, groups), 0.0, self.shared_entries(context, own))
        read = sparse_read.fraction_read(self.read_fraction, groups)
        of_chosen = jnp.minimum(shared * read, groups.top_k * self.prefix_share)  # top-k picks from all alike
        spared = self.spared(of_chosen, chosen) + self.guide * (shared - of_chosen)
        bytes_read = bytes_read - spared * self.read_saving
        each = jnp.sum(groups.layers * groups.readers * bytes_read, axis=0)
        return each * (1 + self.draft_reads) / self.token_ranks + self.state

    def written(self, tokens: Count) -> Bytes:
        """KV bytes a step writes for a sequence: so many tokens' share of an entry, and the state."""
        groups = self.groups
        new = jnp.where(self.residual_window > 0, self.full_entry, self.entry) + self.guide
        each = jnp.sum(groups.layers * new / groups.stride, axis=0)
        return tokens * each * (1 + self.draft_layers) / self.token_ranks + self.state


def cache_of(design: Design, resident: Count, active: Count) -> Cache:
    """The cache that a design's remedies make of its model's stores.

    Args:
        design: the design.
        resident: sequences that a device keeps, which may have prefixes in common.
        active: those of them that decode.
    """
    groups, form, prefixes = design.model.groups, design.kv_format, design.prefix
    devices, read_fraction = design.parallel.tensor, design.sparse_read.fraction
    key_bits, value_bits = stored_bits(form.key_bits, form), stored_bits(form.value_bits, form)
    full = (jnp.maximum(form.key_bits, FULL_BITS), jnp.maximum(form.value_bits, FULL_BITS))
    metadata = sparse_read.metadata_bytes(
        groups, device_heads(groups, devices), read_fraction, design.paging.block_size
    )
    drafts = design.speculation.draft_tokens
    read_copies = jnp.where(prefixes.aware, prefix.copies(prefixes.group, active), 1.0)
    return Cache(
        groups=groups,
        devices=devices,
        token_ranks=design.parallel.context,
        entry=entry_bytes(groups, devices, key_bits, value_bits),
        full_entry=entry_bytes(groups, devices, *full),
        guide=index_bytes(groups) + metadata,
        residual_window=form.residual_window,
        retention=design.eviction.retention,
        sinks=design.eviction.sink_tokens,
        pinned=design.eviction.sink_tokens + design.eviction.recent_tokens,
        read_fraction=read_fraction,
        prefix_share=prefixes.share,
        stored_saving=prefix.saving(prefix.copies(prefixes.group, resident)),
        read_saving=prefix.saving(read_copies),
        draft_layers=jnp.where(drafts > 0, 1 / design.model.layers, 0.0),
        draft_reads=drafts / design.model.layers,
    )
