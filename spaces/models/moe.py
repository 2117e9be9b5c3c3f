"""How a family's config states its mixture of experts: keys, class defaults, and which layers have one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvwall.spaces.models.architecture import Block
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.experts import GATED, Routed, dense_block, leading_dense, moe_block, read_top_k
from kvwall.spaces.models.windows import layer_kinds

Sparse = tuple[bool, ...]
SparseRule = Callable[[Config, int], Sparse]


@dataclass(frozen=True)
class MoERule:
    """Where a family keeps each number. An empty key: the family has no such thing."""

    experts: tuple[str, ...] = ("num_experts", "num_local_experts")
    active: tuple[str, ...] = ("num_experts_per_tok",)
    intermediate: str = "moe_intermediate_size"
    shared_count: tuple[str, ...] = ()
    """Shared experts, each as wide as a routed one."""
    shared_default: int = 0
    shared_width: str = ""
    """Width of the shared expert, stated itself; 0 without one."""
    shared_gate: bool = False
    latent_width: str = ""
    """Width that routed experts work in, where it is not the hidden one."""
    latent_norm: str = ""
    correction: bool = False
    biases: bool = False
    sparse: SparseRule | None = None
    """Which layers are MoE layers; None: all."""
    dense_width: str = "intermediate_size"
    matrices: tuple[str, ...] = GATED
    path: str = "mlp"
    router: str = "gate"
    expert_path: str = "experts.0"
    shared_path: str = "shared_experts"


@dataclass(frozen=True)
class FFNs:
    """The FFN of every layer, the widest activation of a token, and the experts it meets per MoE layer."""

    blocks: tuple[Block, ...]
    width: int
    active: int = 0


def read_moe(config: Config, rule: MoERule, hidden: int, layers: int) -> FFNs:
    """The FFNs of a model with experts."""
    sparse = rule.sparse(config, layers) if rule.sparse else (True,) * layers
    routed = _read_routed(config, rule)
    moe, dense, width = moe_block(hidden, routed), Block(), routed.width
    if not all(sparse):
        wide = config.count(rule.dense_width)
        dense = dense_block(hidden, wide, rule.matrices, rule.path)
        width = max(width, wide)
    return FFNs(tuple(moe if is_sparse else dense for is_sparse in sparse), width, routed.active)


def _read_routed(config: Config, rule: MoERule) -> Routed:
    experts = config.alike(*rule.experts)
    intermediate = config.alike(rule.intermediate)
    shared = 0
    if rule.shared_width:
        shared = config.whole(rule.shared_width)
    elif rule.shared_count:
        shared = config.alike(*rule.shared_count, default=rule.shared_default, least=0) * intermediate
    return Routed(
        experts=experts,
        active=read_top_k(config, experts, *rule.active),
        intermediate=intermediate,
        shared=shared,
        shared_gate=rule.shared_gate and shared > 0,
        correction=rule.correction,
        biases=rule.biases,
        latent=config.whole(rule.latent_width) if rule.latent_width else 0,
        latent_norm=bool(rule.latent_norm) and config.switch(rule.latent_norm, False),
        latent_plain=bool(rule.latent_width),
        matrices=rule.matrices,
        path=rule.path,
        router=rule.router,
        expert_path=rule.expert_path,
        shared_path=rule.shared_path,
    )


def first_dense(key: str = "first_k_dense_replace", default: int = 0) -> SparseRule:
    """The first layers are dense: so many as `key` says. A list `mlp_layer_types` wins, or `moe_layer_freq`."""

    def sparse(config: Config, layers: int) -> Sparse:
        dense = leading_dense(config, layers, key, default)
        kinds = layer_kinds(config, layers, ("dense", "sparse"), "mlp_layer_types")
        if kinds:
            return tuple(kind == "sparse" for kind in kinds)
        if isinstance(config.value("moe_layer_freq"), list):
            return tuple(flag > 0 for flag in layer_flags(config, "moe_layer_freq", layers))
        if config.whole("moe_layer_freq", 1) != 1:
            config.refuse("a moe_layer_freq other than 1")
        return tuple(layer >= dense for layer in range(layers))

    return sparse


def layer_flags(config: Config, key: str, layers: int) -> tuple[int, ...]:
    """A list with a 0 or 1 for each layer; anything else is a fault."""
    flags = config.whole_numbers(key)
    if len(flags) == layers and set(flags) <= {0, 1}:
        return flags
    if not config.spoiled:
        config.faults.add(f"{config.where}: {key} must be {layers} numbers, each 0 or 1")
    return (0,) * layers


def sparse_step(config: Config, layers: int) -> Sparse:
    """Every `decoder_sparse_step`-th layer but those in `mlp_only_layers`."""
    step = config.count("decoder_sparse_step") if config.states("decoder_sparse_step") else 1
    dense = set(config.whole_numbers("mlp_only_layers"))
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def interval(config: Config, layers: int) -> Sparse:
    """ERNIE 4.5: every `moe_layer_interval`-th layer from a first to a last one (-1: the model's last)."""
    step = config.count("moe_layer_interval") if config.states("moe_layer_interval") else 1
    start = config.whole("moe_layer_start_index", 1)
    end = layers - 1
    if config.value("moe_layer_end_index") != -1:
        end = config.whole("moe_layer_end_index", layers - 1)
    return tuple((layer + 1) % step == 0 and start <= layer <= end for layer in range(layers))
