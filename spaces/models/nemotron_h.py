"""Nemotron-H and Nemotron 3: every layer is one thing: Mamba 2, attention, an FFN, or experts."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import UNGATED, Routed, dense_block, moe_block, read_top_k
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.state_space import Mamba2, mamba2_block, read_state_bytes
from kvwall.spaces.models.windows import layer_kinds

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_NAMES = {"linear_attention": "mamba", "full_attention": "attention"}


def nemotron_h(config: Config) -> Architecture:
    """Class defaults: FFNs of two matrices, convolution bias on, no other bias, head not tied.

    Experts may work at a latent width, between two projections that all of a layer's experts share.
    """
    for key in ("layers_block_type", "layer_types"):
        names = config.names(key)
        if names and not config.states("num_hidden_layers"):
            config = config.with_values({"num_hidden_layers": len(names)})
    frame = read_frame(config)
    hidden = frame.hidden
    kinds = _kinds(config, frame.layers)
    for key in ("n_routed_experts", "ssm_state_size", "hybrid_override_pattern"):
        config.states(key)  # class defaults may be written out for kinds of layer that are not there
    blocks: dict[str, Block] = {}
    width, active = 1, 0
    if "mamba" in kinds:
        blocks["mamba"] = mamba2_block(hidden, _mamba(config), "mixer")
    if "attention" in kinds:
        blocks["attention"] = _attention(config, hidden)
    if "mlp" in kinds:
        width = config.count("intermediate_size")
        blocks["mlp"] = dense_block(hidden, width, UNGATED, "mixer")
        if config.switch("mlp_bias", False):
            blocks["mlp"] += Block(vectors=width + hidden, reduces=0)
    if "moe" in kinds:
        routed = _experts(config)
        blocks["moe"] = moe_block(hidden, routed)
        width, active = max(width, routed.width), routed.active
    layers = [blocks[kind] + norms(hidden, 1) for kind in kinds]
    return decoder(
        config, frame, layers, tied=False, intermediate=width, active_experts=active, layer_path="backbone.layers"
    )


def _attention(config: Config, hidden: int) -> Block:
    dim = config.optional_count("head_dim", "attention_head_dim")
    heads = read_heads(config, hidden, default_dim=dim)
    if config.states("sliding_window"):
        config.refuse(f"sliding_window = {config.count('sliding_window')} in this family")
    vectors = qkv_bias(heads) + hidden if config.switch("attention_bias", False) else 0
    return attention(hidden, heads, vectors=vectors)


def _mamba(config: Config) -> Mamba2:
    return Mamba2(
        heads=config.count("mamba_num_heads"),
        dim=config.count("mamba_head_dim"),
        state=config.count("ssm_state_size"),
        groups=config.count("n_groups", "mamba_n_groups"),
        kernel=config.count("conv_kernel", "mamba_d_conv"),
        conv_bias=config.switch("use_conv_bias", True),
        projection_bias=config.switch("mamba_proj_bias", False),
        state_bytes=read_state_bytes(config, "mamba_ssm_cache_dtype"),
    )


def _experts(config: Config) -> Routed:
    experts = config.count("n_routed_experts", "num_local_experts")
    shared = config.whole("n_shared_experts") and config.count("moe_shared_expert_intermediate_size")
    return Routed(
        experts=experts,
        active=read_top_k(config, experts, "num_experts_per_tok"),
        intermediate=config.count("moe_intermediate_size"),
        shared=shared,
        correction=True,
        latent=config.whole("moe_latent_size"),
        matrices=UNGATED,
        path="mixer",
    )


def _kinds(config: Config, layers: int) -> tuple[str, ...]:
    """The pattern's letters, or a list of names."""
    for key in ("layers_block_type", "layer_types"):
        if config.states(key):
            known = (*_NAMES, *_LETTERS.values())
            kinds = layer_kinds(config, layers, known, key)
            return tuple(_NAMES.get(kind, kind) for kind in kinds) or ("mlp",) * layers
    pattern = config.text("hybrid_override_pattern")
    if pattern is None:
        config.missing.append("hybrid_override_pattern or layers_block_type")
        return ("mlp",) * layers
    if len(pattern) != layers or any(letter not in _LETTERS for letter in pattern):
        if not config.spoiled:
            config.faults.add(
                f"{config.where}: hybrid_override_pattern must be {layers} letters of {', '.join(_LETTERS)}"
            )
        return ("mlp",) * layers
    return tuple(_LETTERS[letter] for letter in pattern)
