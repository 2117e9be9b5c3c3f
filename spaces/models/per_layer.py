"""Per-layer embeddings (Gemma 3n, Gemma 4 E) and layers that read the KV of an earlier one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvwall.spaces.models.architecture import Architecture, Block, Heads, Projection, attention_projections, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.stores import attention_store


@dataclass(frozen=True)
class PerLayer:
    """`width` elements are looked up for each layer in a table of `rows` rows."""

    width: int
    rows: int


def read_per_layer(config: Config) -> PerLayer:
    """Width 0 means none."""
    width = config.whole("hidden_size_per_layer_input")
    return PerLayer(width, config.count("vocab_size_per_layer_input") if width else 0)


def per_layer_block(hidden: int, per_layer: PerLayer) -> Block:
    """A gate into the looked-up width, a projection back, and a norm."""
    if not per_layer.width:
        return Block(reduces=0)
    names = ("per_layer_input_gate", "per_layer_projection")
    return Block(tuple(Projection(name, "ffn", hidden * per_layer.width) for name in names), hidden, reduces=0)


def with_per_layer(architecture: Architecture, per_layer: PerLayer) -> Architecture:
    """The architecture with the table, and the matrix that projects the token's own embedding to all layers."""
    if not per_layer.width:
        return architecture
    row = len(architecture.layers) * per_layer.width
    matrix = Projection("model.per_layer_model_projection", "ffn", architecture.hidden * row)
    return replace(
        architecture,
        layer_embedding_row=row,
        layer_embedding_rows=per_layer.rows,
        model_matrices=(*architecture.model_matrices, matrix),
        model_vectors=architecture.model_vectors + per_layer.width,
    )


def readers(config: Config, kinds: tuple[str, ...]) -> tuple[int, ...]:
    """How many layers read each layer's KV: 0 for the last `num_kv_shared_layers`, which read the last of their kind.

    The key is stated in these families; each kind must have a layer with KV of its own.
    """
    layers, shared = len(kinds), config.whole("num_kv_shared_layers")
    if shared >= layers:
        if not config.spoiled:
            config.faults.add(f"{config.where}: num_kv_shared_layers = {shared} must be below the {layers} layers")
        return (1,) * layers
    own = layers - shared
    counts = [1] * own + [0] * shared
    for kind in kinds[own:]:
        owners = [layer for layer in range(own) if kinds[layer] == kind]
        if not owners:
            config.faults.add(f"{config.where}: no layer before the shared ones is of kind {kind}")
            break
        counts[owners[-1]] += 1
    return tuple(counts)


def shared_attention(
    hidden: int, heads: Heads, window: int | None, readers: int, bias: bool, *, value_is_key: bool = False
) -> Block:
    """Attention with norms on Q and K. A layer whose KV nobody reads has no K and V and reads another's."""
    matrices = attention_projections(hidden, heads)
    if not readers:
        own = tuple(matrix for matrix in matrices if matrix.tensor_class == "query_output")
        return Block(own, heads.dim + (heads.query_width + hidden) * bias)
    biases = qkv_bias(heads) + hidden
    if value_is_key:
        matrices = tuple(matrix for matrix in matrices if matrix.module != "self_attn.v_proj")
        biases -= heads.value_width
    return Block(matrices, 2 * heads.dim + biases * bias, (attention_store(heads, window, readers=readers),))
