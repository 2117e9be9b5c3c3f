"""Laws of remedies, tiers, parallel degrees and prefill that hold for every design: random designs of all axes.

Each example is a design of the pool below with any remedies; figures of tiers and links are assumed, so that every
time is known. Lengths of requests as people send them are in `test_length_distributions.py`.
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
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvwall.objectives import parallel, prefill, status, time
from kvwall.objectives.kv import Cache
from kvwall.objectives.register import metric_register
from kvwall.objectives.step import evaluate_step
from kvwall.objectives.weights import distinct_experts, experts_read
from kvwall.spaces.axes import AXES
from kvwall.spaces.columns import FLAG_FIELDS, Columns, load_catalogue, with_number
from kvwall.spaces.design import Design, Experts
from kvwall.spaces.space import make_space

pytestmark = pytest.mark.usefixtures("float64")

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
    register = metric_register("aggregate")
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


def test_every_axis_is_drawn() -> None:
    """But those that change only quality, prices, or the rules of an engine."""
    others = {"engine", "quantizer", "evictor", "question_visible", "price_basis", "scale_bits", "zero_bits"}
    assert set(AXES_DRAWN) == set(AXES) - others


@few
@given(designs())
def test_every_number_of_a_design_is_finite(axes: Numbers) -> None:
    """Or infinite for a reason. A pool of refusals would be found out: too many examples would be left out."""
    found = evaluated(axes)
    assume(found.possible)
    endless = {"max_context", "crossover_context_bytes", "break_even_context"}
    assert all(np.isfinite(number) or name in endless for name, number in found.metrics.items())
    assert found.metrics["tokens_per_second"] > 0


# Bytes of KV


@few
@given(designs(model=st.sampled_from((*FULL, *OTHERS))))
def test_devices_past_the_kv_heads_never_lower_a_devices_kv(axes: Numbers) -> None:
    """All models here have at most 16 KV heads: twice the devices hold and read the same, each."""
    some, more = (evaluated(axes, tensor_parallel=devices) for devices in (16, 32))
    for part in ("device_kv", "device_stored"):
        assert more.parts[part] == pytest.approx(some.parts[part], rel=TOLERANCE)
    assert more.metrics["kv_bytes_read"] == pytest.approx(2 * some.metrics["kv_bytes_read"], rel=TOLERANCE)


@few
@given(designs(model=ALL_WINDOW, prefix_share=0.0, output_tokens=0), st.sampled_from([1, 5000, 10**6]))
def test_windowed_kv_saturates(axes: Numbers, more: int) -> None:
    """Past a window of 4096 tokens in every layer nothing is added: not to what is stored, and not to what is read."""
    full, longer, shorter = (evaluated(axes, context=tokens) for tokens in (4096, 4096 + more, 4095))
    for metric in ("kv_bytes_stored", "kv_bytes_read"):
        assert longer.metrics[metric] == pytest.approx(full.metrics[metric], rel=TOLERANCE)
        assert shorter.metrics[metric] < full.metrics[metric]


@few
@given(designs(model=st.sampled_from((*FULL, *OTHERS))), BITS, BITS, st.sampled_from(["key_bits", "value_bits"]))
def test_bytes_increase_in_bits(axes: Numbers, one: float, other: float, axis: str) -> None:
    """Strictly below 16 bits: contexts here are beyond the residual window, and what is shared at most half."""
    low, high = sorted((one, other))
    assume(low < high < 16)
    tied = {"value_bits": "key_bits", "key_bits": "value_bits"}[axis]
    few_bits, more = (evaluated(axes, **{axis: bits, tied: axes[tied]}) for bits in (low, high))
    latent = axes["model"].startswith("deepseek") and axis == "value_bits"
    for metric in ("kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved"):
        if latent:
            assert more.metrics[metric] == few_bits.metrics[metric]
        else:
            assert more.metrics[metric] > few_bits.metrics[metric]


@few
@given(designs(prefix_group=1))
def test_no_more_is_read_than_stored_and_no_more_stored_than_reserved(axes: Numbers) -> None:
    """No layer shares another's store here; each drafted token reads the draft's layer once more."""
    found = evaluated(axes)
    assume(found.possible)
    read, stored, reserved = (found.metrics[f"kv_bytes_{what}"] for what in ("read", "stored", "reserved"))
    drafts, layers = axes["draft_tokens"], found.parts["layers"]
    again = (layers + drafts) / (layers + 1) if drafts else 1
    assert read <= stored * again * (1 + TOLERANCE)
    assert stored <= reserved * (1 + TOLERANCE)


@few
@given(designs(model=st.sampled_from(FULL), prefix_aware_attention=True), st.floats(0.01, 0.5))
def test_prefix_sharing_saves_in_proportion_to_the_share(axes: Numbers, share: float) -> None:
    """Nothing at share 0 or in a group of 1; of full attention without eviction twice as much at twice the share."""
    kept = {"retention": 1.0, "residual_window": 0, "block_size": 1, "batch": 64 * axes["batch"]}
    plain = evaluated(axes, prefix_share=0.0, **kept)
    once, twice = (evaluated(axes, prefix_share=times * share, **kept) for times in (1, 2))
    alone = evaluated(axes, prefix_share=share, prefix_group=1, **kept)
    for metric in ("kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved"):
        before = plain.metrics[metric]
        assert alone.metrics[metric] == before
        saved = before - once.metrics[metric]
        assert before - twice.metrics[metric] == pytest.approx(2 * saved, rel=1e-6, abs=TOLERANCE * before)
        assert saved > 0 if axes["prefix_group"] > 1 else saved == 0


def test_a_shared_prefix_by_hand() -> None:
    """Llama-3-8B, 16 sequences of 10,000 tokens at 128 KiB, 4000 common to groups of 4: 3 of 4 copies are spared."""
    axes = NEUTRAL | {"batch": 16, "context": 10_000, "prefix_share": 0.4, "prefix_group": 4}
    stored = 16 * 131_072 * (6000 + 4000 / 4)
    assert evaluated(axes).metrics["kv_bytes_stored"] == stored
    assert evaluated(axes).metrics["kv_bytes_read"] == 16 * 131_072 * 10_000
    assert evaluated(axes, prefix_aware_attention=True).metrics["kv_bytes_read"] == stored


# Paging


@few
@given(designs(reservation="paged", prefix_group=1), st.sampled_from([1, 16, 64, 100, 1000]))
def test_pages_reserve_at_most_a_block_more_than_is_stored(axes: Numbers, block: int) -> None:
    found = evaluated(axes, block_size=block)
    stored, reserved = found.metrics["kv_bytes_stored"], found.metrics["kv_bytes_reserved"]
    sequences = axes["batch"] * axes["tensor_parallel"] * axes["context_parallel"]
    padding = (block - 1) * found.parts["token_bytes"] * sequences
    assert stored * (1 - TOLERANCE) <= reserved <= (stored + padding) * (1 + TOLERANCE)


@few
@given(designs(), st.sampled_from([1, 16, 64, 128]), st.integers(0, 5000))
def test_reserving_at_once_is_never_less_than_by_pages(axes: Numbers, block: int, spare_blocks: int) -> None:
    """For a longest sequence of whole blocks; blocks divide the windows here."""
    longest = (-(-(axes["context"] + axes["output_tokens"]) // block) + spare_blocks) * block
    paged, at_once = (
        evaluated(axes, block_size=block, max_model_length=longest, reservation=how) for how in ("paged", "contiguous")
    )
    assert at_once.metrics["kv_bytes_reserved"] >= paged.metrics["kv_bytes_reserved"] * (1 - TOLERANCE)
    assert at_once.metrics["memory_margin"] <= paged.metrics["memory_margin"] + 1e-3


# Tiers


def bandwidths(axes: Numbers) -> tuple[float, list[float]]:
    """Bytes per second of device memory, and of the links of the placed tiers."""
    chip = design_of(axes).hardware
    links = [float(getattr(chip, tier).bandwidth.value) for tier in TIERS if axes[f"placement_{tier}"] > 0]
    return float(chip.memory_bandwidth), links


NOWHERE = {f"placement_{tier}": 0.0 for tier in TIERS}


@few
@given(designs(access="streamed", serving_mode="static", die_placement="striped", link_overlap=0.0))
def test_streaming_that_is_not_hidden_never_makes_a_step_faster(axes: Numbers) -> None:
    """Against the same design with room for everything in device memory, whose bandwidth is the larger."""
    assert evaluated(axes).parts["step"] >= evaluated(axes, **NOWHERE).parts["step"] * (1 - TOLERANCE)


@few
@given(designs(access="streamed", serving_mode="static", die_placement="striped"))
def test_streaming_gains_at_most_the_bandwidth_of_the_links(axes: Numbers) -> None:
    """Hidden transfers run beside device memory: a step's bytes over the sum of the bandwidths is the least time."""
    memory, links = bandwidths(axes)
    streamed, plain = evaluated(axes), evaluated(axes, **NOWHERE)
    assert streamed.parts["step"] >= plain.parts["hbm"] * memory / (memory + sum(links)) * (1 - TOLERANCE)
    assert streamed.parts["step"] >= streamed.parts["tier_link"]


