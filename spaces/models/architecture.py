"""What a family's constructor says about a model: its layers' matrices by tensor class, before weight formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvwall.spaces.models.layers import LayerGroup
from kvwall.spaces.models.stores import attention_store

TensorClass = Literal["query_output", "key_value", "ffn", "router", "expert"]


@dataclass(frozen=True)
class Heads:
    """Attention heads of one layer."""

    query: int
    kv: int
    dim: int
    value_dim: int | None = None
    """Width of a value head where it differs from the key's."""

    @property
    def query_width(self) -> int:
        """Elements of all queries of a token."""
        return self.query * self.dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys of a token."""
        return self.kv * self.dim

    @property
    def value_head(self) -> int:
        """Elements of one value head."""
        return self.dim if self.value_dim is None else self.value_dim

    @property
    def value_width(self) -> int:
        """Elements of all values of a token."""
        return self.kv * self.value_head

    @property
    def output_width(self) -> int:
        """Elements of all heads' outputs of a token."""
        return self.query * self.value_head


@dataclass(frozen=True)
class Projection:
    """One weight matrix of a layer. `module` is its name below the layer in the checkpoint."""

    module: str
    tensor_class: TensorClass
    parameters: int
    copies: int = 1
    """Experts that have such a matrix each."""
    plain: bool = False
    """Stored in the checkpoint's own dtype whatever the weight format: biases that belong to an expert."""

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.parameters * self.copies


@dataclass(frozen=True)
class Block:
    """A layer, or one of its parts: matrices, 1-D parameters, KV stores and all-reduces."""

    projections: tuple[Projection, ...] = ()
    vectors: int = 0
    """1-D parameters: norms, biases, decay rates, convolution kernels."""
    stores: tuple[LayerGroup, ...] = ()
    """KV stores, each for one layer."""
    reduces: int = 1

    def __add__(self, other: Block) -> Block:
        return Block(
            self.projections + other.projections,
            self.vectors + other.vectors,
            self.stores + other.stores,
            self.reduces + other.reduces,
        )


@dataclass(frozen=True)
class Architecture:
    """A decoder, layer by layer."""

    hidden: int
    intermediate: int
    vocab: int
    max_positions: int | None
    layers: tuple[Block, ...]
    tied_embeddings: bool
    model_vectors: int
    """1-D parameters outside the layers: final norm, embedding norm, head bias."""
    position_rows: int = 0
    """Rows of a learned position table."""
    embeds_tokens: bool = True
    """False only for a nominal model without embedding and head tables."""
    layer_path: str = "model.layers"
    active_experts: int = 0
    """Routed experts that one token meets in each layer that has some."""
    layer_embedding_row: int = 0
    """Elements of the per-layer embeddings of one token over all layers."""
    layer_embedding_rows: int = 0
    """Rows of the per-layer embedding tables."""
    model_matrices: tuple[Projection, ...] = ()
    """Matrices outside the layers other than embedding and head; `module` is the full name."""

    def parameters(self, tensor_class: TensorClass) -> int:
        """Parameters of a tensor class over all layers and outside them."""
        matrices = (*self.model_matrices, *(matrix for layer in self.layers for matrix in layer.projections))
        return sum(matrix.elements for matrix in matrices if matrix.tensor_class == tensor_class)


def uniform(
    *,
    hidden: int,
    intermediate: int,
    vocab: int,
    max_positions: int | None,
    layers: int,
    heads: Heads,
    tied_embeddings: bool,
    projections: tuple[Projection, ...],
    layer_vectors: int,
    model_vectors: int,
    reduces_per_layer: int = 2,
    windows: Sequence[int | None] | None = None,
    position_rows: int = 0,
    embeds_tokens: bool = True,
    layer_path: str = "model.layers",
) -> Architecture:
    """A dense decoder: the same matrices in every layer, which may differ in their windows."""
    blocks = tuple(
        Block(projections, layer_vectors, (attention_store(heads, window),), reduces_per_layer)
        for window in windows or [None] * layers
    )
    return Architecture(
        hidden=hidden,
        intermediate=intermediate,
        vocab=vocab,
        max_positions=max_positions,
        layers=blocks,
        tied_embeddings=tied_embeddings,
        model_vectors=model_vectors,
        position_rows=position_rows,
        embeds_tokens=embeds_tokens,
        layer_path=layer_path,
    )


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
        Projection(value, "key_value", hidden * heads.value_width),
        Projection(output, "query_output", heads.output_width * hidden),
    )


def ffn_projections(hidden: int, intermediate: int, *modules: str) -> tuple[Projection, ...]:
    """Matrices between hidden and intermediate: three when gated, else two."""
    return tuple(Projection(module, "ffn", hidden * intermediate) for module in modules)


def qkv_bias(heads: Heads) -> int:
    """Bias elements of the Q, K and V projections."""
    return heads.query_width + heads.kv_width + heads.value_width
