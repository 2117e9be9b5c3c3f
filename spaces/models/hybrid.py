"""Which layers of a hybrid attend and which keep a state, under the names and patterns in use."""

from __future__ import annotations

from kvwall.spaces.models.config import Config
from kvwall.spaces.models.windows import layer_kinds

LINEAR_NAMES = frozenset({"linear_attention", "mamba", "kda", "conv", "recurrent"})
FULL_NAMES = frozenset({"full_attention", "attention"})


def mixer_kinds(
    config: Config,
    layers: int,
    *,
    full_every: str = "",
    default_period: int | None = None,
    known: frozenset[str] = LINEAR_NAMES | FULL_NAMES,
) -> tuple[str, ...]:
    """One kind per layer: a list under `layer_types` or `layers_block_type`, or every so many layers one in full.

    Without any of these the list is missing.
    """
    for key in ("layer_types", "layers_block_type"):
        if config.states(key):
            return layer_kinds(config, layers, tuple(sorted(known)), key) or ("full_attention",) * layers
    if full_every and (config.states(full_every) or default_period is not None):
        period = config.count(full_every, default=default_period)
        return tuple("linear_attention" if (layer + 1) % period else "full_attention" for layer in range(layers))
    config.missing.append("layer_types")
    return ("full_attention",) * layers
