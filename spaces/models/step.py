"""Step 3.5 and 3.7 Flash: windows with more query heads, full attention between, a gate per head, experts."""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.heads import require_even_groups
from kvwall.spaces.models.moe import MoERule, Sparse, first_dense, read_moe
from kvwall.spaces.models.windows import FULL, SLIDING

_EXPERTS = MoERule(
    ("moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts"),
    ("moe_top_k", "num_experts_per_tok"),
    shared_width="share_expert_dim",
    correction=True,
    shared_path="share_expert",
)


def step3(config: Config) -> Architecture:
    """Lists may go on for the draft layers; the windows' heads sit in `attention_other_setting`."""
    frame = read_frame(config)
    full = _full_heads(config)
    heads = {FULL: full, SLIDING: _window_heads(config, full)}
    kinds = _kinds(config, frame.layers)
    window = config.count("sliding_window") if SLIDING in kinds else None
    gated = config.switch("use_head_wise_attn_gate", True)
    mixers = {}
    for kind, shape in heads.items():
        mixers[kind] = attention(frame.hidden, shape, window if kind == SLIDING else None, vectors=2 * shape.dim)
        if gated:
            gate = Projection("self_attn.g_proj", "query_output", frame.hidden * shape.query)
            mixers[kind] += Block((gate,), reduces=0)
    ffns = read_moe(config, replace(_EXPERTS, sparse=_sparse), frame.hidden, frame.layers)
    layers = [mixers[kind] + ffn + norms(frame.hidden) for kind, ffn in zip(kinds, ffns.blocks, strict=True)]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _full_heads(config: Config) -> Heads:
    query = config.count("num_attention_heads")
    kv = config.count("num_attention_groups", "num_key_value_heads")
    require_even_groups(config, query, kv, "num_attention_groups")
    return Heads(query, kv, config.count("head_dim"))


def _window_heads(config: Config, full: Heads) -> Heads:
    other = config.section("attention_other_setting")
    query = other.optional_count("num_attention_heads") or config.optional_count("num_sliding_attention_heads")
    kv = other.optional_count("num_attention_groups", "num_key_value_heads") or full.kv
    require_even_groups(config, query or full.query, kv, "num_attention_groups")
    return Heads(query or full.query, kv, other.optional_count("head_dim") or full.dim)


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    kinds = config.names("layer_types")[:layers]
    if not kinds:
        config.missing.append("layer_types")
    elif len(kinds) < layers or not set(kinds) <= {FULL, SLIDING}:
        if not config.spoiled:
            config.faults.add(f"{config.where}: layer_types must give {FULL} or {SLIDING} for each of {layers} layers")
    else:
        return kinds
    return (FULL,) * layers


def _sparse(config: Config, layers: int) -> Sparse:
    """`mlp_layer_types`, the numbers of the MoE layers in one text, or `first_k_dense_replace`."""
    if config.states("mlp_layer_types"):
        kinds = config.names("mlp_layer_types")[:layers]
        return tuple(kind == "sparse" for kind in kinds) + (False,) * (layers - len(kinds))
    if isinstance(config.value("moe_layers_enum"), str):
        numbers = [part.strip() for part in (config.text("moe_layers_enum") or "").split(",") if part.strip()]
        if not all(number.isdecimal() for number in numbers):
            config.faults.add(f"{config.where}: moe_layers_enum must be whole numbers with commas between")
            return (True,) * layers
        routed = {int(number) for number in numbers}
    elif config.states("moe_layers_enum"):
        routed = set(config.whole_numbers("moe_layers_enum"))
    elif config.states("first_k_dense_replace"):
        return first_dense()(config, layers)
    else:
        config.missing.append("moe_layers_enum or mlp_layer_types")
        return (True,) * layers
    return tuple(layer in routed for layer in range(layers))
