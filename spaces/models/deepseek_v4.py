"""DeepSeek V4: a short window of latents in every layer, and beside it a compressed history.

The compressed store keeps one latent per 4 tokens, read through an index, or one per 128 tokens, read
whole. Key and value are the same latent, its rope part included, so each entry is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvwall.spaces.models.architecture import Architecture, Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.latent import Index, read_index
from kvwall.spaces.models.layers import Kind, LayerGroup
from kvwall.spaces.models.moe import MoERule, read_moe
from kvwall.spaces.models.windows import layer_kinds

SPARSE, HEAVY, WINDOW = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
_RATIOS = {0: WINDOW, 4: SPARSE, 128: HEAVY}
_RATES = {SPARSE: 4, HEAVY: 128}
_EXPERTS = MoERule(("n_routed_experts", "num_local_experts"), shared_count=("n_shared_experts",), shared_default=1)


@dataclass(frozen=True)
class _Shape:
    hidden: int
    heads: int
    head: int
    rope: int
    query_rank: int
    output_rank: int
    output_groups: int
    streams: int
    """Residual streams of the hyper-connections."""


def deepseek_v4(config: Config) -> Architecture:
    """Every width is stated; the routing bias is not counted (three layers route by a table of tokens)."""
    frame = read_frame(config)
    shape = _Shape(
        hidden=frame.hidden,
        heads=config.count("num_attention_heads"),
        head=config.count("head_dim"),
        rope=config.count("qk_rope_head_dim"),
        query_rank=config.count("q_lora_rank"),
        output_rank=config.count("o_lora_rank"),
        output_groups=config.count("o_groups"),
        streams=config.count("hc_mult"),
    )
    if shape.rope >= shape.head and not config.spoiled:
        config.faults.add(f"{config.where}: qk_rope_head_dim = {shape.rope} must be below head_dim = {shape.head}")
    index, window = read_index(config), config.count("sliding_window")
    ffns = read_moe(config, _EXPERTS, frame.hidden, frame.layers)
    local = _attention(shape) + Block(stores=(_store(shape, "window", window=window),), reduces=0)
    mixers = {
        WINDOW: local,
        HEAVY: local + _compressor(shape, _rate(config, HEAVY)),
        SPARSE: local + _compressor(shape, _rate(config, SPARSE), index),
    }
    around = norms(frame.hidden) + _hyper_connections(shape)
    layers = [
        mixers[kind] + ffn + around for kind, ffn in zip(_layer_kinds(config, frame.layers), ffns.blocks, strict=True)
    ]
    streams = shape.streams
    head = Projection("model.hc_head.hc_fn", "ffn", streams * streams * frame.hidden)
    return decoder(
        config,
        frame,
        layers,
        tied=False,
        intermediate=ffns.width,
        active_experts=ffns.active,
        model_vectors=frame.hidden + streams + 1,
        model_matrices=(head,),
    )


def _attention(shape: _Shape) -> Block:
    width = shape.heads * shape.head
    path = "self_attn."
    matrices = (
        Projection(path + "q_a_proj", "key_value", shape.hidden * shape.query_rank),
        Projection(path + "q_b_proj", "query_output", shape.query_rank * width),
        Projection(path + "kv_proj", "key_value", shape.hidden * shape.head),
        Projection(path + "o_a_proj", "query_output", width * shape.output_rank),
        Projection(path + "o_b_proj", "query_output", shape.output_groups * shape.output_rank * shape.hidden),
    )
    return Block(matrices, shape.heads + shape.query_rank + shape.head)


def _compressor(shape: _Shape, rate: int, index: Index | None = None) -> Block:
    """Pools `rate` tokens into a latent; the indexed one overlaps its windows, so its weights are twice as wide."""
    path = "self_attn.compressor."
    width = shape.head * (2 if index else 1)
    matrices = [Projection(path + name, "key_value", shape.hidden * width) for name in ("kv_proj", "gate_proj")]
    vectors = rate * width + shape.head
    if index:
        keys = 2 * index.dim
        names = (path + "indexer.kv_proj", path + "indexer.gate_proj")
        matrices += [Projection(name, "key_value", shape.hidden * keys) for name in names]
        queries = shape.query_rank * index.heads * index.dim
        matrices.append(Projection(path + "indexer.q_b_proj", "key_value", queries))
        matrices.append(Projection(path + "indexer.weights_proj", "key_value", shape.hidden * index.heads))
        vectors += rate * keys + index.dim
    store = _store(shape, "compressed", stride=rate, index=index)
    return Block(tuple(matrices), vectors, (store,), reduces=0)


def _store(
    shape: _Shape, kind: Kind, *, window: int | None = None, stride: int = 1, index: Index | None = None
) -> LayerGroup:
    return LayerGroup(
        layers=1,
        query_heads=shape.heads,
        kv_heads=1,
        key_dim=shape.head - shape.rope,
        value_dim=0,
        score_dim=shape.head,
        mix_dim=shape.head,
        rope_dim=shape.rope,
        window=window,
        stride=stride,
        top_k=index.top_k if index else None,
        index_dim=index.dim if index else 0,
        index_heads=index.heads if index else 0,
        kind=kind,
        evictable=False,
    )


def _hyper_connections(shape: _Shape) -> Block:
    """Two mixings of the residual streams per layer, each with its own small matrix."""
    outputs = shape.streams * (shape.streams + 2)
    matrix = outputs * shape.streams * shape.hidden
    matrices = (Projection("attn_hc.fn", "ffn", matrix), Projection("ffn_hc.fn", "ffn", matrix))
    return Block(matrices, 2 * (outputs + 3), reduces=0)


def _layer_kinds(config: Config, layers: int) -> tuple[str, ...]:
    kinds = layer_kinds(config, layers, (SPARSE, HEAVY, WINDOW))
    if kinds:
        return kinds
    ratios = config.whole_numbers("compress_ratios")[:layers]  # the draft layer's ratio may follow
    if len(ratios) < layers or any(ratio not in _RATIOS for ratio in ratios):
        if not config.spoiled:
            config.faults.add(f"{config.where}: compress_ratios must give 0, 4 or 128 for each of {layers} layers")
        return (WINDOW,) * layers
    return tuple(_RATIOS[ratio] for ratio in ratios)


def _rate(config: Config, kind: str) -> int:
    rates = config.section("compress_rates")
    return rates.count(kind) if rates.states(kind) else _RATES[kind]
