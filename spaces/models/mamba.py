"""Pure state-space models: Mamba, Falcon-Mamba and Mamba 2. No KV cache, no FFN."""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import Frame, decoder, norms, read_frame
from kvwall.spaces.models.state_space import Mamba1, Mamba2, mamba1_block, mamba2_block


def mamba(config: Config) -> Architecture:
    """Class defaults: convolution bias on, no other bias, embeddings tied; time-step rank `auto` is hidden/16."""
    frame = _frame(config)
    rank = -(-frame.hidden // 16)
    if config.value("time_step_rank") not in (None, "auto"):
        rank = config.count("time_step_rank")
    inner = config.optional_count("intermediate_size") or config.count("expand") * frame.hidden
    mixer = Mamba1(
        inner=inner,
        state=config.count("state_size"),
        kernel=config.count("conv_kernel"),
        rank=rank,
        conv_bias=config.switch("use_conv_bias", True),
        projection_bias=config.switch("use_bias", False),
    )
    layer = mamba1_block(frame.hidden, mixer, "mixer") + norms(frame.hidden, 1)
    return decoder(config, frame, [layer] * frame.layers, tied=True, intermediate=inner, layer_path="backbone.layers")


def mamba2(config: Config) -> Architecture:
    """Class defaults: convolution bias on, no other bias, head not tied."""
    frame = _frame(config)
    mixer = Mamba2(
        heads=config.count("num_heads"),
        dim=config.count("head_dim"),
        state=config.count("state_size"),
        groups=config.count("n_groups"),
        kernel=config.count("conv_kernel"),
        conv_bias=config.switch("use_conv_bias", True),
        projection_bias=config.switch("use_bias", False),
    )
    inner = mixer.heads * mixer.dim
    if inner != config.count("expand") * frame.hidden and not config.spoiled:
        config.faults.add(f"{config.where}: num_heads * head_dim = {inner} must be expand * hidden_size")
    layer = mamba2_block(frame.hidden, mixer, "mixer") + norms(frame.hidden, 1)
    return decoder(config, frame, [layer] * frame.layers, tied=False, intermediate=inner, layer_path="backbone.layers")


def _frame(config: Config) -> Frame:
    """A state has no limit of positions."""
    return replace(read_frame(config), max_positions=None)
