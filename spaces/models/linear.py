"""Linear attention: gated delta nets, Kimi delta attention and lightning attention, each with a fixed state."""

from __future__ import annotations

from dataclasses import dataclass

from kvwall.spaces.models.architecture import Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.stores import STATE_BYTES, recurrent_store


@dataclass(frozen=True)
class DeltaNet:
    """Heads of a gated delta net and the length of its short convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def keys(self) -> int:
        """Elements of all keys of a token."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Elements of all values of a token."""
        return self.value_heads * self.value_dim


def read_delta_net(config: Config) -> DeltaNet:
    """The `linear_*` keys of Qwen3-Next and its successors."""
    return DeltaNet(
        key_heads=config.count("linear_num_key_heads"),
        value_heads=config.count("linear_num_value_heads"),
        key_dim=config.count("linear_key_head_dim"),
        value_dim=config.count("linear_value_head_dim"),
        kernel=config.count("linear_conv_kernel_dim"),
    )


def delta_block(hidden: int, net: DeltaNet, state_bytes: int | None = None) -> Block:
    """A gated delta net: Q, K, V through a short convolution, a gate, and two numbers per head."""
    channels = 2 * net.keys + net.values
    path = "linear_attn."
    matrices = (
        Projection(path + "in_proj_qkv", "query_output", hidden * channels),
        Projection(path + "in_proj_z", "query_output", hidden * net.values),
        Projection(path + "in_proj_ba", "query_output", hidden * 2 * net.value_heads),
        Projection(path + "out_proj", "query_output", net.values * hidden),
    )
    vectors = channels * net.kernel + 2 * net.value_heads + net.value_dim
    state = net.value_heads * net.key_dim * net.value_dim
    store = recurrent_store(net.value_heads, state, channels, net.kernel - 1, state_bytes)
    return Block(matrices, vectors, (store,))


@dataclass(frozen=True)
class KimiDelta:
    """Kimi delta attention: as many key as value heads, decay per key element."""

    heads: int
    dim: int
    kernel: int
    decay_rank: int
    """Rank of the decay's projection; 0: one whole matrix."""
    gate_rank: int
    """Likewise of the output gate's."""


def kimi_delta_block(hidden: int, net: KimiDelta) -> Block:
    """Q, K, V through a short convolution, a decay per key element, an output gate, one number per head."""
    width = net.heads * net.dim
    path = "self_attn."
    matrices = [Projection(path + name, "query_output", hidden * width) for name in ("q_proj", "k_proj", "v_proj")]
    matrices.append(Projection(path + "o_proj", "query_output", width * hidden))
    matrices.append(Projection(path + "b_proj", "query_output", hidden * net.heads))
    for name, rank in (("f", net.decay_rank), ("g", net.gate_rank)):
        if rank:
            matrices.append(Projection(f"{path}{name}_a_proj", "query_output", hidden * rank))
            matrices.append(Projection(f"{path}{name}_b_proj", "query_output", rank * width))
        else:
            matrices.append(Projection(f"{path}{name}_proj", "query_output", hidden * width))
    vectors = 3 * width * net.kernel + width + net.heads + net.dim
    store = recurrent_store(net.heads, net.heads * net.dim * net.dim, 3 * width, net.kernel - 1, STATE_BYTES)
    return Block(tuple(matrices), vectors, (store,))


def lightning_block(hidden: int, heads: int, dim: int) -> Block:
    """Lightning attention: fused Q, K, V, an output gate and a norm; no convolution."""
    width = heads * dim
    path = "self_attn."
    matrices = (
        Projection(path + "qkv_proj", "query_output", hidden * 3 * width),
        Projection(path + "output_gate", "query_output", hidden * width),
        Projection(path + "out_proj", "query_output", width * hidden),
    )
    return Block(matrices, width, (recurrent_store(heads, heads * dim * dim),))
