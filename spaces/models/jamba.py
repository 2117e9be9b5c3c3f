"""Jamba: Mamba 1 with a few full-attention layers, experts in every second layer."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import Routed, dense_block, moe_block, read_top_k
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.state_space import Mamba1, mamba1_block


def jamba(config: Config) -> Architecture:
    """Class defaults: convolution bias on, projection bias off, head not tied; time-step rank `auto` is hidden/16."""
    frame = read_frame(config)
    hidden = frame.hidden
    heads = read_heads(config, hidden)
    full, mamba = attention(hidden, heads), mamba1_block(hidden, _mamba(config, hidden))
    intermediate = config.count("intermediate_size")
    experts = config.count("num_experts", "num_local_experts")
    dense = dense_block(hidden, intermediate, path="feed_forward")
    if experts > 1:
        active = read_top_k(config, experts, "num_experts_per_tok")
        moe = moe_block(hidden, Routed(experts, active, intermediate, path="feed_forward", router="router"))
    else:
        active, moe = 0, dense
    attends = _layers(config, frame.layers, "attn_layer")
    routes = _layers(config, frame.layers, "expert_layer")
    layers = [
        (full if attend else mamba) + (moe if route else dense) + norms(hidden)
        for attend, route in zip(attends, routes, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=max(1, active) * intermediate, active_experts=active)


def _mamba(config: Config, hidden: int) -> Mamba1:
    rank = -(-hidden // 16)
    if config.value("mamba_dt_rank") not in (None, "auto"):
        rank = config.count("mamba_dt_rank")
    return Mamba1(
        inner=config.count("mamba_expand") * hidden,
        state=config.count("mamba_d_state"),
        kernel=config.count("mamba_d_conv"),
        rank=rank,
        conv_bias=config.switch("mamba_conv_bias", True),
        projection_bias=config.switch("mamba_proj_bias", False),
        inner_norms=True,
    )


def _layers(config: Config, layers: int, name: str) -> tuple[bool, ...]:
    """Every `period`-th layer, counted from `offset`; both are stated."""
    period = config.count(f"{name}_period")
    if not config.states(f"{name}_offset"):
        config.missing.append(f"{name}_offset")
    offset = config.whole(f"{name}_offset")
    if offset >= period and not config.spoiled:
        config.faults.add(f"{config.where}: {name}_offset = {offset} must be below {name}_period = {period}")
    return tuple(layer % period == offset for layer in range(layers))
