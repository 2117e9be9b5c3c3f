"""Names and numbers as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from kvwall.objectives.register import BANDED, band_of, metric_named
from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.modes import ESTIMATE
from kvwall.sweep.objective import Objective
from kvwall.sweep.readable import band_text, metric_text, number_text
from kvwall.sweep.study import Study

_METRICS: Mapping[str, str] = {
    "tokens_per_second": "tokens/s",
    "tokens_per_second_per_device": "tokens/s per device",
    "tokens_per_second_per_user": "tokens/s per user",
    "time_per_output_token": "time per output token",
    "cost_per_million_tokens": "cost per million tokens",
    "energy_per_token": "energy per token",
    "crossover_context_bytes": "crossover context",
}
_AXES: Mapping[str, str] = {
    "hardware": "chip",
    "key_bits": "key bits",
    "value_bits": "value bits",
    "weight_bits": "weight bits",
    "placement_host": "KV in host memory",
    "placement_cxl": "KV in CXL memory",
    "placement_nvme": "KV on NVMe",
    "placement_remote": "KV in remote memory",
    "tensor_parallel": "tensor parallel",
    "retention": "tokens kept",
    "read_fraction": "kept tokens read",
    "prefix_share": "common prefix",
    "prefix_hit_rate": "prompt found cached",
    "max_model_length": "longest sequence served",
    "serving_mode": "serving",
    "draft_tokens": "drafted tokens",
    "access": "KV in tiers",
    "die_placement": "dies",
}
SHARES = frozenset(
    {"retention", "read_fraction", "utilisation", "outlier_fraction", "prefix_share", "prefix_hit_rate", "link_overlap"}
    | {name for name in AXES if name.startswith("placement_")}
)
"""Axes that are a part of a whole, shown in percent."""
REGIME_WORDS: Mapping[str, str] = {
    "weight": "weight traffic",
    "kv": "KV traffic",
    "compute": "compute",
    "scale_up": "scale-up link",
    "tier_link": "tier link",
    "overhead": "overhead",
    "capacity": "does not fit in memory",
}


def metric_label(name: str) -> str:
    """A metric in words.

    >>> metric_label("quality_loss_upper"), metric_label("time_per_output_token")
    ('quality loss, upper', 'time per output token')
    """
    if name in _METRICS:
        return _METRICS[name]
    for prefix in ("quality_loss_upper", "quality_loss"):
        if name.startswith(prefix):
            task = name.removeprefix(prefix).strip("_").replace("_", " ")
            return f"quality loss{', upper' if 'upper' in prefix else ''}{f' ({task})' if task else ''}"
    return name.replace("kv_", "KV ").replace("_", " ")


def axis_label(name: str) -> str:
    """An axis in words."""
    return _AXES.get(name, name.replace("kv_", "KV ").replace("_", " "))


def axis_text(name: str, value: Value) -> str:
    """An axis's value; shares in percent, a path by its file name.

    >>> axis_text("retention", 0.4), axis_text("context", 131072)
    ('40 %', '131,072')
    """
    if name in SHARES:
        return f"{100 * float(value):.3g} %"
    if AXES[name].kind == "name":
        return short_name(str(value))
    return number_text(value)


def short_name(name: str) -> str:
    """A catalogue name without its organisation; a path's last part.

    >>> short_name("meta-llama/Meta-Llama-3-70B"), short_name("paper/h100")
    ('Meta-Llama-3-70B', 'paper/h100')
    """
    if name.startswith("paper/"):
        return name
    parts = name.rstrip("/").split("/")
    return parts[-2] if parts[-1] == "config.json" and len(parts) > 1 else parts[-1]


def metric_value(study: Study, name: str, value: float) -> str:
    """A metric's value with its unit, or "no value"."""
    if not math.isfinite(value):
        return "no value" if math.isnan(value) else "unlimited"
    named = f"{name}_{study.task}" if name.startswith("quality_loss") and name in _OF_THE_STUDY else name
    return metric_text(value, metric_named(name, study.task, study.mode).unit, named)


def estimate_value(study: Study, name: str, at: Callable[[str], float]) -> str:
    """A metric of a design, with its bounds where it has some; `at` gives a metric's value by its name."""
    value = at(name)
    if study.mode != ESTIMATE or name not in BANDED or not math.isfinite(value):
        return metric_value(study, name, value)
    low, high = (at(bound) for bound in band_of(name))
    return band_text(value, (low, high), metric_named(name, study.task, study.mode).unit, name)


_OF_THE_STUDY = ("quality_loss", "quality_loss_upper")


def objective_text(objective: Objective) -> str:
    """An objective in words.

    >>> objective_text(Objective("quality_loss_upper", "minimize"))
    'minimize quality loss, upper'
    """
    return f"{objective.sense} {metric_label(objective.metric)}"


def constraint_texts(study: Study) -> dict[str, str]:
    """Constraint as results name it -> in words with units."""
    found = {}
    for constraint in study.constraints:
        sides = [
            f"{sign} {metric_value(study, constraint.metric, bound)}"
            for sign, bound in (("at least", constraint.low), ("at most", constraint.high))
            if bound is not None
        ]
        found[str(constraint)] = f"{metric_label(constraint.metric)} {' and '.join(sides)}"
    return found


def design_text(study: Study, design: Mapping[str, Value], without: Sequence[str] = ()) -> str:
    """A design by the axes that vary in the study."""
    parts = [phrase(name, design[name]) for name in varying(study) if name not in without]
    return ", ".join(parts) or "the study's one design"


def phrase(name: str, value: Value) -> str:
    """One axis of a design, to stand in a sentence.

    >>> phrase("key_bits", 8.0), phrase("retention", 0.4), phrase("placement_host", 0.0)
    ('keys 8 bit', '40 % of the tokens kept', 'no KV in host memory')
    """
    text = axis_text(name, value)
    match name:
        case "key_bits" | "value_bits" | "weight_bits":
            noun = {"key_bits": "keys", "value_bits": "values", "weight_bits": "weights"}[name]
            return f"{noun} as published" if isinstance(value, str) else f"{noun} {text} bit"
        case "retention":
            return "all tokens kept" if value == 1 else f"{text} of the tokens kept"
        case "placement_host" | "placement_cxl" | "placement_nvme" | "placement_remote":
            return f"no {axis_label(name)}" if value == 0 else f"{text} of the {axis_label(name)}"
        case "read_fraction":
            return "all kept tokens read" if value == 1 else f"{text} of the kept tokens read"
        case "hardware" | "model":
            return text
        case _:
            return f"{axis_label(name)} {text}"


def varying(study: Study) -> list[str]:
    """Axes with more than one value, tied ones included."""
    return [entry.axis.name for entry in study.space.axes if len(entry) > 1]


def listed(words: Iterable[str]) -> str:
    """Words as a sentence lists them.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def share_text(part: int, whole: int) -> str:
    """A share in percent, small ones with more digits.

    >>> share_text(1, 3), share_text(17033841, 1123200000), share_text(0, 7)
    ('33.3 %', '1.52 %', '0 %')
    """
    return f"{100 * part / whole:.3g} %" if whole else "0 %"
