"""Gemma 3n: four residual streams (AltUp), a low-rank detour (Laurel), per-layer embeddings, shared KV."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Projection
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.per_layer import (
    per_layer_block,
    read_per_layer,
    readers,
    shared_attention,
    with_per_layer,
)
from kvwall.spaces.models.windows import FULL, SLIDING, layer_kinds


def gemma3n(config: Config) -> Architecture:
    """Class defaults: every fifth layer in full, a window of 512, heads of 256, embeddings tied."""
    frame = read_frame(config)
    hidden = frame.hidden
    kinds = layer_kinds(config, frame.layers, (FULL, SLIDING))
    if not kinds:
        kinds = tuple(SLIDING if (layer + 1) % 5 else FULL for layer in range(frame.layers))
    heads = read_heads(config, hidden, default_dim=256)
    window = config.count("sliding_window", default=512)
    per_layer = read_per_layer(config)
    streams, rank = config.count("altup_num_inputs"), config.count("laurel_rank")
    widths = _widths(config, frame.layers)
    around = norms(hidden, 4) + _altup(hidden, streams) + _laurel(hidden, rank) + per_layer_block(hidden, per_layer)
    bias = config.switch("attention_bias", False)
    layers = [
        shared_attention(hidden, heads, None if kind == FULL else window, count, bias)
        + dense_block(hidden, width)
        + around
        for kind, count, width in zip(kinds, readers(config, kinds), widths, strict=True)
    ]
    extra = tuple(
        Projection(f"model.{name}.{stream}", "ffn", hidden * hidden)
        for name in ("altup_projections", "altup_unembed_projections")
        for stream in range(streams - 1)
    )
    architecture = decoder(config, frame, layers, tied=True, intermediate=max(widths), model_matrices=extra)
    return with_per_layer(architecture, per_layer)


def _widths(config: Config, layers: int) -> tuple[int, ...]:
    """The FFN's width, one for all layers or one per layer."""
    if not isinstance(config.value("intermediate_size"), list):
        return (config.count("intermediate_size"),) * layers
    widths = config.whole_numbers("intermediate_size")
    if len(widths) != layers or 0 in widths:
        if not config.spoiled:
            config.faults.add(f"{config.where}: intermediate_size must be one number or {layers} of them")
        return (1,) * layers
    return widths


def _altup(hidden: int, streams: int) -> Block:
    """Predicts and corrects the streams: a router, two sets of coefficients, a norm and a scale."""
    matrices = (
        Projection("altup.correction_coefs", "ffn", streams * streams),
        Projection("altup.prediction_coefs", "ffn", streams**3),
        Projection("altup.modality_router", "ffn", streams * hidden),
    )
    return Block(matrices, 2 * hidden, reduces=0)


def _laurel(hidden: int, rank: int) -> Block:
    names = ("laurel.linear_left", "laurel.linear_right")
    return Block(tuple(Projection(name, "ffn", hidden * rank) for name in names), hidden, reduces=0)
