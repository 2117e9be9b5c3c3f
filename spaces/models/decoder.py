"""A decoder whose layers differ: what a config states for all of it, and one layer after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection, attention_projections
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_tie
from kvwall.spaces.models.layers import LayerGroup
from kvwall.spaces.models.stores import attention_store


@dataclass(frozen=True)
class Frame:
    """Hidden width, vocabulary, depth and context of a decoder, under their usual key names."""

    hidden: int
    vocab: int
    layers: int
    max_positions: int | None


def read_frame(config: Config, vocab: int | None = None) -> Frame:
    """The frame; `vocab` is the class default where the key may be absent."""
    return Frame(
        hidden=config.count("hidden_size"),
        vocab=config.count("vocab_size", default=vocab),
        layers=config.layer_count("num_hidden_layers", "num_layers"),
        max_positions=config.optional_count("max_position_embeddings", "model_max_length"),
    )


def decoder(
    config: Config,
    frame: Frame,
    layers: Iterable[Block],
    *,
    tied: bool,
    intermediate: int,
    active_experts: int = 0,
    model_vectors: int | None = None,
    model_matrices: tuple[Projection, ...] = (),
    layer_path: str = "model.layers",
) -> Architecture:
    """The architecture of `layers`; `tied` is the class default, model_vectors one final RMS norm unless given."""
    return Architecture(
        hidden=frame.hidden,
        intermediate=intermediate,
        vocab=frame.vocab,
        max_positions=frame.max_positions,
        layers=tuple(layers),
        tied_embeddings=read_tie(config, tied),
        model_vectors=frame.hidden if model_vectors is None else model_vectors,
        active_experts=active_experts,
        model_matrices=model_matrices,
        layer_path=layer_path,
    )


def attention(hidden: int, heads: Heads, window: int | None = None, *, vectors: int = 0, readers: int = 1) -> Block:
    """Grouped-query attention of one layer with its KV store; `vectors` are its norms and biases."""
    store: LayerGroup = attention_store(heads, window, readers=readers)
    return Block(attention_projections(hidden, heads), vectors, (store,))


def norms(hidden: int, count: int = 2) -> Block:
    """RMS norms of hidden width."""
    return Block(vectors=count * hidden, reduces=0)
