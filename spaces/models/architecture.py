"""What a family's constructor says about a model: its matrices by tensor class, before weight formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvwall.spaces.models.config import Config

TensorClass = Literal["query_output", "key_value", "ffn"]


@dataclass(frozen=True)
class Heads:
    """Attention heads of one layer."""

    query: int
    kv: int
    dim: int

    @property
    def query_width(self) -> int:
        """Elements of all queries of a token."""
        return self.query * self.dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys (or all values) of a token."""
        return self.kv * self.dim


@dataclass(frozen=True)
class Projection:
    """One weight matrix of every layer. `module` is its name below the layer in the checkpoint."""

    module: str
    tensor_class: TensorClass
    parameters: int


@dataclass(frozen=True)
class Architecture:
    """A dense decoder: the same block `layers` times."""

    hidden: int
    intermediate: int
    vocab: int
    max_positions: int | None
    layers: int
    heads: Heads
    tied_embeddings: bool
    projections: tuple[Projection, ...]
    layer_vectors: int
    """1-D parameters of one layer: norms and biases."""
    model_vectors: int
    """1-D parameters outside the layers: final norm, embedding norm, head bias."""
    reduces_per_layer: int = 2
    position_rows: int = 0
    """Rows of a learned position table."""
    embeds_tokens: bool = True
    """False only for a nominal model without embedding and head tables."""
    layer_path: str = "model.layers"

    def parameters(self, tensor_class: TensorClass) -> int:
        """Parameters of a tensor class over all layers."""
        return self.layers * sum(p.parameters for p in self.projections if p.tensor_class == tensor_class)


def attention_projections(
    hidden: int,
    heads: Heads,
    query: str = "self_attn.q_proj",
    key: str = "self_attn.k_proj",
    value: str = "self_attn.v_proj",
    output: str = "self_attn.o_proj",
) -> tuple[Projection, ...]:
    """Q, K, V and output matrices; a fused matrix repeats its module name."""
    return (
        Projection(query, "query_output", hidden * heads.query_width),
        Projection(key, "key_value", hidden * heads.kv_width),
        Projection(value, "key_value", hidden * heads.kv_width),
        Projection(output, "query_output", heads.query_width * hidden),
    )


def ffn_projections(hidden: int, intermediate: int, *modules: str) -> tuple[Projection, ...]:
    """Matrices between hidden and intermediate: three when gated, else two."""
    return tuple(Projection(module, "ffn", hidden * intermediate) for module in modules)


def qkv_bias(heads: Heads) -> int:
    """Bias elements of the Q, K and V projections."""
    return heads.query_width + 2 * heads.kv_width


def read_heads(
    config: Config,
    hidden: int,
    *,
    absent_kv_is_mha: bool = False,
    default_dim: int | None = None,
) -> Heads:
    """Query heads, KV heads and head dimension under their usual key names.

    hidden/heads is the head dimension only where the config states none and the class has no own
    default (`default_dim`). `absent_kv_is_mha`: the class reads an absent KV-head count as one KV
    head per query head; where its default is a number instead, the key is necessary (a null always
    means one per query head). Faults are recorded in the config.
    """
    query = config.count("num_attention_heads")
    stated_null = "num_key_value_heads" in config.values and not config.states("num_key_value_heads")
    if absent_kv_is_mha or stated_null:
        kv = config.count("num_key_value_heads", default=query, meaning="(one per query head, MHA)")
    else:
        kv = config.count("num_key_value_heads")
    if config.states("head_dim") or default_dim is not None:
        dim = config.count("head_dim", default=default_dim)
    else:
        dim = even_head_dim(config, hidden, query)
    require_even_groups(config, query, kv, "num_key_value_heads")
    return Heads(query, kv, dim)


def require_even_groups(config: Config, query: int, kv: int, key: str) -> None:
    """Record a fault unless each KV head serves the same number of query heads."""
    if query % kv and not (query == 1 and config.spoiled):  # a 1 may stand in for a head count that is missing
        config.faults.add(f"{config.where}: {key} = {kv} must divide the {query} attention heads")


def read_tie(config: Config, default: bool) -> bool:
    """Whether the head is the embedding; an unstated tie takes the class default and leaves a flag."""
    if not config.states("tie_word_embeddings"):
        config.flags.append(f"tie_word_embeddings not stated: class default {str(default).lower()}")
    return config.switch("tie_word_embeddings", default)


def even_head_dim(config: Config, hidden: int, query: int) -> int:
    """hidden/heads, for families that define it so; an uneven split is a fault of the config."""
    if hidden % query and not (hidden == 1 and config.spoiled):  # a 1 may stand in for a missing width
        config.faults.add(
            f"{config.where}: hidden size {hidden} is not a multiple of {query} heads and no head_dim is stated"
        )
    return max(1, hidden // query)
