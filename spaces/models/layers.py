"""What a language model is, in numbers: layer groups that hold KV, and parameters by tensor class.

The records carry no behaviour beyond sums; how a `config.json` becomes one is each family's file.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Kind = Literal["full", "window", "chunked", "latent", "sparse", "compressed", "recurrent"]

_BYTES_PER_ELEMENT = 2
"""The cache at 16 bits, which the properties below are stated at."""


@dataclass(frozen=True)
class LayerGroup:
    """KV stores that are kept and read alike. Heads and dims are per store; one *entry* is `stride` tokens.

    A layer may own two stores (a window and a compressed one), then it is counted in two groups.
    """

    layers: int
    """Stores of this kind."""
    query_heads: int
    kv_heads: int
    """Heads that tensor parallelism divides; 1 for latents, which every device holds whole."""
    key_dim: int
    """Stored elements per KV head and entry, at key_bits. MLA: kv_lora_rank."""
    value_dim: int
    """Stored elements per KV head and entry, at value_bits. MLA: 0, values are the latents."""
    score_dim: int = 0
    """Attention takes 2*query_heads*(score_dim + mix_dim) FLOP per entry read.
    GQA: key_dim; MLA: kv_lora_rank + rope."""
    mix_dim: int = 0
    """GQA: value_dim; MLA: kv_lora_rank."""
    prefill_dim: int = 0
    """Score and mix elements of a pair of tokens in prefill, where they are fewer than a decode step's: MLA
    multiplies whole heads there, not latents. 0 = score_dim + mix_dim."""
    rope_dim: int = 0
    """Stored elements per entry that stay at 16 bits: MLA's qk_rope_head_dim."""
    window: int | None = None
    """Tokens kept; None keeps all."""
    chunked: bool = False
    """The window restarts every `window` tokens instead of sliding."""
    stride: int = 1
    """Tokens per stored entry."""
    top_k: int | None = None
    """Entries a step reads, chosen by an index over all of them; None reads all."""
    index_dim: int = 0
    """Elements of the sparse index per entry, at 16 bits; 0 where another store's index is used."""
    index_heads: int = 0
    state_bytes: int = 0
    """Fixed bytes per sequence and store: recurrent state and the tail of the short convolution."""
    state_elements: int = 0
    """Elements of the recurrent state alone; `state_bytes` counts them at 32 bits unless the model says otherwise."""
    state_stated: bool = False
    """Whether the model says in what precision its state is kept; engines keep one that does not in its dtype."""
    convolution_elements: int = 0
    """Elements of one token's inputs to the short convolution, at 16 bits; `convolution_taps` of them are kept."""
    convolution_taps: int = 0
    readers: int = 1
    """Layers that read each store."""
    kind: Kind = "full"
    evictable: bool = True
    """Whether token eviction applies: stores of full attention and latents that grow with the context."""

    @property
    def grows(self) -> bool:
        """Whether each token adds to the store for ever."""
        return self.window is None and self.kind != "recurrent"

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes one token adds over all stores of the group while they grow, at 16 bits per element."""
        entry = self.kv_heads * (self.key_dim + self.value_dim) + self.rope_dim + self.index_dim
        return Fraction(self.layers * entry * _BYTES_PER_ELEMENT, self.stride)


@dataclass(frozen=True)
class Experts:
    """Routed experts; shared ones and leading dense layers are in a model's `ffn`."""

    layers: int
    experts: int
    """Routed experts of each layer."""
    active: int
    """Experts one token meets in each layer."""
    elements_per_expert: int
    bits: float
    payload_bits: int

    @property
    def elements(self) -> int:
        """Elements of all experts of all layers."""
        return self.layers * self.experts * self.elements_per_expert


@dataclass(frozen=True)
class Model:
    """One checkpoint: shape, parameters counted from the architecture, and its own weight formats.

    Parameter classes are disjoint. `query_output` are the mixers' matrices that tensor parallelism
    divides by n, linear and state-space mixers included; `key_value` those that follow the KV heads:
    K and V, and the down-projections to latents and the index, which every device holds whole.
    `head` is the LM head matrix; when tied it is the embedding used as a head, counted here once, and
    `embedding` then holds learned positions only.
    `*_bits` are stored bits per weight, quantization scales and zero-points included;
    `*_payload_bits` are the bits of most of the class's weights without them: what the multiplier sees.
    """

    name: str
    model_type: str
    source: str
    hidden: int
    intermediate: int
    """Widest FFN activation of a token: with experts, those one token meets together."""
    vocab: int
    max_positions: int | None
    """Context the checkpoint states; None when it states none (ALiBi) or the limit is lifted."""
    decoder_layers: int
    groups: tuple[LayerGroup, ...]
    reduces_per_layer: float
    """All-reduces per decoder layer under tensor parallelism: 2, or 1 where attention and FFN run in
    parallel or a layer is one of the two; a mean where layers differ."""
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

    router: int = 0
    """Routers of the experts, streamed whole by every step."""
    router_bits: float = 16
    router_payload_bits: int = 16
    experts: Experts | None = None
    layer_embedding: int = 0
    """Tables of per-layer input embeddings (Gemma 3n, Gemma 4 E): a row of each is looked up per token."""

    flags: tuple[str, ...] = ()

    @property
    def parameters_total(self) -> int:
        """Parameters of the language model; vision and audio towers and draft (MTP) layers are not in it."""
        dense = self.query_output + self.key_value + self.ffn + self.router + self.head + self.vectors
        routed = self.experts.elements if self.experts else 0
        return dense + routed + self.embedding + self.layer_embedding

    @property
    def parameters_active(self) -> int:
        """Parameters one token meets: embedding and head included, per-layer embeddings not."""
        idle = self.layer_embedding
        if self.experts:
            idle += self.experts.elements * (self.experts.experts - self.experts.active) // self.experts.experts
        return self.parameters_total - idle

    @property
    def weight_payload_bits(self) -> int:
        """Bits, without scales, that most of the streamed weights have."""
        classes = [
            (getattr(self, name), getattr(self, f"{name}_payload_bits"))
            for name in ("query_output", "key_value", "ffn", "head")
        ]
        if self.experts:
            classes.append((self.experts.elements, self.experts.payload_bits))
        elements: dict[int, int] = {}
        for count, bits in classes:
            elements[bits] = elements.get(bits, 0) + count
        return max(elements, key=elements.__getitem__)

    @property
    def kv_bytes_per_token_growing(self) -> float:
        """Bytes each token adds for ever, at 16 bits per element: stores without a window. Whole where it is whole."""
        return _number(sum((group.bytes_per_token for group in self.groups if group.grows), Fraction()))

    @property
    def kv_bytes_per_token_all_layers(self) -> float:
        """Bytes the first tokens add, at 16 bits per element: windows not yet full count as well."""
        return _number(sum((group.bytes_per_token for group in self.groups), Fraction()))

    @property
    def state_bytes_per_sequence(self) -> int:
        """Bytes of recurrent and convolution state of one sequence, whatever its length."""
        return sum(group.layers * group.state_bytes for group in self.groups)


def _number(exact: Fraction) -> float:
    return exact.numerator if exact.denominator == 1 else float(exact)
