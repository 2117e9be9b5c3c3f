"""Whether a sliding window is in force. A window that is stated but idle leaves a flag; one in force is refused."""

from __future__ import annotations

from typing import Literal

from kvwall.spaces.models.config import Config

WindowRule = Literal["stated", "assumed", "switched", "default"]
"""How `sliding_window` is read: as it stands (`assumed`: its absence, which releases of the family read
differently, leaves a flag), only with `use_sliding_window`, or as a window of the class when absent."""


def require_full_attention(config: Config, rule: WindowRule, layers: int, max_positions: int | None) -> None:
    """Record a refusal unless every layer attends to the whole context."""
    kinds = config.names("layer_types")
    others = sorted({kind for kind in kinds if kind != "full_attention"})
    if others:
        config.refuse(f"layer_types with {', '.join(others)}")
        return
    if rule == "switched" and not config.switch("use_sliding_window", False):
        if config.states("sliding_window"):
            config.flags.append("sliding_window present but use_sliding_window=false: full attention")
        return
    if rule in ("switched", "default") and kinds:
        return  # the class takes the list over the window
    if rule == "switched" and (config.optional_count("max_window_layers") or 0) >= layers:
        config.flags.append("sliding_window present but max_window_layers spares every layer: full attention")
        return
    _require_idle_window(config, rule, max_positions)


def _require_idle_window(config: Config, rule: WindowRule, max_positions: int | None) -> None:
    window = config.optional_count("sliding_window")
    if window is None:
        if "sliding_window" not in config.values:
            _judge_absence(config, rule)
        return
    if max_positions is not None and window >= max_positions:
        config.flags.append(f"sliding_window {window} is not shorter than the context: full attention")
        return
    config.refuse(f"sliding-window attention (sliding_window = {window})")


def _judge_absence(config: Config, rule: WindowRule) -> None:
    if rule == "assumed":
        config.flags.append("sliding_window not stated: full attention assumed")
    elif rule != "stated":
        config.refuse("the class's default sliding window (sliding_window not stated: write null for none)")
