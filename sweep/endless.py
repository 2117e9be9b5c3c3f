"""Why a model has no crossover or no longest context: KV that stops growing, in words."""

from __future__ import annotations

from kvwall.spaces.models.layers import Model


def stops_growing(model: Model) -> str | None:
    """Why the KV that a sequence stores has a limit; None where it grows with the context for ever.

    >>> from kvwall.spaces.models.load import load_model
    >>> stops_growing(load_model("mistralai/Mamba-Codestral-7B-v0.1"))
    'only a fixed recurrent state'
    >>> stops_growing(load_model("paper/llama-3-70b")) is None
    True
    """
    if any(group.grows for group in model.groups):
        return None
    if any(group.window is not None for group in model.groups):
        return f"KV of {model.name} stops growing at its windows"
    return "only a fixed recurrent state"


def no_crossover(model: Model) -> str:
    """Why a step never reads as many KV bytes as weight bytes."""
    if stored := stops_growing(model):
        return f"never: {stored}"
    if all(group.top_k is not None and not group.index_dim for group in model.groups if group.grows):
        return f"never: a step of {model.name} reads a limited number of entries"
    return "never: KV traffic does not reach weight traffic"


def never_in_time(model: Model) -> str:
    """Why attention never takes as long as everything else in a step."""
    if stored := stops_growing(model):
        return f"never: {stored}"
    return "never: attention stays faster than everything else of a step"
