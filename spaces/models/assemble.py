"""From a family's architecture and the checkpoint's weight format to the `Model` record."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.formats import WeightFormat
from kvwall.spaces.models.layers import LayerGroup, Model
from kvwall.spaces.models.precision import NativeBits


def assemble(config: Config, architecture: Architecture, dtype_bits: int, weight_format: WeightFormat | None) -> Model:
    """The model, still without name, type and source. Raises InputError for an impossible keep list."""
    bits = NativeBits(architecture, dtype_bits, weight_format)
    config.flags.extend(bits.flags())
    heads, layers = architecture.heads, architecture.layers
    query_output = bits.of_class("query_output")
    key_value = bits.of_class("key_value")
    ffn = bits.of_class("ffn")
    head = bits.of_head()
    table = architecture.vocab * architecture.hidden if architecture.embeds_tokens else 0
    positions = architecture.position_rows
    return Model(
        name="",
        model_type="",
        source="",
        hidden=architecture.hidden,
        intermediate=architecture.intermediate,
        vocab=architecture.vocab,
        max_positions=architecture.max_positions,
        decoder_layers=layers,
        groups=(LayerGroup(layers, heads.query, heads.kv, heads.dim, heads.dim, heads.dim, heads.dim),),
        reduces_per_layer=architecture.reduces_per_layer,
        tied_embeddings=architecture.tied_embeddings,
        embedding_row=architecture.hidden * (architecture.embeds_tokens + (positions > 0)),
        query_output=architecture.parameters("query_output"),
        key_value=architecture.parameters("key_value"),
        ffn=architecture.parameters("ffn"),
        head=table,
        embedding=positions * architecture.hidden + (0 if architecture.tied_embeddings else table),
        vectors=layers * architecture.layer_vectors + architecture.model_vectors,
        query_output_bits=query_output.stored,
        key_value_bits=key_value.stored,
        ffn_bits=ffn.stored,
        head_bits=head.stored,
        embedding_bits=dtype_bits,
        vector_bits=dtype_bits,
        query_output_payload_bits=query_output.payload,
        key_value_payload_bits=key_value.payload,
        ffn_payload_bits=ffn.payload,
        head_payload_bits=head.payload,
    )
