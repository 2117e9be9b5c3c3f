"""Mamba 2 beside attention: Granite 4 and Bamba alternate them, Falcon-H1 has both in every layer."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Heads, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import Routed, dense_block, moe_block, read_top_k
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.hybrid import LINEAR_NAMES, mixer_kinds
from kvwall.spaces.models.state_space import Mamba2, mamba2_block

_MAMBA2_HEAD = 64


def granite_hybrid(config: Config) -> Architecture:
    """Class defaults: one group of B and C, KV heads absent is MHA; heads of 64 where a file states neither number."""
    frame = read_frame(config)
    hidden = frame.hidden
    full, mamba = _attention(config, hidden), mamba2_block(hidden, _read_mamba(config, hidden))
    ffn, width, active = _granite_ffn(config, hidden)
    kinds = mixer_kinds(config, frame.layers)
    layers = [(mamba if kind in LINEAR_NAMES else full) + ffn + norms(hidden) for kind in kinds]
    return decoder(config, frame, layers, tied=False, intermediate=width, active_experts=active)


def bamba(config: Config) -> Architecture:
    """`attn_layer_indices` lists the layers that attend; none stated means none."""
    frame = read_frame(config)
    hidden = frame.hidden
    full, mamba = _attention(config, hidden), mamba2_block(hidden, _read_mamba(config, hidden))
    intermediate = config.count("intermediate_size")
    ffn = _dense(config, hidden, intermediate)
    attends = set(config.whole_numbers("attn_layer_indices"))
    if not config.states("attn_layer_indices"):
        config.missing.append("attn_layer_indices")
    layers = [(full if layer in attends else mamba) + ffn + norms(hidden) for layer in range(frame.layers)]
    return decoder(config, frame, layers, tied=False, intermediate=intermediate)


def falcon_h1(config: Config) -> Architecture:
    """Attention and a Mamba 2 mixer of width `mamba_d_ssm` side by side in every layer, with one sum at their end."""
    frame = read_frame(config)
    hidden = frame.hidden
    intermediate = config.count("intermediate_size")
    mamba = _read_mamba(config, hidden, gated_norm=config.switch("mamba_rms_norm", False))
    both = _attention(config, hidden) + mamba2_block(hidden, mamba) + Block(reduces=-1)
    layer = both + _dense(config, hidden, intermediate) + norms(hidden)
    return decoder(config, frame, [layer] * frame.layers, tied=False, intermediate=intermediate)


def _attention(config: Config, hidden: int) -> Block:
    heads: Heads = read_heads(config, hidden, absent_kv_is_mha=True)
    vectors = qkv_bias(heads) + hidden if config.switch("attention_bias", False) else 0
    return attention(hidden, heads, vectors=vectors)


def _dense(config: Config, hidden: int, intermediate: int) -> Block:
    ffn = dense_block(hidden, intermediate, path="feed_forward")
    if config.switch("mlp_bias", False):
        ffn += Block(vectors=2 * intermediate + hidden, reduces=0)
    return ffn


def _granite_ffn(config: Config, hidden: int) -> tuple[Block, int, int]:
    """Experts with a shared one, or, with no experts, the shared one alone."""
    experts, shared = config.whole("num_local_experts"), config.count("shared_intermediate_size")
    if not config.states("num_local_experts"):
        config.missing.append("num_local_experts")
    if not experts:
        return dense_block(hidden, shared, path="shared_mlp"), shared, 0
    routed = Routed(
        experts=experts,
        active=read_top_k(config, experts, "num_experts_per_tok"),
        intermediate=config.count("intermediate_size"),
        shared=shared,
        path="block_sparse_moe",
        router="router",
        expert_path="input_linear",
        shared_path="shared_mlp",
    )
    return moe_block(hidden, routed), routed.width, routed.active


def _read_mamba(config: Config, hidden: int, *, gated_norm: bool = True) -> Mamba2:
    inner = config.optional_count("mamba_d_ssm") or config.count("mamba_expand") * hidden
    stated_dim = config.optional_count("mamba_d_head") if config.value("mamba_d_head") != "auto" else None
    heads = config.optional_count("mamba_n_heads")
    if heads is None:
        dim = stated_dim if stated_dim else config.count("mamba_d_head", default=_MAMBA2_HEAD, meaning="")
        heads = max(1, inner // dim)
    dim = stated_dim or max(1, inner // heads)
    if heads * dim != inner and not config.spoiled:
        config.faults.add(f"{config.where}: mamba_n_heads {heads} * mamba_d_head {dim} must be the inner width {inner}")
    return Mamba2(
        heads=heads,
        dim=dim,
        state=config.count("mamba_d_state"),
        groups=config.count("mamba_n_groups", default=1),
        kernel=config.count("mamba_d_conv"),
        conv_bias=config.switch("mamba_conv_bias", True),
        projection_bias=config.switch("mamba_proj_bias", False),
        gated_norm=gated_norm,
    )
