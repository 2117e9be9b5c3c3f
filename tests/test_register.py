"""The register's contract: names, units and meanings are complete, every axis does something, neutral axes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import pytest

from kvwall.objectives.register import (
    LABELS,
    NOT_BUILT,
    STATUS_OK,
    TASK_NAMES,
    Evaluation,
    evaluate,
    metric_named,
    metric_register,
)
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import AXES
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from tests.designs import POINTS, Designs

TASKS = (
    "aggregate", "retrieval_easy", "retrieval_hard", "retrieval", "reasoning", "code", "summarisation", "perplexity",
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
UNITS = {"1", "s", "s-1", "byte", "FLOP byte-1", "J", "USD"}

BASE: dict[str, object] = {
    "model": "meta-llama/Meta-Llama-3-8B",
    "hardware": "h100-sxm",
    "batch": 16,
    "context": 30_000,
}
QUANTIZED = {"key_bits": 4, "value_bits": 4}
GROUPED = QUANTIZED | {"kv_group_size": 64}
EVICTED = {"retention": 0.5}
CHANGES: dict[str, tuple[Mapping[str, object], object]] = {
    "model": ({}, "meta-llama/Meta-Llama-3-70B"),
    "hardware": ({}, "b200-sxm"),
    "batch": ({}, 17),
    "context": ({}, 30_001),
    "output_tokens": ({}, 100),
    "weight_bits": ({}, 8),
    "activation_bits": ({}, 8),
    "key_bits": ({}, 8),
    "value_bits": ({}, 8),
    "kv_group_size": (QUANTIZED, 64),
    "scale_bits": (GROUPED, 8),
    "zero_bits": (GROUPED, 0),
    "residual_window": (QUANTIZED, 128),
    "outlier_fraction": (QUANTIZED, 0.01),
    "quantizer": (QUANTIZED, "naive"),
    "retention": ({}, 0.5),
    "sink_tokens": (EVICTED, 4),
    "recent_tokens": (EVICTED, 64),
    "evictor": (EVICTED, "position"),
    "question_visible": (EVICTED, False),
    "placement_host": ({}, 0.1),
    "tensor_parallel": ({}, 2),
    "utilisation": ({}, 0.9),
    "price_basis": ({}, "list"),
}
"""Axis -> what must be set for it to matter, and another value than its neutral one (or than BASE's)."""
ENDLESS = {"max_context", "crossover_context_bytes"}
"""Metrics that are infinite where KV does not grow, and 0 where a state alone is too much."""
ONE_VALUE = {"engine"}
"""Axes with a single value so far."""

WITHOUT_EFFECT: dict[str, Mapping[str, object]] = {
    "scales of ungrouped elements": {"scale_bits": 8, "zero_bits": 4},
    "groups at 16 bits": {"kv_group_size": 32},
    "outliers at 16 bits": {"outlier_fraction": 0.1},
    "a 16-bit window at 16 bits": {"residual_window": 128},
    "a quantizer at 16 bits": {"quantizer": "naive"},
    "pinned tokens with nothing evicted": {"sink_tokens": 64, "recent_tokens": 1024},
    "an evictor with nothing evicted": {"evictor": "random", "question_visible": False},
    "16 bits stated for a 16-bit checkpoint": {"weight_bits": 16},
}


laws = jax.jit(evaluate, static_argnames="task")


def single(stated: Mapping[str, object]) -> Evaluation:
    """One design."""
    space = make_space(stated)
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, laws(Columns(space, load_catalogue(space)).design({}), task="aggregate"))


def changed(one: Evaluation, other: Evaluation) -> set[str]:
    """Metrics, labels and masks that differ."""
    pairs: list[tuple[Mapping[str, object], Mapping[str, object]]] = [
        (one.metrics, other.metrics), (one.labels, other.labels), (one.sourced, other.sourced)
    ]  # fmt: skip
    return {name for before, after in pairs for name in before if not np.array_equal(before[name], after[name])}


def test_names_are_the_contracts() -> None:
    assert set(metric_register("aggregate")) | set(NOT_BUILT) == CONTRACT
    assert not set(metric_register("aggregate")) & set(NOT_BUILT)
    assert set(LABELS) == {"phase", "regime", "bound_by", "status"}
    assert set(TASK_NAMES) == set(TASKS)


@pytest.mark.parametrize("name", metric_register("aggregate"))
def test_a_metric_says_what_it_is(name: str) -> None:
    metric = metric_register("aggregate")[name]
    assert metric.name == name
    assert metric.unit in UNITS
    fitted = name.startswith("quality_loss") or name == "tier_bandwidth"
    assert metric.evidence == ("calibrated" if fitted else "derived")
    assert len(metric.meaning) > 10
    assert "\n" not in metric.meaning
    assert not metric.meaning.endswith(".")


@pytest.mark.parametrize("name", LABELS)
def test_a_label_says_what_it_is(name: str) -> None:
    label = LABELS[name]
    assert label.name == name
    assert len(set(label.meanings)) == len(label.meanings) > 1
    assert len(label.meaning) > 10


def test_label_codes_are_the_contracts() -> None:
    meanings = {name: label.meanings for name, label in LABELS.items()}
    assert meanings["phase"] == ("weight", "kv", "capacity")
    assert meanings["status"] == ("not_computed", "ok", "memory", "layout", "unsourced_input", "veto")
    assert meanings["status"][STATUS_OK] == "ok"
    assert meanings["bound_by"] == ("hbm", "compute", "scale_up", "tier_link", "overhead")
    assert meanings["regime"] == ("weight", "kv", *meanings["bound_by"][1:])


