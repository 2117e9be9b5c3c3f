"""MiMo-V2-Flash: short windows with sinks and more KV heads, full attention between, values narrower than keys."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.heads import require_even_groups
from kvwall.spaces.models.moe import MoERule, first_dense, layer_flags, read_moe
from kvwall.spaces.models.windows import FULL, SLIDING, layer_kinds

_EXPERTS = MoERule(
    ("n_routed_experts", "num_local_experts"),
    shared_count=("n_shared_experts",),
    correction=True,
    sparse=first_dense(default=1),
)


def mimo_v2_flash(config: Config) -> Architecture:
    """The windows' layers have heads of their own under `swa_*` keys."""
    frame = read_frame(config)
    full = _full_heads(config)
    heads = {FULL: full, SLIDING: _window_heads(config, full)}
    window = config.count("sliding_window", "sliding_window_size")
    kinds = _kinds(config, frame.layers)
    sinks = {
        FULL: config.switch("add_full_attention_sink_bias", False),
        SLIDING: config.switch("add_swa_attention_sink_bias", True),
    }
    bias = config.switch("attention_bias", False)
    mixers = {}
    for kind in (FULL, SLIDING):
        vectors = heads[kind].query * sinks[kind] + qkv_bias(heads[kind]) * bias
        mixers[kind] = attention(frame.hidden, heads[kind], None if kind == FULL else window, vectors=vectors)
    ffns = read_moe(config, _EXPERTS, frame.hidden, frame.layers)
    layers: list[Block] = [
        mixers[kind] + ffn + norms(frame.hidden) for kind, ffn in zip(kinds, ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _full_heads(config: Config) -> Heads:
    query, kv = config.count("num_attention_heads"), config.count("num_key_value_heads")
    require_even_groups(config, query, kv, "num_key_value_heads")
    return Heads(query, kv, config.count("head_dim"), config.count("v_head_dim"))


def _window_heads(config: Config, full: Heads) -> Heads:
    """Class defaults where the `swa_*` keys are absent: as the full layers', with twice the KV heads."""
    query = config.optional_count("swa_num_attention_heads") or full.query
    kv = config.count("swa_num_key_value_heads", default=2 * full.kv)
    require_even_groups(config, query, kv, "swa_num_key_value_heads")
    dim = config.optional_count("swa_head_dim") or full.dim
    return Heads(query, kv, dim, config.optional_count("swa_v_head_dim") or full.value_head)


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    """`layer_types`, or a list with a 1 for each layer that has a window."""
    if config.states("layer_types") or not config.states("hybrid_layer_pattern"):
        kinds = layer_kinds(config, layers, (FULL, SLIDING))
        if not kinds:
            config.missing.append("layer_types or hybrid_layer_pattern")
        return kinds or (FULL,) * layers
    flags = layer_flags(config, "hybrid_layer_pattern", layers)
    return tuple(SLIDING if flag else FULL for flag in flags)
