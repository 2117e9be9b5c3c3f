"""Nemotron-NAS (Puzzle): Llama's block with KV heads and FFN width of its own per layer, or without either."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import even_head_dim, require_even_groups

_MULTIPLE = 256
"""FFN widths are rounded up to a multiple of this."""


def nemotron_nas(config: Config) -> Architecture:
    """`block_configs` has one entry per layer; an FFN is 2/3 of ffn_mult*hidden wide, rounded up to 256.

    Either half of a layer may be absent, or one hidden-wide matrix in its place.
    """
    frame = read_frame(config)
    query = config.count("num_attention_heads")
    dim = config.optional_count("head_dim") or even_head_dim(config, frame.hidden, query)
    entries = _entries(config, frame.layers)
    layers = []
    widest = 1
    for entry in entries:
        ffn, width = _ffn(entry.section("ffn"), frame.hidden)
        layers.append(_attention(entry.section("attention"), frame.hidden, query, dim) + ffn)
        widest = max(widest, width)
    return decoder(config, frame, layers, tied=False, intermediate=widest)


def _entries(config: Config, layers: int) -> list[Config]:
    entries = config.value("block_configs")
    if entries is None:
        config.missing.append("block_configs")
        return []
    if not isinstance(entries, list) or len(entries) != layers or not all(isinstance(each, dict) for each in entries):
        if not config.spoiled:
            config.faults.add(f"{config.where}: block_configs must be a list of {layers} objects")
        return []
    return [Config(each, f"{config.where}, block_configs[{number}]", config) for number, each in enumerate(entries)]


def _attention(entry: Config, hidden: int, query: int, dim: int) -> Block:
    if entry.switch("no_op", False):
        return Block(reduces=0)
    if entry.switch("replace_with_linear", False):
        return _linear("self_attn", hidden)
    for key in ("window_length", "sparsify"):
        if entry.states(key):
            entry.refuse(f"{key} in a layer's attention")
    group = entry.count("n_heads_in_group")
    if query % group and not entry.spoiled:
        entry.faults.add(f"{entry.where}: n_heads_in_group = {group} must divide the {query} attention heads")
    heads = Heads(query, max(1, query // group), dim)
    require_even_groups(entry, query, heads.kv, "n_heads_in_group")
    return attention(hidden, heads) + norms(hidden, 1)


def _ffn(entry: Config, hidden: int) -> tuple[Block, int]:
    if entry.switch("no_op", False):
        return Block(reduces=0), 1
    if entry.switch("replace_with_linear", False):
        return _linear("mlp", hidden), hidden
    intermediate = entry.optional_count("intermediate_size")
    if intermediate is None:
        if not entry.states("ffn_mult"):
            entry.missing.append("ffn_mult")
        raw = int(2 * entry.number("ffn_mult", 1.0) * hidden / 3)
        intermediate = max(1, -(-raw // _MULTIPLE) * _MULTIPLE)
    return dense_block(hidden, intermediate) + norms(hidden, 1), intermediate


def _linear(path: str, hidden: int) -> Block:
    tensor_class = "query_output" if path == "self_attn" else "ffn"
    matrix = Projection(f"{path}.linear_attn", tensor_class, hidden * hidden)  # type: ignore[arg-type]
    return Block((matrix,)) + norms(hidden, 1)