@few
@given(designs(access="parked", prefix_hit_rate=0.0))
def test_parked_designs_never_read_over_a_link(axes: Numbers) -> None:
    """What decodes is in device memory, and is what is left of the batch."""
    found, outside = evaluated(axes), sum(axes[f"placement_{tier}"] for tier in TIERS)
    assert found.parts["tier_link"] == 0
    assert found.parts["bound_by"] != time.RESOURCES.index("tier_link")
    assert found.parts["active"] == pytest.approx(axes["batch"] * (1 - outside))
    if outside > 0:
        streamed = evaluated(axes, access="streamed")
        assert streamed.parts["tier_link"] > 0
        assert found.metrics["kv_bytes_read"] < streamed.metrics["kv_bytes_read"]


# Pipelines


@few
@given(designs())
def test_a_pipeline_is_never_faster_than_its_stages_allow(axes: Numbers) -> None:
    """So many stages have so many times the resources, of which only those with a micro-batch work."""
    one, several = evaluated(axes, pipeline_parallel=1), evaluated(axes)
    stages, micro = axes["pipeline_parallel"], several.parts["micro"]
    assert several.parts["step"] >= one.parts["step"] / min(stages, micro) * (1 - TOLERANCE)
    assert micro <= stages
    assert several.metrics["weight_bytes_read"] >= one.metrics["weight_bytes_read"] * (1 - TOLERANCE)


