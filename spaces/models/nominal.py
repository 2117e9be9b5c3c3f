"""A model known by its size and KV shape only: all parameters in one class, no tables."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Projection, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import read_heads

LARGEST_NOMINAL = 10**15


def nominal(config: Config) -> Architecture:
    """`parameters` are streamed every step, as the FFN class; no embedding rows, no head, no norms.

    The context limit is lifted; intermediate_size and vocab_size size activations and logits.
    """
    hidden = config.count("hidden_size")
    layers = config.layer_count("num_hidden_layers")
    parameters = config.count("parameters", most=LARGEST_NOMINAL)
    if parameters % layers:
        config.faults.add(f"{config.where}: parameters = {parameters} must be a multiple of {layers} layers")
    return uniform(
        hidden=hidden,
        intermediate=config.count("intermediate_size"),
        vocab=config.count("vocab_size"),
        max_positions=None,
        layers=layers,
        heads=read_heads(config, hidden),
        tied_embeddings=False,
        projections=(Projection("all", "ffn", parameters // layers),),
        layer_vectors=0,
        model_vectors=0,
        embeds_tokens=False,
    )
