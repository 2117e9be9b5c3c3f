"""Kimi Linear, Kimi K3 and Ling 3: Kimi delta attention with MLA layers between, experts after dense layers."""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture, Block
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import Frame, decoder, norms, read_frame
from kvwall.spaces.models.hybrid import LINEAR_NAMES, mixer_kinds
from kvwall.spaces.models.latent import Latent, latent_block, read_latent
from kvwall.spaces.models.linear import KimiDelta, kimi_delta_block
from kvwall.spaces.models.moe import MoERule, first_dense, read_moe

_EXPERTS = MoERule(
    ("num_experts", "num_local_experts"),
    ("num_experts_per_token", "num_experts_per_tok"),
    shared_count=("num_shared_experts", "n_shared_experts"),
    shared_default=1,
    correction=True,
    sparse=first_dense(default=1),
    latent_width="routed_expert_hidden_size",
    latent_norm="latent_moe_use_norm",
)


def kimi_linear(config: Config) -> Architecture:
    """Delta heads sit in `linear_attn_config`, with the layers of either kind counted from 1.

    K3 adds latent experts, gates of whole matrices and residuals that attend over earlier blocks of
    layers: a score and a norm of hidden width before each half of a layer, and at the end.
    """
    frame = read_frame(config)
    net = config.section("linear_attn_config") if config.states("linear_attn_config") else config
    dim = net.count("head_dim" if net is not config else "linear_head_dim")
    delta = KimiDelta(
        heads=net.count("num_heads", "linear_num_heads"),
        dim=dim,
        kernel=net.count("short_conv_kernel_size", "linear_conv_kernel_dim"),
        decay_rank=dim,
        gate_rank=0 if net.switch("use_full_rank_gate", False) else dim,
    )
    mla = read_latent(config)
    gate = mla.heads * mla.value if config.switch("mla_use_output_gate", False) else 0
    architecture = _hybrid(config, frame, delta, replace(mla, gate=gate), _kimi_layers(config, net, frame.layers))
    if not config.states("attn_res_block_size"):
        return architecture
    residual = Block(vectors=4 * frame.hidden, reduces=0)
    return replace(
        architecture,
        layers=tuple(layer + residual for layer in architecture.layers),
        model_vectors=architecture.model_vectors + 2 * frame.hidden,
    )


def bailing_hybrid(config: Config) -> Architecture:
    """Ling 3: delta heads as query heads, gates of whole matrices, MLA closes each `layer_group_size` layers."""
    frame = read_frame(config)
    delta = KimiDelta(
        heads=config.count("num_attention_heads"),
        dim=config.count("head_dim"),
        kernel=config.count("short_conv_kernel_size", "linear_conv_kernel_dim"),
        decay_rank=0,
        gate_rank=0,
    )
    kinds = mixer_kinds(config, frame.layers, full_every="layer_group_size")
    linear = tuple(kind in LINEAR_NAMES for kind in kinds)
    mla = read_latent(config)
    return _hybrid(config, frame, delta, replace(mla, gate=mla.heads), linear)


def _hybrid(config: Config, frame: Frame, delta: KimiDelta, mla: Latent, linear: tuple[bool, ...]) -> Architecture:
    full = latent_block(frame.hidden, mla)
    fixed = kimi_delta_block(frame.hidden, delta)
    ffns = read_moe(config, _EXPERTS, frame.hidden, frame.layers)
    layers = [
        (fixed if is_linear else full) + ffn + norms(frame.hidden)
        for is_linear, ffn in zip(linear, ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _kimi_layers(config: Config, net: Config, layers: int) -> tuple[bool, ...]:
    if config.states("layer_types"):
        return tuple(kind in LINEAR_NAMES for kind in mixer_kinds(config, layers))
    linear, full = set(net.whole_numbers("kda_layers")), set(net.whole_numbers("full_attn_layers"))
    if linear | full != set(range(1, layers + 1)) or linear & full:
        if not config.spoiled:
            net.faults.add(f"{net.where}: kda_layers and full_attn_layers must share out layers 1 to {layers}")
        return (False,) * layers
    return tuple(layer in linear for layer in range(1, layers + 1))