NEUTRAL: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3-8B", "hardware": "h100-sxm", "batch": 1, "context": 8192,
}  # fmt: skip


def test_a_pipeline_reads_its_weights_once_a_micro_batch() -> None:
    """70 billion parameters in 4 stages, 32 sequences of 8000 tokens: 4 micro-batches of 8.

    TPOT is 4 micro-batches of a stage's weights and the whole batch's KV of its layers. A quarter of the weights for
    the full batch would be 2.9 times optimistic.
    """
    axes = NEUTRAL | {"model": "paper/llama-3-70b", "hardware": "gb200-nvl72", "batch": 32, "context": 8000}
    found, one = evaluated(axes, pipeline_parallel=4), evaluated(axes)
    bandwidth, _ = bandwidths(axes | NOWHERE)
    read, written = 32 * 8000 * 327_680, 32 * 327_680
    design = design_of(axes)
    head = float(design.model.head.elements) * 2
    rows = 32 * float(design.model.embedding_row) * 2
    stage = 4 * ((one.metrics["weight_bytes_read"] - head - rows) / 4 + head) + rows + (read + written) / 4
    assert found.metrics["time_per_output_token"] == pytest.approx(stage / bandwidth, rel=1e-9)
    optimistic = one.metrics["time_per_output_token"] / 4
    assert found.metrics["time_per_output_token"] / optimistic == pytest.approx(2.9, abs=0.05)
    assert found.metrics["tokens_per_second"] == pytest.approx(32 / found.metrics["time_per_output_token"])


def test_a_pipeline_of_one_sequence_gains_nothing() -> None:
    one, four = (evaluated(NEUTRAL, pipeline_parallel=stages) for stages in (1, 4))
    assert four.parts["hbm"] == pytest.approx(one.parts["hbm"], rel=TOLERANCE)


# Speculation


@few
@given(designs(serving_mode="static"), st.integers(1, 8))
def test_speculation_yields_between_one_and_all_of_its_tokens(axes: Numbers, drafts: int) -> None:
    """Nothing is gained where none is accepted; the gain is at most a token for each drafted one."""
    plain = evaluated(axes, draft_tokens=0)
    none, some, most = (
        evaluated(axes, draft_tokens=drafts, acceptance_rate=rate) for rate in (0.0, axes["acceptance_rate"], 1.0)
    )
    assert none.metrics["time_per_output_token"] >= plain.metrics["time_per_output_token"] * (1 - TOLERANCE)
    assert most.metrics["time_per_output_token"] * (drafts + 1) == pytest.approx(none.metrics["time_per_output_token"])
    assert most.metrics["time_per_output_token"] <= some.metrics["time_per_output_token"] * (1 + TOLERANCE)
    assert some.metrics["time_per_output_token"] <= none.metrics["time_per_output_token"] * (1 + TOLERANCE)


