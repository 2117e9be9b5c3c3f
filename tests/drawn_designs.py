"""Designs drawn at random from all axes, for tests of laws that hold for every design, and what the laws say of them.

A design of the pool has any remedies; figures of tiers and links are assumed, so that every time is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from kvwall.objectives import prefill, status, time
from kvwall.objectives.kv import Cache
from kvwall.objectives.register import metric_register
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import AXES
from kvwall.spaces.columns import FLAG_FIELDS, Columns, load_catalogue, with_number
from kvwall.spaces.design import Design
from kvwall.spaces.space import make_space

ALL_WINDOW = str(Path(__file__).parent / "data" / "models" / "mistral-7b-v0.1.json")
FULL = ("meta-llama/Meta-Llama-3-8B", "paper/llama-3-70b", "mistralai/Mixtral-8x7B-v0.1")
"""Full attention in every layer."""
OTHERS = (
    "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V4-Pro", "google/gemma-3-27b-it", "openai/gpt-oss-120b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", ALL_WINDOW,
)  # fmt: skip
STATES = ("Qwen/Qwen3-Next-80B-A3B-Instruct", "mistralai/Mamba-Codestral-7B-v0.1")
ROUTED = {
    "mistralai/Mixtral-8x7B-v0.1", "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V4-Pro", "openai/gpt-oss-120b",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", "Qwen/Qwen3-Next-80B-A3B-Instruct",
}  # fmt: skip
MODELS = (*FULL, *OTHERS, *STATES)
CHIPS = ("h100-sxm", "gb200-nvl72", "mi300x")
TIERS = ("host", "cxl", "nvme", "remote")
BANDWIDTHS = {"host": "64 GB/s", "cxl": "30 GB/s", "nvme": "12 GB/s", "remote": "40 GB/s"}
FIGURES = {
    **{f"{tier}_link_bandwidth": bandwidth for tier, bandwidth in BANDWIDTHS.items()},
    **{f"{tier}_capacity": "900 GB" for tier in ("cxl", "remote")},
    **{f"{tier}_energy": "12 pJ/bit" for tier in ("cxl", "nvme", "remote")},
    "scale_out_bandwidth": "50 GB/s",
    "memory_domains": "2",
}
TOLERANCE = 1e-9

Numbers = Mapping[str, Any]


@cache
def columns() -> Columns:
    """The pool of models and chips as columns; every other axis is set afterwards."""
    space = make_space({"model": list(MODELS), "hardware": list(CHIPS), "context": 1000})
    return Columns(space, load_catalogue(space, dict.fromkeys(CHIPS, FIGURES)))


def design_of(axes: Numbers) -> Design:
    """The design of these axes; words are written as the 0 that laws see."""
    model, chip = MODELS.index(axes["model"]), CHIPS.index(axes["hardware"])
    design = columns().design({"model": np.asarray(model), "hardware": np.asarray(chip)})
    for axis, value in axes.items():
        if axis in FLAG_FIELDS:
            record, field, true = FLAG_FIELDS[axis]
            flags = replace(getattr(design, record), **{field: np.bool_(value == true)})
            design = replace(design, **{record: flags})
        elif AXES[axis].kind in {"int", "real"}:
            design = with_number(design, axis, np.float64(value))
    return design


@dataclass(frozen=True)
class Found:
    """What the laws say of a design."""

    metrics: Numbers
    parts: Numbers
    """Of the step."""
    possible: bool


def token_bytes(cache: Cache) -> Any:
    """The most that a token of a sequence takes on a device, in all stores."""
    entry = jnp.maximum(cache.entry, cache.full_entry) + cache.guide
    each = jnp.sum(cache.groups.layers * entry / cache.groups.stride, axis=0)
    return each * (1 + cache.draft_layers) / cache.token_ranks


@jax.jit
def laws(design: Design) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Metrics, parts of the step, and whether the layout is possible."""
    step = evaluate_step(design)
    register = metric_register("aggregate", "ceiling")
    metrics = {name: register[name].law(design, step) for name in register if "quality" not in name}
    cache, load = step.ledger.cache, step.load
    end = design.workload.context + design.workload.output_tokens
    parts = {
        "step": step.time,
        "hbm": step.times.hbm,
        "tier_link": step.times.tier_link,
        "device_kv": step.ledger.kv_read,
        "device_stored": cache.stored(end, design.workload.output_tokens),
        "weights_read": step.ledger.weights_read,
        "bound_by": time.bound_by(step.times),
        "layers": design.model.layers,
        "token_bytes": token_bytes(cache),
        "recompute": prefill.prefill_time(design, cache, 0.0),
        "active": load.active,
        "micro": load.micro,
    }
    return metrics, parts, status.layout_possible(design)


