"""Gradients of every metric: equal to finite differences inside, finite at every neutral setting, of the right sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.objectives import kv
from kvwall.objectives.register import evaluate, metric_register
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import NATIVE
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.design import Design
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import load_model, loadable_model_names
from kvwall.spaces.space import Space, make_space
from tests.designs import Designs

pytestmark = [pytest.mark.usefixtures("float64"), pytest.mark.long]

TASK = "aggregate"
COUNTED = ("max_batch", "max_context", "kv_pool_blocks", "kv_pool_tokens")
"""Whole numbers: steps, whose derivative is 0 where there is one."""
WHOLE = (
    ".parallel.", ".model.groups.kv_heads", ".kv_format.group_size", ".model.layers", ".hardware.memory_domains.value",
    ".hardware.scale_up_domain", ".engine.", ".model.states.",
)  # fmt: skip
"""Numbers that stay whole: `ceil(kv_heads / n)` jumps at every sensible value; a group is a count of elements.

Engines count blocks, graphs and groups of layers; they have tests of their own.
"""
LAYOUTS = (
    "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V4-Pro", "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "google/gemma-3-27b-it", "openai/gpt-oss-120b", "mistralai/Mamba-Codestral-7B-v0.1", "meta-llama/Llama-2-70b-hf",
)  # fmt: skip
"""One of each way to keep KV is among the interior designs."""
INTERIOR = 40
TIERS = ("host", "cxl", "nvme", "remote")
STEP = 1e-6
Vector = Any


def smooth() -> list[str]:
    """The metrics that have derivatives."""
    return [name for name in metric_register(TASK, "ceiling") if name not in COUNTED]


def placements(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Some of the KV in every tier, most of what is out of device memory in one of them, more or less of it."""
    shares = random.dirichlet([0.3] * len(TIERS), INTERIOR) + 0.01
    outside = random.choice([0.01, 0.1, 0.5, 0.8], INTERIOR) * random.uniform(0.8, 1.1, INTERIOR)
    parts = shares / shares.sum(axis=1, keepdims=True) * outside[:, None]
    return {f"placement_{tier}": parts[:, place] for place, tier in enumerate(TIERS)}


def figures() -> dict[str, str]:
    """Assumed for every chip, so that the figures of all tiers are known; too small a capacity for some designs."""
    found = {"scale_out_bandwidth": "20 GB/s", "memory_domains": "3", "host_link_bandwidth": "64 GB/s"}
    for number, tier in enumerate(TIERS):
        found[f"{tier}_capacity"] = f"{60 + 20 * number} GB"
        if tier != "host":
            found |= {f"{tier}_link_bandwidth": f"{50 - 10 * number} GB/s", f"{tier}_energy": "12 pJ/bit"}
    return found


