"""Multi-head latent attention (MLA), with or without a sparse index (DSA) that says which latents to read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvwall.spaces.models.architecture import Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.layers import LayerGroup
from kvwall.spaces.models.stores import latent_store


@dataclass(frozen=True)
class Index:
    """A lightning indexer: one key per token, shared by its query heads."""

    heads: int
    dim: int
    top_k: int


@dataclass(frozen=True)
class Latent:
    """MLA of one layer."""

    heads: int
    query_rank: int
    """Rank of the query's own latent; 0: queries are projected at once."""
    rank: int
    nope: int
    rope: int
    value: int
    bias: bool = False
    """Biases on the down-projections and the output."""
    gate: int = 0
    """Width of a gate on the attention's output; 0 without."""


def read_latent(config: Config) -> Latent:
    """The usual keys; `q_lora_rank` null or absent means no query latent."""
    return Latent(
        heads=config.count("num_attention_heads"),
        query_rank=config.optional_count("q_lora_rank") or 0,
        rank=config.count("kv_lora_rank"),
        nope=config.count("qk_nope_head_dim"),
        rope=config.whole("qk_rope_head_dim")
        if config.value("qk_rope_head_dim") == 0
        else config.count("qk_rope_head_dim"),
        value=config.count("v_head_dim"),
        bias=config.switch("attention_bias", False),
    )


def read_index(config: Config) -> Index:
    """The usual keys of an indexer."""
    return Index(config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk"))


def latent_block(hidden: int, mla: Latent, index: Index | None = None, *, owns_index: bool = True) -> Block:
    """MLA of one layer. Down-projections and indexer are whole on every device, the rest splits by heads.

    A layer that reuses another's index reads as sparsely but has neither indexer weights nor index keys.
    """
    attention = "self_attn."
    query_width = mla.heads * (mla.nope + mla.rope)
    matrices = [
        Projection(attention + "kv_a_proj_with_mqa", "key_value", hidden * (mla.rank + mla.rope)),
        Projection(attention + "kv_b_proj", "query_output", mla.rank * mla.heads * (mla.nope + mla.value)),
        Projection(attention + "o_proj", "query_output", mla.heads * mla.value * hidden),
    ]
    vectors = mla.rank
    if mla.query_rank:
        matrices.append(Projection(attention + "q_a_proj", "key_value", hidden * mla.query_rank))
        matrices.append(Projection(attention + "q_b_proj", "query_output", mla.query_rank * query_width))
        vectors += mla.query_rank
    else:
        matrices.append(Projection(attention + "q_proj", "query_output", hidden * query_width))
    if mla.gate:
        matrices.append(Projection(attention + "g_proj", "query_output", hidden * mla.gate))
    if mla.bias:
        vectors += mla.query_rank + mla.rank + mla.rope + hidden
    block = Block(tuple(matrices), vectors, (_store(mla, index, owns_index),))
    return block + index_block(hidden, mla.query_rank or hidden, index) if index and owns_index else block


def index_block(hidden: int, query_input: int, index: Index) -> Block:
    """Weights of an indexer: queries from the query latent, one key and the heads' weights from hidden."""
    path = "self_attn.indexer."
    matrices = (
        Projection(path + "wq_b", "key_value", query_input * index.heads * index.dim),
        Projection(path + "wk", "key_value", hidden * index.dim),
        Projection(path + "weights_proj", "key_value", hidden * index.heads),
    )
    return Block(matrices, 2 * index.dim, reduces=0)


def _store(mla: Latent, index: Index | None, owns_index: bool) -> LayerGroup:
    store = replace(latent_store(mla.heads, mla.rank, mla.rope), prefill_dim=mla.nope + mla.rope + mla.value)
    if index is None:
        return store
    store = replace(store, top_k=index.top_k, kind="sparse")
    return replace(store, index_dim=index.dim, index_heads=index.heads) if owns_index else store
