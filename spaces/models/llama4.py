"""Llama 4: chunked attention in most layers, full attention in the rest, experts in all or every second layer."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, attention_projections, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import Routed, dense_block, moe_block, read_top_k
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.stores import attention_store
from kvwall.spaces.models.windows import FULL, layer_kinds

CHUNKED = "chunked_attention"


def llama4(config: Config) -> Architecture:
    """Class defaults: every fourth layer attends in full; experts in every `interleave_moe_layer_step`-th layer.

    The shared expert is as wide as a routed one; dense layers have a width of their own. The Q and K
    norms have no weights.
    """
    frame = read_frame(config)
    hidden = frame.hidden
    heads = read_heads(config, hidden, default_dim=128)
    vectors = qkv_bias(heads) + hidden if config.switch("attention_bias", False) else 0
    mixer = Block(attention_projections(hidden, heads), vectors)
    chunk = config.optional_count("attention_chunk_size")
    full = attention_store(heads)
    chunked = attention_store(heads, chunk, chunked=True) if chunk else full
    routed = _routed(config)
    sparse = _sparse(config, frame.layers)
    moe, dense, width = moe_block(hidden, routed), Block(), routed.width
    if len(sparse) < frame.layers:
        intermediate = config.count("intermediate_size_mlp")
        dense, width = dense_block(hidden, intermediate, path="feed_forward"), max(width, intermediate)
    layers = [
        mixer
        + Block(stores=(full if kind == FULL else chunked,), reduces=0)
        + (moe if number in sparse else dense)
        + norms(hidden)
        for number, kind in enumerate(_kinds(config, frame.layers))
    ]
    return decoder(config, frame, layers, tied=False, intermediate=width, active_experts=routed.active)


def _routed(config: Config) -> Routed:
    experts = config.count("num_local_experts")
    intermediate = config.count("intermediate_size")
    return Routed(
        experts=experts,
        active=read_top_k(config, experts, "num_experts_per_tok"),
        intermediate=intermediate,
        shared=intermediate,
        path="feed_forward",
        router="router",
        expert_path="experts",
        shared_path="shared_expert",
    )


def _sparse(config: Config, layers: int) -> frozenset[int]:
    if config.value("moe_layers"):
        return frozenset(layer for layer in config.whole_numbers("moe_layers") if layer < layers)
    step = config.count("interleave_moe_layer_step")
    return frozenset(range(step - 1, layers, step))


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    kinds = layer_kinds(config, layers, (FULL, CHUNKED))
    if kinds:
        return kinds
    rotated = config.whole_numbers("no_rope_layers")
    if not rotated:
        period = config.count("no_rope_layer_interval") if config.states("no_rope_layer_interval") else 4
        rotated = tuple(int((layer + 1) % period != 0) for layer in range(layers))
    if len(rotated) != layers:
        if not config.spoiled:
            config.faults.add(f"{config.where}: no_rope_layers lists {len(rotated)} layers, the model has {layers}")
        rotated = (1,) * layers
    return tuple(CHUNKED if flag else FULL for flag in rotated)
