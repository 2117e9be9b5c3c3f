"""What a language model is, in numbers: layer groups that hold KV, and parameters by tensor class.

The records carry no behaviour beyond sums; how a `config.json` becomes one is each family's file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep and read KV alike. Heads and dims are per layer."""

    layers: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    kind: Literal["full"] = "full"

    @property
    def kv_elements_per_token(self) -> int:
        """Stored K and V elements of one token over all layers of the group."""
        return self.layers * self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class Model:
    """One checkpoint: shape, parameters counted from the architecture, and its own weight formats.

    Parameter classes are disjoint. `head` is the LM head matrix; when tied it is the embedding used
    as a head, counted here once, and `embedding` then holds learned positions only.
    `*_bits` are stored bits per weight, quantization scales and zero-points included;
    `*_payload_bits` are the bits of most of the class's weights without them: what the multiplier sees.
    """

    name: str
    model_type: str
    source: str
    hidden: int
    intermediate: int
    vocab: int
    max_positions: int | None
    """Context the checkpoint states; None when it states none (ALiBi) or the limit is lifted."""
    groups: tuple[LayerGroup, ...]
    reduces_per_layer: int
    """All-reduces per layer under tensor parallelism: 2, or 1 where attention and FFN run in parallel."""
    tied_embeddings: bool
    embedding_row: int
    """Elements read from the input tables per token: hidden, twice with learned positions, 0 nominal."""

    query_output: int
    key_value: int
    ffn: int
    head: int
    embedding: int
    vectors: int

    query_output_bits: float
    key_value_bits: float
    ffn_bits: float
    head_bits: float
    embedding_bits: float
    vector_bits: float

    query_output_payload_bits: int
    key_value_payload_bits: int
    ffn_payload_bits: int
    head_payload_bits: int

    flags: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """Decoder layers over all groups."""
        return sum(group.layers for group in self.groups)

    @property
    def parameters_total(self) -> int:
        """Parameters of the language model; vision and audio towers are not in it."""
        return self.query_output + self.key_value + self.ffn + self.head + self.embedding + self.vectors

    @property
    def parameters_active(self) -> int:
        """Parameters one token meets, embedding and head included: all of them in a dense model."""
        return self.parameters_total

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V one token adds over all layers, at 16 bits per element."""
        return 2 * sum(group.kv_elements_per_token for group in self.groups)
