"""State-space mixers: Mamba 1 and Mamba 2, each with a fixed state and the tail of a short convolution."""

from __future__ import annotations

from dataclasses import dataclass

from kvwall.spaces.models.architecture import Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.stores import STATE_BYTES, recurrent_store

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Mamba1:
    """`inner` channels, each with a state of its own."""

    inner: int
    state: int
    kernel: int
    rank: int
    """Width that the time steps are projected from."""
    conv_bias: bool = True
    projection_bias: bool = False
    inner_norms: bool = False
    """Norms on time step, B and C (Jamba)."""


def mamba1_block(hidden: int, mamba: Mamba1, path: str = "mamba") -> Block:
    """One Mamba 1 mixer; norms of hidden width are the caller's."""
    inner, state, rank = mamba.inner, mamba.state, mamba.rank
    matrices = (
        Projection(f"{path}.in_proj", "query_output", hidden * 2 * inner),
        Projection(f"{path}.x_proj", "query_output", inner * (rank + 2 * state)),
        Projection(f"{path}.dt_proj", "query_output", rank * inner),
        Projection(f"{path}.out_proj", "query_output", inner * hidden),
    )
    vectors = inner * state + inner + inner * mamba.kernel + inner * mamba.conv_bias + inner
    vectors += (2 * inner + hidden) * mamba.projection_bias + (rank + 2 * state) * mamba.inner_norms
    return Block(matrices, vectors, (recurrent_store(inner, inner * state, inner, mamba.kernel - 1),))


@dataclass(frozen=True)
class Mamba2:
    """Heads with a state of `dim` x `state` each; B and C are shared within a group."""

    heads: int
    dim: int
    state: int
    groups: int
    kernel: int
    conv_bias: bool = True
    projection_bias: bool = False
    gated_norm: bool = True
    state_bytes: int | None = None
    """Of an element; None where the model does not say."""


def mamba2_block(hidden: int, mamba: Mamba2, path: str = "mamba") -> Block:
    """One Mamba 2 mixer; norms of hidden width are the caller's."""
    inner = mamba.heads * mamba.dim
    channels = inner + 2 * mamba.groups * mamba.state
    entering = inner + channels + mamba.heads
    matrices = (
        Projection(f"{path}.in_proj", "query_output", hidden * entering),
        Projection(f"{path}.out_proj", "query_output", inner * hidden),
    )
    vectors = 3 * mamba.heads + channels * mamba.kernel + channels * mamba.conv_bias + inner * mamba.gated_norm
    vectors += (entering + hidden) * mamba.projection_bias
    store = recurrent_store(mamba.heads, inner * mamba.state, channels, mamba.kernel - 1, mamba.state_bytes)
    return Block(matrices, vectors, (store,))


def read_state_bytes(config: Config, *keys: str) -> int | None:
    """Bytes of a state element where one of `keys` names its dtype."""
    for key in keys:
        name = config.text(key)
        if name is not None:
            if name not in _DTYPE_BYTES:
                config.faults.add(
                    f"{config.where}: {key} '{name}' is not known: supported are {', '.join(_DTYPE_BYTES)}"
                )
            return _DTYPE_BYTES.get(name, STATE_BYTES)
    return None
