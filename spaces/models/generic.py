"""A model_type that is not known: counted only where every key is one whose meaning is certain.

The block is Llama's or DeepSeek's: grouped or latent attention, a gated FFN, experts after some dense
layers, windows by a list. Anything necessary that is not stated is missing; any key that is neither
read nor neutral is refused by its name.
"""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture, Block, attention_projections, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.latent import latent_block, read_latent
from kvwall.spaces.models.moe import FFNs, MoERule, first_dense, read_moe, sparse_step
from kvwall.spaces.models.neutral import NEUTRAL_KEYS
from kvwall.spaces.models.stores import attention_store
from kvwall.spaces.models.windows import STATED, SWITCHED, read_windows

_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")
_SHARED_KEYS = ("n_shared_experts", "num_shared_experts")
_EXPERTS = MoERule(_EXPERT_KEYS, shared_count=_SHARED_KEYS, sparse=first_dense())
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu")


def generic(config: Config) -> Architecture:
    """The architecture that the known keys describe; unknown keys are refused by name."""
    frame = read_frame(config)
    if not config.states("tie_word_embeddings"):
        config.missing.append("tie_word_embeddings")
    _require_gated(config)
    ffns = _ffns(config, frame.hidden, frame.layers)
    mixers = _mixers(config, frame.hidden, frame.layers, frame.max_positions)
    layers = [mixer + ffn + norms(frame.hidden) for mixer, ffn in zip(mixers, ffns.blocks, strict=True)]
    architecture = decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)
    unknown = sorted(
        key
        for key, value in config.values.items()
        if key not in config.read and key not in NEUTRAL_KEYS and value not in (None, False, [], {}, "")
    )
    if unknown:
        config.refuse(f"a model_type that is not known with keys of unknown meaning ({', '.join(unknown)})")
    return architecture


def _require_gated(config: Config) -> None:
    activation = config.text("hidden_act") or config.text("hidden_activation")
    if activation is None:
        config.missing.append("hidden_act")
    elif activation not in _GATED_ACTIVATIONS:
        config.refuse(f"hidden_act = {activation} in a model_type that is not known (is its FFN gated?)")


def _ffns(config: Config, hidden: int, layers: int) -> FFNs:
    if any(config.states(key) for key in _EXPERT_KEYS):
        rule = _EXPERTS
        config.states("intermediate_size")  # the dense layers' width, if there are any
        if any(config.states(key) for key in ("decoder_sparse_step", "mlp_only_layers")):
            rule = replace(rule, sparse=sparse_step)
        if config.states("shared_expert_intermediate_size"):
            rule = replace(rule, shared_width="shared_expert_intermediate_size")
        if not config.states("moe_intermediate_size"):
            rule = replace(rule, intermediate="intermediate_size")
        if not config.states("moe_intermediate_size") and config.whole("first_k_dense_replace"):
            config.missing.append("moe_intermediate_size")
        return read_moe(config, rule, hidden, layers)
    intermediate = config.count("intermediate_size")
    block = dense_block(hidden, intermediate)
    if config.switch("mlp_bias", False):
        block += Block(vectors=2 * intermediate + hidden, reduces=0)
    return FFNs((block,) * layers, intermediate)


def _mixers(config: Config, hidden: int, layers: int, max_positions: int | None) -> list[Block]:
    if config.states("kv_lora_rank"):
        config.states("num_key_value_heads")
        config.states("head_dim")
        if "q_lora_rank" not in config.values:
            config.missing.append("q_lora_rank")
        return [latent_block(hidden, read_latent(config))] * layers
    heads = read_heads(config, hidden)
    config.states("max_window_layers")
    windows = read_windows(config, SWITCHED if config.states("use_sliding_window") else STATED, layers, max_positions)
    vectors = qkv_bias(heads) + hidden if config.switch("attention_bias", False) else 0
    if config.switch("use_qk_norm", False):
        vectors += 2 * heads.dim
    matrices = attention_projections(hidden, heads)
    return [Block(matrices, vectors, (attention_store(heads, window),)) for window in windows]