def test_codes_are_in_range_and_numbers_are_numbers(random_designs: Designs) -> None:
    found = laws(random_designs.design(), task="aggregate")
    for name, label in LABELS.items():
        codes = np.asarray(found.labels[name])
        assert np.issubdtype(codes.dtype, np.integer)
        assert codes.min() >= 0
        assert codes.max() < len(label.meanings)
    assert np.asarray(found.labels["status"]).min() > 0, "0 means not computed"
    for name in metric_register("aggregate"):
        numbers = np.broadcast_to(found.metrics[name], POINTS)[np.broadcast_to(found.sourced[name], POINTS)]
        assert np.all(np.isfinite(numbers) | (np.isposinf(numbers) & (name in ENDLESS)))
        assert np.all(numbers >= 0) or name == "memory_margin"
        assert np.all(numbers > 0) or name in {"memory_margin", "max_batch", *ENDLESS} or "_loss" in name


@pytest.mark.parametrize("task", TASKS)
def test_quality_loss_is_of_the_task_asked_for(task: str) -> None:
    space = make_space(BASE | QUANTIZED | EVICTED)
    design = Columns(space, load_catalogue(space)).design({})
    step, register, others = evaluate_step(design), metric_register(task), metric_register(TASKS[0])
    for bound in ("quality_loss", "quality_loss_upper"):
        assert register[bound].law(design, step) == others[f"{bound}_{task}"].law(design, step) > 0


def test_retrieval_is_the_worse_of_its_two_tasks() -> None:
    found = single(BASE | QUANTIZED | EVICTED).metrics
    easy, hard = found["quality_loss_retrieval_easy"], found["quality_loss_retrieval_hard"]
    assert easy != hard
    assert found["quality_loss_retrieval"] == max(easy, hard)


def test_an_unknown_task_or_metric_names_the_nearest() -> None:
    with pytest.raises(InputError, match="retrieval"):
        metric_register("retreival")
    with pytest.raises(InputError, match="tokens_per_second"):
        metric_named("token_per_second", "aggregate")
    with pytest.raises(InputError, match="prefill"):
        metric_named("time_to_first_token", "aggregate")


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_changes_something(axis: str) -> None:
    if axis in ONE_VALUE:
        assert len(AXES[axis].names) == 1
        return
    needed, value = CHANGES[axis]
    before = BASE | needed
    assert changed(single(before), single(before | {axis: value}))


@pytest.mark.parametrize("axis", [name for name, one in AXES.items() if not one.required])
def test_a_neutral_axis_is_as_if_absent(axis: str) -> None:
    """Also where the other remedies are at work."""
    busy = {**BASE, **GROUPED, **EVICTED, "placement_host": 0.1, "tensor_parallel": 2, "weight_bits": 8}
    absent = {name: value for name, value in busy.items() if name != axis}
    assert changed(single(absent), single(absent | {axis: AXES[axis].neutral})) == set()


@pytest.mark.parametrize("knob", WITHOUT_EFFECT)
def test_a_knob_of_an_idle_remedy_changes_nothing(knob: str) -> None:
    assert changed(single(BASE), single(BASE | WITHOUT_EFFECT[knob])) == set()


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


def open_grid() -> tuple[Columns, dict[str, np.ndarray]]:
    """GRID with one dimension per axis."""
    space = make_space(GRID)
    along = np.ix_(*(np.arange(length) for length in space.shape))
    return Columns(space, load_catalogue(space)), dict(zip(space.dims, along, strict=True))


@pytest.mark.usefixtures("float64")
def test_a_grid_holds_the_numbers_of_its_designs() -> None:
    """One dimension per axis or one design after another: the same, so nothing broadcasts along a wrong dimension."""
    columns, positions = open_grid()
    space = columns.space
    flat = dict(zip(space.dims, np.unravel_index(np.arange(space.size), space.shape), strict=True))
    grid, points = laws(columns.design(positions), task="aggregate"), laws(columns.design(flat), task="aggregate")
    for name in grid.metrics:
        spread = np.broadcast_to(grid.metrics[name], space.shape).ravel()
        np.testing.assert_allclose(spread, points.metrics[name], rtol=1e-14, err_msg=name)
    for name in grid.labels:
        assert np.array_equal(np.broadcast_to(grid.labels[name], space.shape).ravel(), points.labels[name]), name


def test_a_metric_keeps_the_shape_of_the_axes_it_depends_on() -> None:
    columns, positions = open_grid()
    found = jax.eval_shape(lambda: evaluate(columns.design(positions), "retrieval")).metrics
    dims = columns.space.dims

    def axes_of(name: str) -> set[str]:
        return {axis for axis, length in zip(dims, found[name].shape, strict=True) if length > 1}

    assert axes_of("weight_bytes_read") == {"model", "batch", "tensor_parallel"}
    assert axes_of("kv_bytes_stored") == {"model", "batch", "context", "key_bits", "retention", "tensor_parallel"}
    assert axes_of("quality_loss_retrieval") == {"context", "key_bits", "retention", "evictor"}
    assert axes_of("cost_per_million_tokens") == set(dims) - {"evictor"}