def evaluated(axes: Numbers, **changed: Any) -> Found:
    """The laws of a design with some axes changed."""
    metrics, parts, possible = laws(design_of({**axes, **changed}))
    return Found(*jax.tree.map(float, (metrics, parts)), bool(possible))


def length(low: float, high: float) -> st.SearchStrategy[int]:
    """Whole numbers of any size, small as likely as large."""
    return st.floats(np.log(low), np.log(high)).map(lambda power: round(float(np.exp(power))))


BITS = st.sampled_from([1.0, 2.0, 3.3, 4.0, 8.0, 12.0, 16.0])
RATIO = st.floats(0, 1).map(lambda ratio: round(ratio, 3))
AXES_DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(MODELS),
    "hardware": st.sampled_from(CHIPS),
    "batch": length(1, 2000),
    "context": length(2000, 500_000),
    "output_tokens": st.sampled_from([0, 100, 3001]),
    "serving_mode": st.sampled_from(["static", "continuous"]),
    "weight_bits": st.sampled_from([0.0, 4.0, 8.0, 16.0]),
    "activation_bits": st.sampled_from([8.0, 16.0]),
    "key_bits": BITS,
    "value_bits": BITS,
    "kv_group_size": st.sampled_from([0, 32, 128]),
    "residual_window": st.sampled_from([0, 8]),
    "outlier_fraction": st.sampled_from([0.0, 0.01]),
    "retention": st.floats(0.1, 1).map(lambda ratio: round(ratio, 3)),
    "sink_tokens": st.sampled_from([0, 4]),
    "recent_tokens": st.sampled_from([0, 64]),
    "read_fraction": st.sampled_from([1.0, 0.2, 0.5]),
    "block_size": st.sampled_from([1, 16, 64, 100]),
    "reservation": st.sampled_from(["paged", "contiguous"]),
    "max_model_length": st.sampled_from([0, 1_000_000]),
    "prefix_share": st.sampled_from([0.0, 0.3, 0.5]),
    "prefix_group": st.sampled_from([1, 2, 7, 64]),
    "prefix_aware_attention": st.booleans(),
    "prefix_hit_rate": RATIO,
    "placement_host": st.sampled_from([0.0, 0.1, 0.4]),
    "placement_cxl": st.sampled_from([0.0, 0.05]),
    "placement_nvme": st.sampled_from([0.0, 0.2]),
    "placement_remote": st.sampled_from([0.0, 0.1]),
    "access": st.sampled_from(["streamed", "parked"]),
    "link_overlap": st.sampled_from([1.0, 0.5, 0.0]),
    "tensor_parallel": st.sampled_from([1, 2, 8]),
    "pipeline_parallel": st.sampled_from([1, 2, 3, 8]),
    "context_parallel": st.sampled_from([1, 2]),
    "attention_data_parallel": st.sampled_from([1, 3, 8]),
    "expert_parallel": st.sampled_from([1, 2, 8]),
    "expert_skew": st.sampled_from([0.0, 0.5, 3.0]),
    "draft_tokens": st.sampled_from([0, 1, 4]),
    "acceptance_rate": RATIO,
    "die_placement": st.sampled_from(["striped", "pinned"]),
    "utilisation": st.sampled_from([0.0, 0.5, 0.9]),
}
"""Values of every axis but names of quality families, prices and engines; placements add up to less than 1."""


def designs(**fixed: st.SearchStrategy[Any] | Any) -> st.SearchStrategy[dict[str, Any]]:
    """Random designs; some axes fixed, or drawn otherwise."""
    stated = {axis: how if isinstance(how, st.SearchStrategy) else st.just(how) for axis, how in fixed.items()}
    return st.fixed_dictionaries(AXES_DRAWN | stated).map(without_idle_ranks)


def without_idle_ranks(axes: dict[str, Any]) -> dict[str, Any]:
    """Expert ranks only where there are experts, and as many as divide the devices."""
    devices = axes["tensor_parallel"] * axes["context_parallel"] * axes["attention_data_parallel"]
    ranks = axes["expert_parallel"]
    return axes | {"expert_parallel": ranks if axes["model"] in ROUTED and devices % ranks == 0 else 1}


few = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
"""The same examples in every run."""
more = settings(few, max_examples=300)
"""Where a law is another in a small part of the designs."""

NEUTRAL: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3-8B", "hardware": "h100-sxm", "batch": 1, "context": 8192,
}  # fmt: skip
"""A plain design; what it does not name is neutral."""
NOWHERE = {f"placement_{tier}": 0.0 for tier in TIERS}


def bandwidths(axes: Numbers) -> tuple[float, list[float]]:
    """Bytes per second of device memory, and of the links of the placed tiers."""
    chip = design_of(axes).hardware
    links = [float(getattr(chip, tier).bandwidth.value) for tier in TIERS if axes[f"placement_{tier}"] > 0]
    return float(chip.memory_bandwidth), links