def test_speculation_by_hand() -> None:
    """Llama-3-8B, 3 drafted tokens: a draft is a layer of 32 and the head, the KV is read once and 3 draft layers."""
    plain, found = evaluated(NEUTRAL), evaluated(NEUTRAL, draft_tokens=3, acceptance_rate=0.5)
    head, row = 2 * 128_256 * 4096, 2 * 4096
    layers = plain.metrics["weight_bytes_read"] - head - row
    assert found.metrics["weight_bytes_read"] == pytest.approx(layers + head + 3 * (layers / 32 + head) + 4 * row)
    assert found.metrics["kv_bytes_read"] == 8192 * 131_072 * (1 + 3 / 32)
    assert found.metrics["kv_bytes_stored"] == 8192 * 131_072 * (1 + 1 / 32)
    assert found.parts["step"] / found.metrics["time_per_output_token"] == pytest.approx(1 + 0.5 + 0.25 + 0.125)
    moved = found.metrics["weight_bytes_read"] + found.metrics["kv_bytes_read"] + 4 * 131_072 * 33 / 32
    assert found.parts["hbm"] == pytest.approx(moved / bandwidths(NEUTRAL | NOWHERE)[0])


# Experts

SKEW = st.floats(0, 50).map(lambda skew: round(skew, 6))


@given(st.integers(1, 400), st.data(), st.floats(1, 1e6), SKEW, SKEW)
@few
def test_distinct_experts_are_between_a_tokens_own_and_all(
    routed: int, data: st.DataObject, tokens: float, one: float, other: float
) -> None:
    """The more popular some are, the fewer are met."""
    active = data.draw(st.integers(1, routed))
    experts = Experts(1.0, float(routed), float(active), 1.0, 16.0, 16.0)
    even, uneven, more = (float(distinct_experts(experts, tokens, skew)) for skew in (0.0, *sorted((one, other))))
    assert active * (1 - TOLERANCE) <= more <= uneven * (1 + TOLERANCE)
    assert uneven <= even * (1 + TOLERANCE) <= routed * (1 + 2 * TOLERANCE)
    assert float(distinct_experts(experts, 1.0, one)) == pytest.approx(active)
    if active < routed and 1.5 < tokens < 50:
        assert float(distinct_experts(experts, tokens, 2.0)) < even