@cache
def interior() -> tuple[Space, dict[str, np.ndarray]]:
    """Random designs at which nothing is neutral, at its end, or on a format's boundary."""
    random = np.random.default_rng(4)
    draws: dict[str, np.ndarray] = {
        "batch": random.integers(2, 300, INTERIOR),
        "context": random.integers(3000, 300_000, INTERIOR),
        "output_tokens": random.integers(10, 3000, INTERIOR),
        "weight_bits": random.choice([0, 2.1, 3.3, 5.2, 7.1, 9.7, 15.1], INTERIOR),
        "activation_bits": random.choice([3.2, 6.1, 7.3, 13.5], INTERIOR),
        "key_bits": random.uniform(1.5, 15.5, INTERIOR),
        "value_bits": random.uniform(1.5, 15.5, INTERIOR),
        "kv_group_size": random.integers(16, 129, INTERIOR),
        "scale_bits": random.uniform(4, 32, INTERIOR),
        "zero_bits": random.uniform(4, 32, INTERIOR),
        "residual_window": random.integers(16, 500, INTERIOR),
        "outlier_fraction": random.uniform(0.001, 0.02, INTERIOR),
        "retention": random.uniform(0.1, 0.95, INTERIOR),
        "sink_tokens": random.integers(1, 100, INTERIOR),
        "recent_tokens": random.integers(10, 1000, INTERIOR),
        "read_fraction": random.uniform(0.1, 0.9, INTERIOR),
        "block_size": random.choice([16, 31, 64], INTERIOR),
        "max_model_length": random.choice([400_001, 700_001], INTERIOR),
        "reservation": random.choice(["paged", "paged", "contiguous"], INTERIOR),
        "prefix_share": random.uniform(0.1, 0.9, INTERIOR),
        "prefix_group": random.choice([2, 3, 9], INTERIOR),
        "prefix_aware_attention": random.choice([True, False], INTERIOR),
        "prefix_hit_rate": random.uniform(0.1, 0.9, INTERIOR),
        "serving_mode": random.choice(["static", "static", "continuous"], INTERIOR),
        **placements(random),
        "access": random.choice(["streamed", "streamed", "parked"], INTERIOR),
        "link_overlap": random.uniform(0.05, 0.95, INTERIOR),
        "tensor_parallel": random.choice([2, 4, 8, 16], INTERIOR),
        "pipeline_parallel": random.choice([1, 2, 3], INTERIOR),
        "context_parallel": random.choice([1, 1, 2], INTERIOR),
        "attention_data_parallel": random.choice([1, 2, 5], INTERIOR),
        "expert_parallel": random.choice([1, 2], INTERIOR),
        "expert_skew": random.uniform(0.1, 4, INTERIOR),
        "draft_tokens": random.choice([1, 2, 5], INTERIOR),
        "acceptance_rate": random.uniform(0.1, 0.9, INTERIOR),
        "die_placement": random.choice(["striped", "pinned"], INTERIOR),
        "utilisation": random.uniform(0.3, 0.98, INTERIOR),
        "model": np.array([*LAYOUTS, *random.choice(loadable_model_names(), INTERIOR - len(LAYOUTS))]),
        "hardware": random.choice(hardware_names(), INTERIOR),
    }
    found = {axis: np.unique(values, return_inverse=True) for axis, values in draws.items()}
    stated = {axis: values.tolist() for axis, (values, _) in found.items()}
    stated["weight_bits"] = [NATIVE if value == 0 else value for value in stated["weight_bits"]]
    space = make_space(stated)
    return space, {axis: places.astype(np.int32) for axis, (_, places) in found.items()}


def unlike() -> list[str]:
    """The metrics whose laws differ: of the tasks one accuracy, the worst of two, and perplexity."""
    laws = {
        "quality_loss_upper",
        "quality_loss_retrieval",
        "quality_loss_upper_retrieval",
        "quality_loss_upper_perplexity",
    }
    return [name for name in metric_register(TASK, "ceiling") if not name.startswith("quality_loss_") or name in laws]


def as_float64(leaf: Any) -> Any:
    """Numbers at full precision; flags as they are."""
    leaf = np.asarray(leaf)
    return leaf if leaf.dtype == bool else leaf.astype(np.float64)


def one_by_one(columns: Columns, positions: dict[str, np.ndarray]) -> list[Design]:
    """The designs as scalars, one after another."""
    count = len(next(iter(positions.values())))
    taken = ({axis: np.asarray(places[i]) for axis, places in positions.items()} for i in range(count))
    return [jax.tree.map(as_float64, columns.design(one)) for one in taken]


def interior_designs() -> list[Design]:
    """The interior designs."""
    space, positions = interior()
    catalogue = load_catalogue(space, dict.fromkeys(map(str, space.values("hardware")), figures()))
    return one_by_one(Columns(space, catalogue), positions)


def leaf_names(design: Design) -> list[str]:
    """Every continuous number of a design."""
    leaves = jax.tree_util.tree_leaves_with_path(design)
    names = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    return [name for name, leaf in names if leaf.dtype != bool and not name.startswith(WHOLE)]


def sizes(design: Design) -> np.ndarray:
    """The size of each continuous number, the largest of an array's."""
    wanted = set(leaf_names(design))
    leaves = jax.tree_util.tree_leaves_with_path(design)
    return np.array([np.abs(leaf).max() for path, leaf in leaves if jax.tree_util.keystr(path) in wanted])


