"""DeepSeek V2, V3, V3.2 and their kin: MLA in every layer, experts after some dense layers, maybe a sparse index."""

from __future__ import annotations

from dataclasses import replace

from kvwall.spaces.models.architecture import Architecture, Block
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.latent import latent_block, read_index, read_latent
from kvwall.spaces.models.moe import MoERule, first_dense, read_moe
from kvwall.spaces.models.windows import layer_kinds

EXPERTS = MoERule(
    ("n_routed_experts", "num_local_experts", "num_experts"),
    shared_count=("n_shared_experts",),
    correction=True,
    sparse=first_dense(),
)


def deepseek_v2(config: Config) -> Architecture:
    """Like V3, without the bias that steers its routing."""
    return _deepseek(config, replace(EXPERTS, correction=config.text("topk_method") == "noaux_tc"))


def deepseek_v3(config: Config) -> Architecture:
    """DeepSeek V3 and R1, Kimi K2, Mistral Large 3, GLM-4.7-Flash: each states its dense layers."""
    return _deepseek(config, EXPERTS)


def dense_first(config: Config) -> Architecture:
    """Families whose class makes the first layer dense where the file does not say."""
    return _deepseek(config, replace(EXPERTS, sparse=first_dense(default=1)))


def axk1(config: Config) -> Architecture:
    """A.X K1: as `dense_first`, with one more norm behind the experts."""
    architecture = dense_first(config)
    extra = norms(architecture.hidden, 1)
    routed = [any(p.tensor_class == "expert" for p in layer.projections) for layer in architecture.layers]
    layers = tuple(layer + extra if moe else layer for layer, moe in zip(architecture.layers, routed, strict=True))
    return replace(architecture, layers=layers)


def mistral4(config: Config) -> Architecture:
    """Mistral Small 4: V3's block without the bias that steers its routing, all layers with experts by default."""
    return _deepseek(config, replace(EXPERTS, correction=False))


def _deepseek(config: Config, rule: MoERule) -> Architecture:
    frame = read_frame(config)
    mla = read_latent(config)
    ffns = read_moe(config, rule, frame.hidden, frame.layers)
    block = latent_block(frame.hidden, mla) + norms(frame.hidden)
    return decoder(
        config,
        frame,
        [block + ffn for ffn in ffns.blocks],
        tied=False,
        intermediate=ffns.width,
        active_experts=ffns.active,
    )


def sparse_deepseek(config: Config) -> Architecture:
    """DeepSeek V3.2 and GLM-5: every layer reads the latents that an index picks; some reuse another's index."""
    frame = read_frame(config)
    mla, index = read_latent(config), read_index(config)
    ffns = read_moe(config, replace(EXPERTS, sparse=first_dense(default=3)), frame.hidden, frame.layers)
    layer_kinds(config, frame.layers, ("indexed_attention", "deepseek_sparse_attention"))
    layers = [
        latent_block(frame.hidden, mla, index, owns_index=owner) + ffn + norms(frame.hidden)
        for owner, ffn in zip(_index_owners(config, frame.layers), ffns.blocks, strict=True)
    ]
    return decoder(config, frame, layers, tied=False, intermediate=ffns.width, active_experts=ffns.active)


def dense_latent(config: Config) -> Architecture:
    """MiniCPM3 and Youtu: MLA with one dense FFN; tied unless stated otherwise."""
    frame = read_frame(config)
    intermediate = config.count("intermediate_size")
    ffn = dense_block(frame.hidden, intermediate)
    if config.switch("mlp_bias", False):
        ffn += Block(vectors=2 * intermediate + frame.hidden, reduces=0)
    block = latent_block(frame.hidden, read_latent(config)) + ffn + norms(frame.hidden)
    return decoder(config, frame, [block] * frame.layers, tied=True, intermediate=intermediate)


def _index_owners(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers run an indexer of their own: a list, a pattern of F and S, or a period after some first ones."""
    kinds = layer_kinds(config, layers, ("full", "shared"), "indexer_types")
    if kinds:
        return tuple(kind == "full" for kind in kinds)
    pattern = config.value("index_topk_pattern")
    if pattern is not None:
        letters = pattern if isinstance(pattern, str) else ""
        if len(letters) != layers or letters.strip("FS"):
            config.faults.add(f"{config.where}: index_topk_pattern must be {layers} letters F or S")
            return (True,) * layers
        return tuple(letter == "F" for letter in letters)
    period = config.count("index_topk_freq") if config.states("index_topk_freq") else 1
    offset = config.whole("index_skip_topk_offset", 2)
    return tuple(max(layer - offset + 1, 0) % period == 0 for layer in range(layers))
