"""Which layers keep a sliding window, read off a config: one window, or None for full attention, per layer.

A window that is stated but idle (switched off, or not shorter than the context) leaves a flag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvwall.spaces.models.config import Config

FULL, SLIDING = "full_attention", "sliding_attention"

Windows = tuple[int | None, ...]


@dataclass(frozen=True)
class WindowRule:
    """How a family reads `sliding_window` where no `layer_types` list says which layers have it."""

    absent: Literal["full", "assumed", "class"] = "full"
    """An unstated window: none; none but flagged, since releases of the family differ; or `default`."""
    default: int = 4096
    period: int | None = None
    """Every so many layers one attends to everything; None: all layers have the window."""
    period_key: str = "sliding_window_pattern"
    """Where a file states another period."""
    switched: bool = False
    """The window counts only with `use_sliding_window`, from layer `max_window_layers` on."""
    listed: bool = False
    """With the switch on, only `layer_types` says which layers have the window."""


STATED = WindowRule()
ASSUMED = WindowRule("assumed")
SWITCHED = WindowRule(switched=True)
LISTED = WindowRule(switched=True, listed=True)


def every(period: int, default: int = 4096, key: str = "sliding_window_pattern") -> WindowRule:
    """A class with a window of its own in all but every `period`-th layer."""
    return WindowRule("class", default, period, key)


def read_windows(config: Config, rule: WindowRule, layers: int, max_positions: int | None) -> Windows:
    """The window of each layer. Faults (unknown layer kinds, a list of another length) go to the config."""
    kinds = layer_kinds(config, layers, (FULL, SLIDING))
    if rule.period is not None:
        config.states(rule.period_key)  # the list wins over it
    if rule.switched and not config.switch("use_sliding_window", False):
        if config.states("sliding_window"):
            config.flags.append("sliding_window present but use_sliding_window=false: full attention")
        return (None,) * layers
    stated = config.optional_count("sliding_window")
    if _idle(config, stated, max_positions):
        return (None,) * layers
    windowed = tuple(kind == SLIDING for kind in kinds) if kinds else _from_rule(config, rule, layers)
    if not any(windowed):
        return (None,) * layers
    window = stated or _absent_window(config, rule, kinds)
    if stated is None and _idle(config, window, max_positions):
        return (None,) * layers
    return tuple(window if has else None for has in windowed)


def layer_kinds(config: Config, layers: int, known: tuple[str, ...], key: str = "layer_types") -> tuple[str, ...]:
    """The list under `key`, one of the `known` kinds per layer; empty where it is not stated or faulty."""
    kinds = config.names(key)
    if not kinds:
        return ()
    others = sorted({kind for kind in kinds if kind not in known})
    if others:
        config.refuse(f"{key} with {', '.join(others)} (known here: {', '.join(known)})")
        return ()
    if len(kinds) != layers:
        if not config.spoiled:
            config.faults.add(f"{config.where}: {key} lists {len(kinds)} layers, the model has {layers}")
        return ()
    return kinds


def _idle(config: Config, window: int | None, max_positions: int | None) -> bool:
    if window is None or max_positions is None or window < max_positions:
        return False
    config.flags.append(f"sliding_window {window} is not shorter than the context: full attention")
    return True


def _from_rule(config: Config, rule: WindowRule, layers: int) -> tuple[bool, ...]:
    if rule.listed:
        config.missing.append("layer_types")
        return (False,) * layers
    if rule.switched:
        first = config.optional_count("max_window_layers") if config.values.get("max_window_layers") != 0 else 0
        if first is None:
            config.missing.append("max_window_layers or layer_types")
            first = layers
        if first >= layers:
            config.flags.append("sliding_window present but max_window_layers spares every layer: full attention")
        return tuple(layer >= first for layer in range(layers))
    if rule.period is None:
        return (True,) * layers
    pattern = config.value(rule.period_key)
    if isinstance(pattern, str) and pattern and not pattern.strip("LG"):
        letters = (pattern * (layers // len(pattern) + 1))[: layers - 1] + "G"
        return tuple(letter == "L" for letter in letters)
    period = rule.period if pattern is None else config.count(rule.period_key)
    return tuple((layer + 1) % period > 0 for layer in range(layers))


def _absent_window(config: Config, rule: WindowRule, kinds: tuple[str, ...]) -> int | None:
    if "sliding_window" in config.values:  # null
        if kinds:
            config.faults.add(f"{config.where}: layer_types has {SLIDING} but sliding_window is null")
    elif rule.absent == "class":
        return config.count("sliding_window", default=rule.default)
    elif kinds or rule.switched:
        config.missing.append("sliding_window")
    elif rule.absent == "assumed":
        config.flags.append("sliding_window not stated: full attention assumed")
    return None