@given(st.integers(1, 256), st.integers(1, 256), SKEW, st.floats(1, 1e5))
@few
def test_the_busiest_expert_rank_has_the_mean_or_more(routed: int, ranks: int, skew: float, tokens: float) -> None:
    assume(ranks <= routed)
    experts = Experts(1.0, float(routed), min(2.0, routed), 1.0, 16.0, 16.0)
    hot = float(parallel.hot_rank(experts, skew, float(ranks)))
    assert 1 <= hot <= max(ranks, 1)
    assert hot == 1 or (ranks > 1 and skew > 0)
    read = float(experts_read(experts, tokens, skew, float(ranks)))
    mean = float(distinct_experts(experts, tokens, skew)) / ranks
    assert mean * (1 - TOLERANCE) <= read <= -(-routed // ranks) + TOLERANCE


# Prefill and reload


@few
@given(designs(model=st.sampled_from((*FULL, *OTHERS)), **NOWHERE), RATIO, RATIO)
def test_a_cached_prefix_never_delays_the_first_token(axes: Numbers, one: float, other: float) -> None:
    """A recurrent state would have to be read back, which is why models without one are drawn."""
    less, more = (evaluated(axes, prefix_hit_rate=rate).metrics["time_to_first_token"] for rate in sorted((one, other)))
    assert more <= less * (1 + TOLERANCE)


@few
@given(designs(model=st.sampled_from(FULL)))
def test_reloading_is_never_slower_than_computing_again(axes: Numbers) -> None:
    """As the faster of the two is done; without hits nothing is loaded."""
    found, none = evaluated(axes), evaluated(axes, prefix_hit_rate=0.0)
    assert found.metrics["time_to_first_token"] <= none.parts["recompute"] * (1 + TOLERANCE)
    assert none.metrics["time_to_first_token"] == pytest.approx(none.parts["recompute"], rel=TOLERANCE)


def test_the_first_token_by_hand() -> None:
    """Llama-3-8B, 8000 tokens: 2 FLOP a weight and token but for one head, and 4000 earlier tokens on average."""
    found = evaluated(NEUTRAL, context=8000)
    matrices = 2 * (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) * 8000 + 2 * 128_256 * 4096
    attention = 32 * 2 * 32 * 256 * 8000**2 / 2
    assert found.metrics["time_to_first_token"] == pytest.approx((matrices + attention) / 989.4e12, rel=1e-6)
    cached = evaluated(NEUTRAL, context=8000, prefix_hit_rate=0.75).metrics["time_to_first_token"]
    late = 2 * (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) * 2000 + 2 * 128_256 * 4096
    assert cached == pytest.approx((late + attention * (1 - 0.75**2)) / 989.4e12, rel=1e-6)


@few
@given(designs(), st.sampled_from(TIERS))
def test_at_the_break_even_bandwidth_reloading_takes_as_long_as_computing_again(axes: Numbers, tier: str) -> None:
    """The link of the only tier is given that bandwidth."""
    only = {**axes, **NOWHERE, f"placement_{tier}": 0.3}
    found = evaluated(only)
    design = design_of(only)
    link = replace(getattr(design.hardware, tier).bandwidth, value=np.float64(found.metrics["break_even_bandwidth"]))
    chip = replace(design.hardware, **{tier: replace(getattr(design.hardware, tier), bandwidth=link)})
    metrics, parts, _ = laws(replace(design, hardware=chip))
    assert float(metrics["reload_time"]) == pytest.approx(float(parts["recompute"]), rel=TOLERANCE)


def test_the_break_even_context_by_hand() -> None:
    """Over 5 GB/s a token of Llama-3-8B takes 26 us, more than its matrices' 14 us: attention makes up for it."""
    design = design_of(NEUTRAL)
    slow = replace(design.hardware.host, bandwidth=replace(design.hardware.host.bandwidth, value=np.float64(5e9)))
    design = replace(design, hardware=replace(design.hardware, host=slow))
    metrics, _, _ = laws(design)
    crossing = float(metrics["break_even_context"])
    matrices = 2 * (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) / 989.4e12
    attention = 32 * 2 * 32 * 256 / 2 / 989.4e12
    assert crossing == pytest.approx((131_072 / 5e9 - matrices) / attention, rel=1e-6)
    there = laws(with_number(design, "context", np.float64(crossing)))
    assert float(there[0]["reload_time"]) == pytest.approx(float(there[1]["recompute"]), rel=1e-3)
    fast = evaluated(NEUTRAL)
    assert fast.metrics["break_even_context"] == 0, "64 GB/s: 2 us a token"


# Capacity


def margin(axes: Numbers, **changed: Any) -> float:
    return evaluated(axes, **changed).metrics["memory_margin"]


@few
@given(designs())
def test_the_largest_batch_fits_and_one_more_does_not(axes: Numbers) -> None:
    found = evaluated(axes)
    assume(found.possible)
    most = found.metrics["max_batch"]
    slack = 1e-6 * (abs(found.metrics["memory_margin"]) + 1)
    assert 0 <= most < 1e15
    assert margin(axes, batch=most + 1) < slack
    if most >= 1:
        assert margin(axes, batch=most) >= -slack


@few
@given(designs())
def test_the_longest_context_fits_and_a_block_more_does_not(axes: Numbers) -> None:
    """One more token where pages have one; reserved at once, the longest sequence fits or none."""
    found = evaluated(axes)
    assume(found.possible)
    most = found.metrics["max_context"]
    slack = 1e-6 * (abs(found.metrics["memory_margin"]) + 1)
    if np.isinf(most):
        assert margin(axes, context=1e12, max_model_length=0) >= -slack
        return
    if most >= 1:
        assert margin(axes, context=most) >= -slack
    longer = max(most, 0) + 1
    stated = axes["max_model_length"]
    if not stated or longer + axes["output_tokens"] <= stated:
        assert margin(axes, context=longer) < slack
