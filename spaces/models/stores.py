"""KV stores of one layer, by kind. Dimensions per layer; `merged` gathers equal stores into groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from kvwall.spaces.models.layers import Kind, LayerGroup

STATE_BYTES = 4
"""A recurrent state is kept at 32 bits unless the config says otherwise."""
CONVOLUTION_BYTES = 2


class HeadShape(Protocol):
    """Heads of a layer, as a store needs them."""

    @property
    def query(self) -> int: ...  # noqa: D102
    @property
    def kv(self) -> int: ...  # noqa: D102
    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def value_head(self) -> int: ...  # noqa: D102


def attention_store(
    heads: HeadShape, window: int | None = None, *, chunked: bool = False, readers: int = 1
) -> LayerGroup:
    """K and V of every head: of all tokens, of the last `window`, or since the last multiple of it."""
    kind: Kind = "full" if window is None else "chunked" if chunked else "window"
    return LayerGroup(
        layers=1,
        query_heads=heads.query,
        kv_heads=heads.kv,
        key_dim=heads.dim,
        value_dim=heads.value_head,
        score_dim=heads.dim,
        mix_dim=heads.value_head,
        window=window,
        chunked=chunked,
        readers=readers,
        kind=kind,
        evictable=window is None,
    )


def latent_store(
    query_heads: int, rank: int, rope: int, *, top_k: int | None = None, index_dim: int = 0, index_heads: int = 0
) -> LayerGroup:
    """MLA: one latent per token, read whole or, with `top_k`, where the index points."""
    return LayerGroup(
        layers=1,
        query_heads=query_heads,
        kv_heads=1,
        key_dim=rank,
        value_dim=0,
        score_dim=rank + rope,
        mix_dim=rank,
        rope_dim=rope,
        top_k=top_k,
        index_dim=index_dim,
        index_heads=index_heads,
        kind="latent" if top_k is None else "sparse",
    )


def recurrent_store(
    heads: int, state: int, convolution: int = 0, taps: int = 0, state_bytes: int | None = None
) -> LayerGroup:
    """A fixed state of `state` elements in `heads` shards, and `convolution` inputs of each of the last `taps` tokens.

    `state_bytes` of an element is None where the model does not say.
    """
    return LayerGroup(
        layers=1,
        query_heads=heads,
        kv_heads=heads,
        key_dim=0,
        value_dim=0,
        state_bytes=state * (state_bytes or STATE_BYTES) + convolution * taps * CONVOLUTION_BYTES,
        state_elements=state,
        state_stated=state_bytes is not None,
        convolution_elements=convolution,
        convolution_taps=taps,
        kind="recurrent",
        evictable=False,
    )


def merged(stores: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Groups of equal stores, in order of first appearance."""
    return tuple(replace(store, layers=count) for store, count in Counter(stores).items())
