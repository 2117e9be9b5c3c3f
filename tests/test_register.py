"""The register's contract: names, units and meanings are complete, every axis does something, neutral axes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from kvwall.objectives.register import (
    LABELS,
    STATUS_OK,
    TASK_NAMES,
    Evaluation,
    evaluate,
    label_register,
    metric_named,
    metric_register,
    not_built,
)
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import AXES
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from tests.designs import POINTS, Designs

TASKS = (
    "aggregate", "retrieval_easy", "retrieval_hard", "retrieval", "reasoning", "code", "summarisation", "perplexity",
    "ruler",
)  # fmt: skip
CONTRACT = {
    "tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user", "time_per_output_token",
    "time_to_first_token", "weight_bytes_read", "kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved",
    "memory_margin", "max_batch", "max_context", "kv_pool_bytes", "kv_pool_blocks", "kv_pool_tokens",
    "max_concurrency", "arithmetic_intensity", "ridge_point", "quality_loss", "quality_loss_upper",
    "energy_per_token", "cost_per_million_tokens", "crossover_context_bytes", "crossover_context_time",
    "tier_bandwidth",
    "regime_distance", *(f"quality_loss_{task}" for task in TASKS), *(f"quality_loss_upper_{task}" for task in TASKS),
}  # fmt: skip
BEYOND = {"messages_per_step", "tier_bandwidth", "reload_time", "break_even_bandwidth", "break_even_context"}
"""Not in the contract."""
DETAILS = BEYOND | {"kv_pool_bytes", "kv_pool_blocks", "kv_pool_tokens", "max_concurrency"}
"""A sweep summarises them where a study names them."""
UNITS = {"1", "s", "s-1", "byte", "byte s-1", "FLOP byte-1", "J", "USD"}

BASE: dict[str, object] = {
    "model": "meta-llama/Meta-Llama-3-8B",
    "hardware": "h100-sxm",
    "batch": 16,
    "context": 30_000,
}
QUANTIZED = {"key_bits": 4, "value_bits": 4}
GROUPED = QUANTIZED | {"kv_group_size": 64}
EVICTED = {"retention": 0.5}
SHARED = {"prefix_share": 0.5, "prefix_group": 4}
EXPERTS = {"model": "mistralai/Mixtral-8x7B-v0.1", "tensor_parallel": 8}
LINKS = {f"{tier}_link_bandwidth": "50 GB/s" for tier in ("cxl", "nvme", "remote")}
ENERGIES = {f"{tier}_energy": "10 pJ/bit" for tier in ("cxl", "nvme", "remote")}
ASSUMED = {"h100-sxm": LINKS | ENERGIES}
"""What the catalogue has no source for, so that every axis can matter on one chip."""

SPEED = {
    "tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user", "time_per_output_token",
    "cost_per_million_tokens",
}  # fmt: skip
TRAFFIC = {"arithmetic_intensity", "energy_per_token", "crossover_context_bytes"}
ROOM = {"memory_margin", "max_batch", "max_context"}
POOL = {"kv_pool_bytes", "kv_pool_blocks", "kv_pool_tokens", "max_concurrency"}
PAGES = {"tier_bandwidth"}
BOUND = {"regime_distance", "bound_by", "regime"}
FITS = {"phase", "status"}
LOSS = {"quality_loss", "quality_loss_upper"}
KEPT = {"kv_bytes_stored", "kv_bytes_reserved"}


@dataclass(frozen=True)
class Change:
    """What must be set for an axis to matter, another value than its neutral one, and what that changes."""

    needed: Mapping[str, object]
    value: object
    must: set[str]
    """Names that must differ."""
    may: set[str] | None = None
    """The only others that may; None = any."""


CHANGES: dict[str, Change] = {
    "model": Change({}, "meta-llama/Meta-Llama-3-70B", {"weight_bytes_read", "kv_bytes_read", "time_to_first_token"}),
    "hardware": Change({}, "b200-sxm", SPEED | ROOM | {"ridge_point"}),
    "engine": Change({}, "vllm", ROOM | POOL, {"kv_bytes_reserved"} | FITS | PAGES),
    "batch": Change({}, 17, SPEED | {"kv_bytes_read", "memory_margin"}),
    "context": Change({}, 30_001, SPEED | KEPT | {"kv_bytes_read", "time_to_first_token"}),
    "output_tokens": Change({}, 100, SPEED | KEPT | {"max_context"}),
    "serving_mode": Change({"output_tokens": 100}, "continuous", SPEED | TRAFFIC, BOUND | {"weight_bytes_read"}),
    "weight_bits": Change({}, 8, {"weight_bytes_read", "quality_loss"}),
    "weight_quantizer": Change({"weight_bits": 4}, "naive", LOSS, set()),
    "activation_bits": Change({"tensor_parallel": 2}, 8, {"memory_margin"} | LOSS),
    "key_bits": Change({}, 8, KEPT | LOSS | {"kv_bytes_read"}),
    "value_bits": Change({}, 8, KEPT | LOSS | {"kv_bytes_read"}),
    "kv_group_size": Change(QUANTIZED, 64, KEPT | {"kv_bytes_read"}),
    "scale_bits": Change(GROUPED, 8, KEPT | {"kv_bytes_read"}),
    "zero_bits": Change(GROUPED, 0, KEPT | {"kv_bytes_read"}),
    "residual_window": Change(QUANTIZED, 128, KEPT | {"kv_bytes_read"}),
    "outlier_fraction": Change(QUANTIZED, 0.01, KEPT | {"kv_bytes_read"}),
    "quantizer": Change(QUANTIZED, "naive", LOSS, set()),
    "retention": Change({}, 0.5, KEPT | LOSS | {"kv_bytes_read"}),
    "sink_tokens": Change(EVICTED, 4, KEPT | LOSS | {"kv_bytes_read"}),
    "recent_tokens": Change(EVICTED, 64, KEPT | LOSS | {"kv_bytes_read"}),
    "evictor": Change(EVICTED, "streaming_llm", LOSS, set()),
    "question_visible": Change(EVICTED, False, LOSS, set()),
    "read_fraction": Change({}, 0.5, SPEED | TRAFFIC | KEPT | {"kv_bytes_read", "quality_loss"}),
    "block_size": Change(
        {}, 64, {"kv_bytes_reserved", "memory_margin", "max_context"}, {"max_batch"} | POOL | FITS | PAGES
    ),
    "reservation": Change(
        {"max_model_length": 40_000}, "contiguous", ROOM | {"kv_bytes_reserved"}, POOL | FITS | PAGES
    ),
    "max_model_length": Change({"reservation": "contiguous"}, 40_000, ROOM | {"kv_bytes_reserved"}, POOL | FITS),
    "prefix_share": Change({"prefix_group": 4}, 0.5, ROOM | KEPT, POOL - {"kv_pool_bytes"} | FITS),
    "prefix_group": Change({"prefix_share": 0.5}, 4, ROOM | KEPT, POOL - {"kv_pool_bytes"} | FITS),
    "prefix_aware_attention": Change(SHARED, True, SPEED | TRAFFIC | {"kv_bytes_read"}, BOUND | {"phase"}),
    "prefix_hit_rate": Change({}, 0.5, {"time_to_first_token"}, set()),
    "placement_host": Change({}, 0.1, SPEED | ROOM | BOUND | {"energy_per_token"}, POOL | FITS),
    "placement_cxl": Change({}, 0.1, SPEED | ROOM | BOUND | {"energy_per_token", "reload_time"}, POOL | FITS | PAGES),
    "placement_nvme": Change({}, 0.1, SPEED | ROOM | BOUND | {"energy_per_token", "reload_time"}, POOL | FITS | PAGES),
    "placement_remote": Change(
        {}, 0.1, SPEED | ROOM | BOUND | {"energy_per_token", "reload_time"}, POOL | FITS | PAGES
    ),
    "access": Change({"placement_host": 0.25}, "parked", SPEED | BOUND | {"kv_bytes_read", "weight_bytes_read"}),
    "link_overlap": Change({"placement_host": 0.05}, 0, SPEED, set()),
    "tensor_parallel": Change({}, 2, SPEED | ROOM | {"messages_per_step", "weight_bytes_read", "time_to_first_token"}),
    "pipeline_parallel": Change({}, 2, SPEED | ROOM | {"messages_per_step", "weight_bytes_read"}),
    "context_parallel": Change({}, 2, SPEED | ROOM | {"messages_per_step", "time_to_first_token", "reload_time"}),
    "attention_data_parallel": Change({}, 2, SPEED | ROOM | {"messages_per_step", "weight_bytes_read"}),
    "expert_parallel": Change(EXPERTS | {"batch": 1}, 8, SPEED, BOUND),
    "expert_skew": Change(EXPERTS, 1.0, SPEED | TRAFFIC | {"weight_bytes_read"}, BOUND | {"phase"}),
    "draft_tokens": Change({}, 3, SPEED | TRAFFIC | KEPT | {"kv_bytes_read", "weight_bytes_read"}),
    "acceptance_rate": Change({"draft_tokens": 3}, 0.5, SPEED | {"energy_per_token"}, set()),
    "die_placement": Change({"hardware": "b200-sxm", "batch": 1}, "pinned", {"time_per_output_token"}, SPEED | BOUND),
    "utilisation": Change({}, 0.9, ROOM | POOL, FITS),
    "price_basis": Change({}, "list", {"cost_per_million_tokens"}, set()),
}
MAY_BE_NONE = {"max_batch", "messages_per_step", "kv_pool_blocks", "kv_pool_tokens", "max_concurrency"}
SIGNED = {"memory_margin", "kv_pool_bytes"}
ENDLESS = {"max_context", "crossover_context_bytes", "break_even_context"}
"""Metrics that are infinite where KV does not grow, and 0 where a state alone is too much."""
WITHOUT_EFFECT: dict[str, Mapping[str, object]] = {
    "scales of ungrouped elements": {"scale_bits": 8, "zero_bits": 4},
    "groups at 16 bits": {"kv_group_size": 32},
    "outliers at 16 bits": {"outlier_fraction": 0.1},
    "a 16-bit window at 16 bits": {"residual_window": 128},
    "a quantizer at 16 bits": {"quantizer": "naive"},
    "pinned tokens with nothing evicted": {"sink_tokens": 64, "recent_tokens": 1024},
    "an evictor with nothing evicted": {"evictor": "random", "question_visible": False},
    "16 bits stated for a 16-bit checkpoint": {"weight_bits": 16},
    "a share of a prefix with nobody": {"prefix_share": 0.9},
    "a group with no prefix": {"prefix_group": 8},
    "attention aware of prefixes that are not": {"prefix_aware_attention": True},
    "acceptance without drafts": {"acceptance_rate": 0.1},
    "overlap of links that carry nothing": {"link_overlap": 0.0},
    "parking none": {"access": "parked"},
    "all at once of what is needed": {"reservation": "contiguous"},
    "popularity of experts that are not": {"expert_skew": 2.0},
    "one die": {"die_placement": "pinned"},
    "all memory": {"utilisation": 1.0},
}


laws = jax.jit(evaluate, static_argnames="task")


def single(stated: Mapping[str, object]) -> Evaluation:
    """One design."""
    space = make_space(stated)
    assume = {name: figures for name, figures in ASSUMED.items() if name == stated["hardware"]}
    with jax.enable_x64(True):
        design = Columns(space, load_catalogue(space, assume)).design({})
        return jax.tree.map(np.asarray, laws(design, task="aggregate"))


def changed(one: Evaluation, other: Evaluation) -> set[str]:
    """Metrics, labels and masks that differ."""
    pairs: list[tuple[Mapping[str, object], Mapping[str, object]]] = [
        (one.metrics, other.metrics), (one.labels, other.labels), (one.sourced, other.sourced)
    ]  # fmt: skip
    return {name for before, after in pairs for name in before if not np.array_equal(before[name], after[name])}


def test_names_are_the_contracts() -> None:
    register = metric_register("aggregate", "ceiling")
    assert set(register) | set(not_built("ceiling")) == CONTRACT | BEYOND
    assert {name for name, metric in register.items() if not metric.summarised} == DETAILS
    assert not set(register) & set(not_built("ceiling"))
    assert "time_to_first_token" in register
    assert set(label_register("ceiling")) == {"phase", "regime", "bound_by", "status", "veto"}
    assert set(TASK_NAMES) == set(TASKS)


@pytest.mark.parametrize("name", metric_register("aggregate", "ceiling"))
def test_a_metric_says_what_it_is(name: str) -> None:
    metric = metric_register("aggregate", "ceiling")[name]
    assert metric.name == name
    assert metric.unit in UNITS
    fitted = name.startswith("quality_loss") or name == "tier_bandwidth"
    assert metric.evidence == ("calibrated" if fitted else "derived")
    assert len(metric.meaning) > 10
    assert "\n" not in metric.meaning
    assert not metric.meaning.endswith(".")


@pytest.mark.parametrize("name", label_register("ceiling"))
def test_a_label_says_what_it_is(name: str) -> None:
    label = LABELS[name]
    assert label.name == name
    assert len(set(label.meanings)) == len(label.meanings) > 1
    assert len(label.meaning) > 10


def test_label_codes_are_the_contracts() -> None:
    meanings = {name: label.meanings for name, label in label_register("ceiling").items()}
    assert meanings["phase"] == ("weight", "kv", "capacity")
    assert meanings["status"] == ("not_computed", "ok", "memory", "layout", "unsourced_input", "veto")
    assert meanings["status"][STATUS_OK] == "ok"
    assert meanings["veto"] == ("none", "k_outliers", "naive_low_bits", "blind_retrieval")
    assert meanings["bound_by"] == ("hbm", "compute", "scale_up", "tier_link", "overhead")
    assert meanings["regime"] == ("weight", "kv", *meanings["bound_by"][1:])


def test_codes_are_in_range_and_numbers_are_numbers(random_designs: Designs) -> None:
    found = laws(random_designs.design(), task="aggregate")
    for name, label in label_register("ceiling").items():
        codes = np.asarray(found.labels[name])
        assert np.issubdtype(codes.dtype, np.integer)
        assert codes.min() >= 0
        assert codes.max() < len(label.meanings)
    assert np.asarray(found.labels["status"]).min() > 0, "0 means not computed"
    possible = np.asarray(found.labels["status"]) != LABELS["status"].meanings.index("layout")
    assert possible.mean() > 0.1
    for name in metric_register("aggregate", "ceiling"):
        known = np.broadcast_to(found.sourced[name], POINTS) & possible
        numbers = np.broadcast_to(found.metrics[name], POINTS)[known]
        assert np.all(np.isfinite(numbers) | (np.isposinf(numbers) & (name in ENDLESS))), name
        assert np.all(numbers >= 0) or name in SIGNED
        assert np.all(numbers > 0) or name in SIGNED | MAY_BE_NONE | ENDLESS or "_loss" in name


@pytest.mark.parametrize("task", TASKS)
def test_quality_loss_is_of_the_task_asked_for(task: str) -> None:
    space = make_space(BASE | QUANTIZED | EVICTED)
    design = Columns(space, load_catalogue(space)).design({})
    step, register, others = (
        evaluate_step(design),
        metric_register(task, "ceiling"),
        metric_register(TASKS[0], "ceiling"),
    )
    for bound in ("quality_loss", "quality_loss_upper"):
        assert register[bound].law(design, step) == others[f"{bound}_{task}"].law(design, step) > 0


def test_a_budget_of_the_mean_is_no_budget_of_its_worst_part() -> None:
    found = single(BASE | QUANTIZED | EVICTED).metrics
    tiers = [found[f"quality_loss_{task}"] for task in ("aggregate", "retrieval_easy", "retrieval_hard")]
    assert min(tiers) < found["quality_loss_ruler"] < max(tiers)


def test_retrieval_is_the_worse_of_its_two_tasks() -> None:
    found = single(BASE | QUANTIZED | EVICTED).metrics
    easy, hard = found["quality_loss_retrieval_easy"], found["quality_loss_retrieval_hard"]
    assert easy != hard
    assert found["quality_loss_retrieval"] == max(easy, hard)


def test_an_unknown_task_or_metric_names_the_nearest() -> None:
    with pytest.raises(InputError, match="retrieval"):
        metric_register("retreival", "ceiling")
    with pytest.raises(InputError, match="tokens_per_second"):
        metric_named("token_per_second", "aggregate", "ceiling")
    with pytest.raises(InputError, match="only an estimate"):
        metric_named("crossover_context_time", "aggregate", "ceiling")


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_changes_what_it_should(axis: str) -> None:
    change = CHANGES[axis]
    before = BASE | change.needed
    found = changed(single(before), single(before | {axis: change.value}))
    assert change.must - found == set()
    if change.may is not None:
        of_tasks = {name for name in found if name.startswith("quality_loss_") and name not in LOSS}
        assert found - change.must - change.may - (of_tasks if change.must & LOSS else set()) == set()


BUSY: dict[str, object] = {
    **BASE, **GROUPED, **EVICTED, **SHARED, "prefix_aware_attention": True, "prefix_hit_rate": 0.5, "weight_bits": 8,
    "read_fraction": 0.5, "block_size": 64, "max_model_length": 40_000, "placement_host": 0.1, "placement_nvme": 0.05,
    "link_overlap": 0.5, "tensor_parallel": 2, "pipeline_parallel": 2, "context_parallel": 2, "draft_tokens": 2,
    "attention_data_parallel": 2, "output_tokens": 100, "serving_mode": "continuous", "utilisation": 0.9,
}  # fmt: skip
"""Most remedies at once."""


@pytest.mark.parametrize("axis", [name for name, one in AXES.items() if not one.required])
def test_a_neutral_axis_is_as_if_absent(axis: str) -> None:
    """Also where the other remedies are at work."""
    absent = {name: value for name, value in BUSY.items() if name != axis}
    assert changed(single(absent), single(absent | {axis: AXES[axis].neutral})) == set()


@pytest.mark.parametrize("knob", WITHOUT_EFFECT)
def test_a_knob_of_an_idle_remedy_changes_nothing(knob: str) -> None:
    assert changed(single(BASE), single(BASE | WITHOUT_EFFECT[knob])) - PAGES == set()


def test_what_costs_nothing_here_may_matter_for_what_else_would_fit() -> None:
    """A sequence alone shares its prefix with none, a context of whole pages fills them: others would not."""
    alone = BASE | {"batch": 1}
    assert changed(single(alone), single(alone | {"prefix_share": 0.9, "prefix_group": 8})) == {"max_batch"} | POOL - {
        "kv_pool_bytes"
    }
    pages = {"max_context", "kv_pool_blocks"} | PAGES
    assert changed(single(BASE), single(BASE | {"block_size": 16})) == pages
    assert changed(single(BASE), single(BASE | {"max_model_length": 1_000_000})) == {"max_concurrency"}


def test_the_neutral_design_is_the_plain_model() -> None:
    """8 billion 16-bit weights less the input table, 128 KiB of KV a token, nothing lost."""
    found = single(BASE).metrics
    assert found["kv_bytes_read"] == found["kv_bytes_stored"] == 16 * 30_000 * 131_072
    assert found["weight_bytes_read"] == 2 * (8_030_261_248 - 128_256 * 4096) + 16 * 2 * 4096
    assert [name for name, number in found.items() if name.startswith("quality_loss") and number != 0] == []


GRID: dict[str, list[object]] = {
    "model": ["meta-llama/Meta-Llama-3-8B", "facebook/opt-13b"],
    "hardware": ["h100-sxm", "mi300x"],
    "batch": [1, 64],
    "context": [1000, 100_000],
    "key_bits": [16, 3],
    "retention": [1.0, 0.25],
    "evictor": ["query_aware", "position"],
    "tensor_parallel": [1, 8],
    "price_basis": ["cloud", "list"],
}
REMEDIES: dict[str, list[object]] = {
    "model": ["openai/gpt-oss-120b"],
    "hardware": ["b200-sxm"],
    "batch": [1, 50],
    "context": [20_000],
    "output_tokens": [100],
    "serving_mode": ["continuous"],
    "read_fraction": [0.2],
    "block_size": [64],
    "reservation": ["paged", "contiguous"],
    "prefix_share": [0.5],
    "prefix_group": [1, 8],
    "access": ["streamed", "parked"],
    "placement_host": [0.3],
    "pipeline_parallel": [1, 5],
    "attention_data_parallel": [2, 4],
    "expert_parallel": [2],
    "expert_skew": [1.0],
    "draft_tokens": [0, 3],
    "die_placement": ["pinned"],
}


def open_grid(stated: Mapping[str, object] = GRID) -> tuple[Columns, dict[str, np.ndarray]]:
    """A grid with one dimension per axis."""
    space = make_space(stated)
    along = np.ix_(*(np.arange(length) for length in space.shape))
    return Columns(space, load_catalogue(space)), dict(zip(space.dims, along, strict=True))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("stated", [GRID, REMEDIES], ids=["compression", "remedies"])
def test_a_grid_holds_the_numbers_of_its_designs(stated: Mapping[str, object]) -> None:
    """One dimension per axis or one design after another: the same, so nothing broadcasts along a wrong dimension."""
    columns, positions = open_grid(stated)
    space = columns.space
    flat = dict(zip(space.dims, np.unravel_index(np.arange(space.size), space.shape), strict=True))
    grid, points = laws(columns.design(positions), task="aggregate"), laws(columns.design(flat), task="aggregate")
    for name in grid.metrics:
        spread = np.broadcast_to(grid.metrics[name], space.shape).ravel()
        one_by_one = np.broadcast_to(points.metrics[name], space.size)
        counted = 1 if name in {"kv_pool_blocks", "kv_pool_tokens"} else 0  # a quotient just at a whole number
        np.testing.assert_allclose(spread, one_by_one, rtol=1e-14, atol=counted, err_msg=name)
    for name in grid.labels:
        one_by_one = np.broadcast_to(points.labels[name], space.size)
        assert np.array_equal(np.broadcast_to(grid.labels[name], space.shape).ravel(), one_by_one), name


def test_a_metric_keeps_the_shape_of_the_axes_it_depends_on() -> None:
    columns, positions = open_grid()
    found = jax.eval_shape(lambda: evaluate(columns.design(positions), "retrieval")).metrics
    dims = columns.space.dims

    def axes_of(name: str) -> set[str]:
        return {axis for axis, length in zip(dims, found[name].shape, strict=True) if length > 1}

    assert axes_of("ridge_point") == {"model", "hardware"}
    prompts = {"context"}  # of arriving requests, where serving is continuous
    assert axes_of("weight_bytes_read") == {"model", "batch", "tensor_parallel"} | prompts
    assert axes_of("kv_bytes_stored") == {"model", "batch", "context", "key_bits", "retention", "tensor_parallel"}
    assert axes_of("quality_loss_retrieval") == {"context", "key_bits", "retention", "evictor"}
    assert axes_of("cost_per_million_tokens") == set(dims) - {"evictor"}
