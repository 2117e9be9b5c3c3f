"""MiniMax M3: grouped-query attention that reads the blocks of tokens an index picks, experts after dense layers."""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture, Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.latent import Index
from kvwall.spaces.models.moe import MoERule, first_dense, layer_flags, read_moe
from kvwall.spaces.models.windows import FULL, layer_kinds

SPARSE = "minimax_m3_sparse"
_EXPERTS = MoERule(
    ("num_local_experts", "num_experts"),
    intermediate="intermediate_size",
    shared_width="shared_intermediate_size",
    correction=True,
    dense_width="dense_intermediate_size",
    sparse=first_dense(),
)


def minimax_m3(config: Config) -> Architecture:
    """Sizes of the index sit in `sparse_attention_config` or under `index_*` keys; all are stated."""
    frame = read_frame(config)
    hidden = frame.hidden
    heads = read_heads(config, hidden)
    sparse = config.section("sparse_attention_config") if config.states("sparse_attention_config") else None
    full = attention(hidden, heads, vectors=2 * heads.dim)
    kinds = _kinds(config, sparse, frame.layers)
    indexed = full
    if SPARSE in kinds:
        index = _index(config, sparse)
        (store,) = full.stores
        store = replace(store, kind="sparse", top_k=index.top_k, index_dim=index.dim, index_heads=index.heads)
        indexed = replace(full, stores=(store,)) + _index_block(hidden, index)
    ffns = read_moe(config, _EXPERTS, hidden, frame.layers)
    layers = [
        (indexed if kind == SPARSE else full) + ffn + norms(hidden)
        for kind, ffn in zip(kinds, ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _index(config: Config, sparse: Config | None) -> Index:
    """Blocks of tokens are picked: so many blocks of such a size are read. The nearest blocks are among them."""
    if sparse is not None:
        blocks, size = sparse.count("sparse_topk_blocks"), sparse.count("sparse_block_size")
        return Index(sparse.count("sparse_num_index_heads"), sparse.count("sparse_index_dim"), blocks * size)
    blocks, size = config.count("index_topk_blocks"), config.count("index_block_size")
    return Index(config.count("index_n_heads"), config.count("index_head_dim"), blocks * size)


def _index_block(hidden: int, index: Index) -> Block:
    matrices = (
        Projection("self_attn.indexer.q_proj", "key_value", hidden * index.heads * index.dim),
        Projection("self_attn.indexer.k_proj", "key_value", hidden * index.dim),
    )
    return Block(matrices, 2 * index.dim, reduces=0)


def _kinds(config: Config, sparse: Config | None, layers: int) -> tuple[str, ...]:
    kinds = layer_kinds(config, layers, (FULL, SPARSE))
    if kinds or sparse is None or not sparse.states("sparse_attention_freq"):
        if not kinds:
            config.missing.append("layer_types or sparse_attention_freq")
        return kinds or (FULL,) * layers
    return tuple(SPARSE if flag else FULL for flag in layer_flags(sparse, "sparse_attention_freq", layers))
