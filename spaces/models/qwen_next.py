"""Qwen3-Next and Qwen3.5: gated delta nets with a gated full-attention layer every few layers."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Block, Projection, qkv_bias
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import read_heads
from kvwall.spaces.models.hybrid import LINEAR_NAMES, mixer_kinds
from kvwall.spaces.models.linear import delta_block, read_delta_net
from kvwall.spaces.models.moe import FFNs, MoERule, read_moe, sparse_step
from kvwall.spaces.models.state_space import read_state_bytes

_EXPERTS = MoERule(
    shared_width="shared_expert_intermediate_size", shared_gate=True, shared_path="shared_expert", sparse=sparse_step
)


def qwen3_next(config: Config) -> Architecture:
    """Class defaults: every fourth layer attends in full, heads of 256, embeddings not tied."""
    frame = read_frame(config)
    heads = read_heads(config, frame.hidden, default_dim=256)
    vectors = 2 * heads.dim
    if config.switch("attention_bias", False):
        vectors += qkv_bias(heads) + heads.query_width + frame.hidden
    gate = Projection("self_attn.q_proj", "query_output", frame.hidden * heads.query_width)
    full = attention(frame.hidden, heads, vectors=vectors)
    if config.switch("attn_output_gate", True):
        full += Block((gate,), reduces=0)
    state_bytes = read_state_bytes(config, "mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    linear = delta_block(frame.hidden, read_delta_net(config), state_bytes)
    ffns = _ffns(config, frame.hidden, frame.layers)
    kinds = mixer_kinds(config, frame.layers, full_every="full_attention_interval", default_period=4)
    layers = [
        (linear if kind in LINEAR_NAMES else full) + ffn + norms(frame.hidden)
        for kind, ffn in zip(kinds, ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def _ffns(config: Config, hidden: int, layers: int) -> FFNs:
    if config.states("num_experts") or config.states("num_local_experts"):
        return read_moe(config, _EXPERTS, hidden, layers)
    intermediate = config.count("intermediate_size")
    return FFNs((dense_block(hidden, intermediate),) * layers, intermediate)
