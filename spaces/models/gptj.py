"""GPT-J: attention and FFN in parallel behind one layer norm; biases in the FFN and on the head only."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Heads, attention_projections, ffn_projections, uniform
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.heads import even_head_dim, read_tie
from kvwall.spaces.models.windows import STATED, read_windows


def gptj(config: Config) -> Architecture:
    """Class defaults: n_inner null is 4*n_embd; the head is not tied and has a bias of vocab width."""
    hidden = config.count("n_embd", "hidden_size")
    query = config.count("n_head", "num_attention_heads")
    layers = config.layer_count("n_layer", "num_hidden_layers")
    vocab = config.count("vocab_size")
    intermediate = config.optional_count("n_inner") or 4 * hidden
    max_positions = config.optional_count("n_positions", "max_position_embeddings")
    heads = Heads(query, query, even_head_dim(config, hidden, query))
    windows = read_windows(config, STATED, layers, max_positions)
    return uniform(
        hidden=hidden,
        intermediate=intermediate,
        vocab=vocab,
        max_positions=max_positions,
        layers=layers,
        windows=windows,
        heads=heads,
        tied_embeddings=read_tie(config, False),
        projections=attention_projections(hidden, heads, "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj")
        + ffn_projections(hidden, intermediate, "mlp.fc_in", "mlp.fc_out"),
        layer_vectors=2 * hidden + intermediate + hidden,
        model_vectors=2 * hidden + vocab,
        reduces_per_layer=1,
        layer_path="transformer.h",
    )