def metrics_at(
    design: Design, amounts: Vector, names: Sequence[str] = tuple(metric_register(TASK, "ceiling"))
) -> Vector:
    """Metrics of the design with each continuous number moved by its amount."""
    place = {name: number for number, name in enumerate(leaf_names(design))}

    def moved(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        return leaf + amounts[place[name]] if name in place else leaf

    found = evaluate(jax.tree_util.tree_map_with_path(moved, design), TASK)
    return jnp.stack([jnp.asarray(found.metrics[name], dtype=float) for name in names])


UNFUSED = {"xla_disable_hlo_passes": "fusion"}
"""Fusing a program as large as the gradient of all metrics takes many minutes; one that runs once need not be fast."""

laws = jax.jit(evaluate, static_argnames="task")
slopes = jax.jit(jax.jacfwd(metrics_at, argnums=1), compiler_options=UNFUSED)
reverse = jax.jit(
    jax.grad(lambda design, amounts: jnp.sum(metrics_at(design, amounts, unlike())), argnums=1),
    compiler_options=UNFUSED,
)
batched = jax.jit(jax.vmap(metrics_at, in_axes=(None, 0)))


def differences(design: Design) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Central differences per relative change; whether both sides agree, else a kink lies between; the metrics."""
    size = sizes(design)
    count = len(size)
    moves = np.concatenate([np.eye(count), -np.eye(count), np.zeros((1, count))]) * size * STEP
    values = np.nan_to_num(np.asarray(batched(design, moves)), posinf=0.0)  # what is endless has no slope
    up, down, here = values[:count], values[count:-1], values[-1]
    ahead, behind = (up - here).T / STEP, (here - down).T / STEP
    allowed = 1e-3 * (np.abs(here)[:, None] + np.abs(ahead))
    return (ahead + behind) / 2, np.abs(ahead - behind) <= allowed, here


@cache
def compared() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Derivatives, differences, smoothness and the metrics' sizes: design, metric, number."""
    rows = []
    for design in interior_designs():
        numeric, agree, here = differences(design)
        exact = np.asarray(slopes(design, np.zeros(len(leaf_names(design))))) * sizes(design)
        rows.append((exact, numeric, agree, np.abs(here)[:, None]))
    exact, numeric, agree, size = (np.stack(column) for column in zip(*rows, strict=True))
    return exact, numeric, agree, size


@pytest.mark.parametrize("metric", smooth())
def test_equal_to_finite_differences(metric: str) -> None:
    """d metric / d ln(number), for every continuous number of the design, quality parameters and prices included."""
    row = list(metric_register(TASK, "ceiling")).index(metric)
    exact, numeric, agree, size = (table[:, row] for table in compared())
    assert np.all(np.isfinite(exact))
    assert agree.mean() > 0.99
    error = np.abs(exact - numeric) / np.maximum(size + np.abs(numeric), np.finfo(float).tiny)
    assert np.max(error[agree]) < 1e-6


UNUSED = {".hardware.reported_capacity"}
"""Read by engines other than the ideal one."""


def test_every_number_moves_some_metric() -> None:
    """Gradients that were all zero would agree with themselves: each number has an effect somewhere."""
    exact, _, _, _ = compared()
    moved_by = dict(zip(leaf_names(interior_designs()[0]), np.abs(exact).max(axis=(0, 1)), strict=True))
    silent = {name for name, effect in moved_by.items() if effect == 0}
    classes = ("query_output", "key_value", "ffn", "head", "router", "experts")
    formats = {f".model.{name}.native_format_bits" for name in classes}
    assert silent == formats | UNUSED, "only what is compared with, not computed with, is silent"


NEUTRAL = {"model": "meta-llama/Meta-Llama-3-8B", "hardware": "h100-sxm", "context": 8192}
EDGES: dict[str, dict[str, object]] = {
    "neutral": {},
    "nothing stated but the paper's model": {"model": "paper/llama-3-70b", "hardware": "paper/b200"},
    "all in host memory": {"placement_host": 1.0},
    "pinned tokens fill the context": {"retention": 0.5, "sink_tokens": 8192},
    "one token": {"context": 1, "retention": 0.5},
    "window past the context": {"residual_window": 10_000, "key_bits": 4, "value_bits": 4},
    "one bit": {"key_bits": 1, "value_bits": 1, "weight_bits": 1, "retention": 0.01},
    "outliers only": {"outlier_fraction": 1.0, "key_bits": 2},
    "does not fit": {"batch": 1_000_000, "tensor_parallel": 3},
    "unsourced": {"hardware": "groq-lpu1", "tensor_parallel": 8, "placement_host": 0.5},
    "learned positions": {"model": "facebook/opt-13b"},
    "several devices": {"tensor_parallel": 64, "activation_bits": 8},
    "all streamed from all tiers": {f"placement_{tier}": 0.25 for tier in TIERS},
    "more placed than there is": {"placement_host": 1.0, "placement_remote": 1.0, "access": "parked"},
    "all parked": {"placement_host": 1.0, "access": "parked", "prefix_hit_rate": 1.0},
    "one of four decodes": {"placement_cxl": 0.75, "access": "parked", "prefix_hit_rate": 0.5, "link_overlap": 0.0},
    "all in common, all found": {
        "prefix_share": 1.0,
        "prefix_group": 8,
        "batch": 3,
        "prefix_hit_rate": 1.0,
        "prefix_aware_attention": True,
    },
    "a common prefix and eviction": {
        "prefix_share": 1.0,
        "prefix_group": 8,
        "batch": 64,
        "retention": 0.3,
        "sink_tokens": 4,
        "recent_tokens": 8188,
        "residual_window": 128,
        "key_bits": 2,
    },
    "hardly anything read": {"read_fraction": 1e-6, "block_size": 1_000_000},
    "too short for the context": {"max_model_length": 1, "reservation": "contiguous"},
    "prompts without outputs": {"serving_mode": "continuous"},
    "prompts and outputs": {"serving_mode": "continuous", "output_tokens": 1, "batch": 512, "prefix_hit_rate": 1.0},
    "nothing accepted": {"draft_tokens": 64, "acceptance_rate": 0.0},
    "everything accepted": {"draft_tokens": 1, "acceptance_rate": 1.0},
    "more stages than layers": {"pipeline_parallel": 64, "batch": 1},
    "more ranks than sequences": {"attention_data_parallel": 8, "context_parallel": 32, "pipeline_parallel": 2},
    "a rank for every expert": {
        "model": "mistralai/Mixtral-8x7B-v0.1",
        "tensor_parallel": 8,
        "expert_parallel": 8,
        "expert_skew": 100.0,
    },
    "experts of a dense model": {"expert_parallel": 8, "expert_skew": 1.0},
    "a sequence on one of several dies": {"hardware": "b200-sxm", "die_placement": "pinned"},
    "another engine": {"engine": "vllm", "batch": 8},
}


@pytest.mark.parametrize("edge", EDGES)
def test_no_gradient_is_nan_at_an_edge(edge: str) -> None:
    """Neutral settings, ends of ranges and designs that cannot be: all metrics against all numbers."""
    space = make_space(NEUTRAL | EDGES[edge])
    design = jax.tree.map(as_float64, Columns(space, load_catalogue(space)).design({}))
    still = np.zeros(len(leaf_names(design)))
    bad = np.argwhere(~np.isfinite(np.asarray(slopes(design, still))))
    names = list(metric_register(TASK, "ceiling"))
    assert [(names[m], leaf_names(design)[n]) for m, n in bad] == []
    assert np.all(np.isfinite(np.asarray(reverse(design, still))))


def test_no_gradient_is_nan_anywhere(random_designs: Designs) -> None:
    """Reverse mode through all metrics of a thousand designs at once: one NaN or infinity would show."""

    def total(design: Design) -> Vector:
        metrics = evaluate(design, TASK).metrics
        return sum(jnp.sum(metrics[name]) for name in unlike())

    design = jax.tree.map(as_float64, random_designs.design())
    found = jax.tree_util.tree_leaves_with_path(
        jax.jit(jax.grad(total, allow_int=True), compiler_options=UNFUSED)(design)
    )
    slopes_of = {jax.tree_util.keystr(path): leaf for path, leaf in found if leaf.dtype == np.float64}
    assert len(slopes_of) > 60
    assert [name for name, leaf in slopes_of.items() if not np.all(np.isfinite(leaf))] == []


def summed(bits: Vector, name: str, axis: str, design: Design) -> Vector:
    """A metric at other KV bits, summed over designs, so that its gradient is each design's own."""
    kv_format = replace(design.kv_format, **{axis: bits})
    return jnp.sum(evaluate(replace(design, kv_format=kv_format), TASK).metrics[name])


BYTES = ("kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved")


@pytest.mark.parametrize("metric", BYTES)
@pytest.mark.parametrize("axis", ["key_bits", "value_bits"])
def test_more_bits_are_more_bytes(random_designs: Designs, metric: str, axis: str) -> None:
    """Everywhere a quantized element is left outside the residual window, in any store."""
    design = jax.tree.map(as_float64, random_designs.design())
    slope = np.asarray(jax.grad(summed)(getattr(design.kv_format, axis), metric, axis, design))
    groups, cache = design.model.groups, evaluate_step(design).ledger.cache
    context = design.workload.context + design.workload.output_tokens
    if metric == "kv_bytes_read":
        entries, _ = cache.read_entries(context - design.workload.output_tokens / 2)
    else:
        entries = kv.entries(kv.held_tokens(context, groups.window), cache.kept_fraction(context), groups)
    elements = groups.layers * getattr(groups, axis.replace("bits", "dim"))
    outside = np.any((np.asarray(entries) > np.asarray(cache.recent)) & (elements > 0), axis=0)
    assert outside.mean() > 0.5
    assert np.all(slope[outside] > 0)
    assert np.all(slope >= 0)


def with_more(design: Design, figure: str) -> Design:
    """The design on a chip with half as much again of one figure, which may be a tier's."""
    tier, _, field = figure.partition(".")
    if field:
        now = getattr(design.hardware, tier)
        value = getattr(now, field)
        more = replace(value, value=value.value * 1.5) if hasattr(value, "known") else value * 1.5
        return replace(design, hardware=replace(design.hardware, **{tier: replace(now, **{field: more})}))
    now = getattr(design.hardware, figure)
    more = replace(now, value=now.value * 1.5) if hasattr(now, "known") else now * 1.5
    return replace(design, hardware=replace(design.hardware, **{figure: more}))


SPEEDS = ["memory_bandwidth", "bf16_flops", "fp8_flops", "fp4_flops", "scale_up_bandwidth", "scale_out_bandwidth"]


@pytest.mark.parametrize("figure", [*SPEEDS, *(f"{tier}.bandwidth" for tier in TIERS)])
def test_a_faster_chip_is_never_slower(random_designs: Designs, figure: str) -> None:
    design = random_designs.design()
    found = [laws(one, task=TASK).metrics["time_per_output_token"] for one in (design, with_more(design, figure))]
    before, after = map(np.asarray, found)
    assert np.all(after <= before)
    assert np.any(after < before)


def test_more_memory_never_holds_less(random_designs: Designs) -> None:
    design = random_designs.design()
    before, after = (laws(one, task=TASK).metrics for one in (design, with_more(design, "memory_capacity")))
    for name in ("memory_margin", *COUNTED):
        assert np.all(np.asarray(after[name]) >= np.asarray(before[name]))
        assert np.any(np.asarray(after[name]) > np.asarray(before[name]))


@pytest.mark.parametrize("tier", TIERS)
def test_a_larger_tier_never_holds_less(tier: str) -> None:
    grew = False
    for design in interior_designs():
        before, after = (laws(one, task=TASK).metrics for one in (design, with_more(design, f"{tier}.capacity")))
        for name in ("memory_margin", "max_batch", "max_context"):
            assert float(after[name]) >= float(before[name])
            grew = grew or float(after[name]) > float(before[name])
    assert grew


@pytest.mark.parametrize("name", ["meta-llama/Meta-Llama-3-8B", "tiiuae/falcon-7b", "facebook/opt-13b"])
def test_devices_past_the_kv_heads_never_lower_a_devices_kv(name: str) -> None:
    (group,) = load_model(name).groups
    devices = [*range(1, 2 * group.kv_heads + 1), 4 * group.kv_heads, 16 * group.kv_heads]
    space = make_space(NEUTRAL | {"model": name, "tensor_parallel": devices})
    design = Columns(space, load_catalogue(space)).design({"tensor_parallel": np.arange(len(devices))})
    found = np.asarray(evaluate(design, TASK).metrics["kv_bytes_read"]) / np.array(devices)
    past = np.array(devices) >= group.kv_heads
    assert np.all(np.diff(found) <= 0)
    np.testing.assert_allclose(found[past], found[0] / group.kv_heads, rtol=1e-14)
