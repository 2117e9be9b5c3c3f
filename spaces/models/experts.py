"""Mixture-of-experts FFNs: routed experts, their router, and the shared experts that every token meets."""

from __future__ import annotations

from dataclasses import dataclass

from kvwall.spaces.models.architecture import Block, Projection, ffn_projections
from kvwall.spaces.models.config import Config

GATED = ("gate_proj", "up_proj", "down_proj")
UNGATED = ("up_proj", "down_proj")


@dataclass(frozen=True)
class Routed:
    """The FFN of a MoE layer, in numbers and in the checkpoint's module names."""

    experts: int
    active: int
    intermediate: int
    """Of one routed expert."""
    shared: int = 0
    """Intermediate width of the shared experts together; 0 without."""
    shared_gate: bool = False
    """A gate of one output on the shared expert."""
    correction: bool = False
    """A bias per expert that steers the routing."""
    biases: bool = False
    """Biases on router and experts."""
    latent: int = 0
    """Width that routed experts work in between two projections that all share; 0: the hidden width."""
    latent_norm: bool = False
    latent_plain: bool = False
    """The two projections keep the checkpoint's own dtype whatever the weight format."""
    matrices: tuple[str, ...] = GATED
    path: str = "mlp"
    router: str = "gate"
    expert_path: str = "experts.0"
    shared_path: str = "shared_experts"

    @property
    def width(self) -> int:
        """Widest activation of one token: its routed experts and the shared ones together."""
        return self.active * self.intermediate + self.shared


def moe_block(hidden: int, routed: Routed) -> Block:
    """Router, routed and shared experts of one layer; norms are the caller's."""
    path, count = routed.path, routed.experts
    inner = routed.latent or hidden
    matrices = [Projection(f"{path}.{routed.router}", "router", hidden * count)]
    for name in routed.matrices:
        expert = f"{path}.{routed.expert_path}.{name}"
        matrices.append(Projection(expert, "expert", inner * routed.intermediate, count))
    vectors = count * routed.correction
    if routed.biases:
        width = (len(routed.matrices) - 1) * routed.intermediate + hidden
        matrices.append(Projection(f"{path}.{routed.expert_path}.bias", "expert", width, count, plain=True))
        vectors += count
    if routed.latent:
        for name in ("fc1_latent_proj", "fc2_latent_proj"):
            matrices.append(Projection(f"{path}.{name}", "ffn", hidden * inner, plain=routed.latent_plain))
        vectors += inner * routed.latent_norm
    if routed.shared:
        names = [f"{path}.{routed.shared_path}.{name}" for name in routed.matrices]
        matrices += ffn_projections(hidden, routed.shared, *names)
    if routed.shared_gate:
        matrices.append(Projection(f"{path}.shared_expert_gate", "router", hidden))
    return Block(tuple(matrices), vectors)


def dense_block(hidden: int, intermediate: int, matrices: tuple[str, ...] = GATED, path: str = "mlp") -> Block:
    """An FFN that every token meets whole; norms are the caller's."""
    return Block(ffn_projections(hidden, intermediate, *(f"{path}.{name}" for name in matrices)))


def read_top_k(config: Config, experts: int, *keys: str) -> int:
    """Experts per token, one number or the same one for each layer; more than there are is a fault."""
    active = config.alike(*keys)
    if active > experts and not config.spoiled:
        config.faults.add(f"{config.where}: {keys[0]} = {active} is more than the {experts} experts")
    return active


def leading_dense(config: Config, layers: int, key: str = "first_k_dense_replace", default: int = 0) -> int:
    """Layers before the first MoE layer; may be 0."""
    dense = config.whole(key, default)
    if dense > layers and not config.spoiled:
        config.faults.add(f"{config.where}: {key} = {dense} is more than the {layers} layers")
    return dense
