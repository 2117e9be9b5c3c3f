"""From a family's architecture and the checkpoint's weight format to the `Model` record."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.formats import WeightFormat
from kvwall.spaces.models.layers import Experts, Model
from kvwall.spaces.models.precision import NativeBits
from kvwall.spaces.models.stores import merged


def assemble(config: Config, architecture: Architecture, dtype_bits: int, weight_format: WeightFormat | None) -> Model:
    """The model, still without name, type and source. Raises InputError for an impossible keep list."""
    bits = NativeBits(architecture, dtype_bits, weight_format)
    config.flags.extend(bits.flags())
    layers = architecture.layers
    query_output = bits.of_class("query_output")
    key_value = bits.of_class("key_value")
    ffn = bits.of_class("ffn")
    router = bits.of_class("router")
    head = bits.of_head()
    table = architecture.vocab * architecture.hidden if architecture.embeds_tokens else 0
    positions = architecture.position_rows
    row = architecture.hidden * (architecture.embeds_tokens + (positions > 0))
    return Model(
        name="",
        model_type="",
        source="",
        hidden=architecture.hidden,
        intermediate=architecture.intermediate,
        vocab=architecture.vocab,
        max_positions=architecture.max_positions,
        decoder_layers=len(layers),
        groups=merged(store for layer in layers for store in layer.stores),
        reduces_per_layer=_mean_reduces(layers),
        tied_embeddings=architecture.tied_embeddings,
        embedding_row=row + architecture.layer_embedding_row,
        query_output=architecture.parameters("query_output"),
        key_value=architecture.parameters("key_value"),
        ffn=architecture.parameters("ffn"),
        head=table,
        embedding=positions * architecture.hidden + (0 if architecture.tied_embeddings else table),
        vectors=sum(layer.vectors for layer in layers) + architecture.model_vectors,
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
        router=architecture.parameters("router"),
        router_bits=router.stored,
        router_payload_bits=router.payload,
        experts=_experts(architecture, bits),
        layer_embedding=architecture.layer_embedding_rows * architecture.layer_embedding_row,
    )


def _mean_reduces(layers: tuple[Block, ...]) -> float:
    total = sum(layer.reduces for layer in layers)
    return total // len(layers) if total % len(layers) == 0 else total / len(layers)


def _experts(architecture: Architecture, bits: NativeBits) -> Experts | None:
    """The routed experts, which are alike in all layers that have some."""
    per_layer = [[p for p in layer.projections if p.tensor_class == "expert"] for layer in architecture.layers]
    routed = [matrices for matrices in per_layer if matrices]
    if not routed:
        return None
    expert = bits.of_class("expert")
    return Experts(
        layers=len(routed),
        experts=routed[0][0].copies,
        active=architecture.active_experts,
        elements_per_expert=sum(matrix.parameters for matrix in routed[0]),
        bits=expert.stored,
        payload_bits=expert.payload,
    )
