"""Laguna: query heads of each layer's own count, a gate per head or per element, windows by a list, experts."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.heads import require_even_groups
from kvwall.spaces.models.moe import MoERule, first_dense, read_moe
from kvwall.spaces.models.windows import STATED, Windows, read_windows

_EXPERTS = MoERule(
    shared_width="shared_expert_intermediate_size",
    correction=True,
    sparse=first_dense(default=1),
)


def laguna(config: Config) -> Architecture:
    """Class defaults: one number of heads for all layers, a gate per head, the first layer dense."""
    frame = read_frame(config)
    query, kv, dim = config.count("num_attention_heads"), config.count("num_key_value_heads"), config.count("head_dim")
    counts = config.whole_numbers("num_attention_heads_per_layer") or (query,) * frame.layers
    if len(counts) != frame.layers or 0 in counts:
        if not config.spoiled:
            config.faults.add(f"{config.where}: num_attention_heads_per_layer must be {frame.layers} numbers")
        counts = (query,) * frame.layers
    for count in sorted(set(counts)):
        require_even_groups(config, count, kv, "num_key_value_heads")
    per_head = _gates_per_head(config)
    bias = config.switch("attention_bias", False)
    windows: Windows = (None,) * frame.layers
    if config.states("layer_types"):  # a window that no list places is idle
        windows = read_windows(config, STATED, frame.layers, frame.max_positions)
    ffns = read_moe(config, _EXPERTS, frame.hidden, frame.layers)
    layers = []
    for count, window, ffn in zip(counts, windows, ffns.blocks, strict=True):
        heads = Heads(count, kv, dim)
        gate = Projection("self_attn.g_proj", "query_output", frame.hidden * (count if per_head else heads.query_width))
        vectors = 2 * dim + (qkv_bias(heads) + frame.hidden) * bias
        mixer = attention(frame.hidden, heads, window, vectors=vectors) + Block((gate,), reduces=0)
        layers.append(mixer + ffn + norms(frame.hidden))
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _gates_per_head(config: Config) -> bool:
    value = config.value("gating")
    if value in (None, True, "per-head"):
        return True
    if value in ("per-element", "elementwise"):
        return False
    config.refuse(f"gating = {value!r}")
    return True
