"""A second, plain-Python account of one decode step, for tests to compare the package with.

It shares no code with the package: scalars, `math` and searches by bisection instead of arrays and
closed forms, so that an error has to be made twice, in two different ways, to go unnoticed. Every layout
of attention and routed experts and every axis but those of quality, engine ideal, ceiling mode. SI units: bytes,
seconds, FLOP, joules, US dollars. The parts are the files `oracle_*.py`; this one is their front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.oracle_given import AxisValue, Given, Routed, Store
from tests.oracle_kv import Shared, reserved, stored
from tests.oracle_memory import Memory
from tests.oracle_prefill import Prefill
from tests.oracle_time import Step, crossover
from tests.oracle_veto import veto_of
from tests.oracle_work import messages

__all__ = ["IGNORED", "NEUTRAL", "WORDS", "Answer", "Given", "Memory", "Routed", "Step", "Store", "given", "oracle"]

Answer = Mapping[str, float | str | None]
NEUTRAL: dict[str, AxisValue] = {
    "batch": 1,
    "output_tokens": 0,
    "serving_mode": "static",
    "weight_bits": None,
    "activation_bits": 16,
    "key_bits": 16,
    "value_bits": 16,
    "kv_group_size": 0,
    "scale_bits": 16,
    "zero_bits": 16,
    "residual_window": 0,
    "outlier_fraction": 0,
    "retention": 1,
    "sink_tokens": 0,
    "recent_tokens": 0,
    "read_fraction": 1,
    "block_size": 1,
    "reservation": "paged",
    "max_model_length": 0,
    "prefix_share": 0,
    "prefix_group": 1,
    "prefix_aware_attention": False,
    "prefix_hit_rate": 0,
    "placement_host": 0,
    "placement_cxl": 0,
    "placement_nvme": 0,
    "placement_remote": 0,
    "access": "streamed",
    "link_overlap": 1,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "context_parallel": 1,
    "attention_data_parallel": 1,
    "expert_parallel": 1,
    "expert_skew": 0,
    "draft_tokens": 0,
    "acceptance_rate": 0.7,
    "die_placement": "striped",
    "utilisation": None,
    "quantizer": "structure_aware",
    "evictor": "query_aware",
    "question_visible": True,
    "hard_retrieval": False,
}
"""Neutral values; `hard_retrieval` is no axis but what the workload asks for."""
WORDS: dict[str, AxisValue] = {"weight_bits": None, "max_model_length": 0, "utilisation": None}
"""What an axis's word stands for: the checkpoint's formats, no stated length, an engine that takes all."""
IGNORED = {"model", "hardware", "engine", "price_basis", "weight_quantizer"}


def given(model: Mapping[str, Any], hardware: Mapping[str, float | None], axes: Mapping[str, AxisValue]) -> Given:
    """A design with axes that are not given neutral; `context` is required, an unknown axis a KeyError."""
    unknown = set(axes) - set(NEUTRAL) - IGNORED - {"context"}
    if unknown:
        raise KeyError(f"unknown axes {sorted(unknown)}")
    return Given(model, hardware, NEUTRAL | dict(axes))


def speed(step: Step) -> dict[str, float | str | None]:
    """Metrics that need the step time; all None when a figure is unsourced."""
    names = ("tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user")
    bound, regime, distance = step.regime
    labels = {"bound_by": bound, "regime": regime, "regime_distance": distance}
    seconds, price, devices = step.seconds, step.given.hardware["price"], step.given.devices
    if seconds is None:
        unknown = (*names, "time_per_output_token", "cost_per_million_tokens")
        return dict.fromkeys(unknown) | labels
    rate, each = step.tokens / seconds, seconds / step.given.accepted
    found = dict(zip(names, (rate, rate / devices, 1 / each), strict=True))
    cost = None if price is None else devices * price / rate * 1e6
    return {**found, "time_per_output_token": each, "cost_per_million_tokens": cost, **labels}


def first_token(step: Step) -> dict[str, float | str | None]:
    """Metrics of prefill, unknown where the step's are; those of a reload where a link is."""
    prefill = Prefill(step.given)
    link = prefill.reload_link
    dark = step.unsourced
    return {
        "time_to_first_token": None if dark else prefill.first_token,
        "reload_time": None if dark or link is None else prefill.sequence_bytes / link,
        "break_even_bandwidth": None if dark else prefill.break_even_bandwidth,
        "break_even_context": None if dark else prefill.break_even_context,
    }


def oracle(
    model: Mapping[str, Any], hardware: Mapping[str, float | None], axes: Mapping[str, AxisValue]
) -> dict[str, float | str | None]:
    """Every non-quality metric and label of one decode step; None where it is unknown.

    `model` has sizes, parameter counts and bits by tensor class, its `stores`, and `routed` experts if any;
    stored bits stand for payload bits where those are not given. A `hardware` figure of None has no source.
    Where the axes contradict each other there is a status and nothing else.
    """
    design = given(model, hardware, axes)
    if Step(design).meaningless:
        return {"status": "layout", "veto": veto_of(design)}
    step, memory = Step(design), Memory(design)
    context, batch = design.axis("context"), design.axis("batch")
    output, copies = design.axis("output_tokens"), design.copies(design.on_rank(batch))
    all_ranks = design.rank_devices * batch
    return {
        **speed(step),
        **first_token(step),
        "weight_bytes_read": step.replica_weights,
        "kv_bytes_read": step.replica_kv(step.kv_read),
        "kv_bytes_stored": all_ranks * stored(design, context + output, Shared(copies, output)),
        "kv_bytes_reserved": all_ranks * reserved(design, context, copies),
        "memory_margin": memory.margin(context, batch),
        "kv_pool_bytes": memory.pool,
        "kv_pool_tokens": memory.pool_tokens,
        "kv_pool_blocks": memory.pool_blocks,
        "max_concurrency": memory.concurrency,
        "max_batch": memory.max_batch,
        "max_context": memory.max_context,
        "messages_per_step": messages(design),
        "arithmetic_intensity": step.intensity,
        "ridge_point": step.ridge,
        "energy_per_token": step.energy,
        "crossover_context_bytes": crossover(design),
        "phase": step.phase,
        "status": step.status,
        "veto": veto_of(design),
    }
