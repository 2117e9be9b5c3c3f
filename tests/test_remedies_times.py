"""Tiers, pipelines, speculation, experts and prefill: laws that hold for random designs of all axes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvwall.objectives import parallel, time
from kvwall.objectives.weights import distinct_experts, experts_read
from kvwall.spaces.columns import with_number
from kvwall.spaces.design import Experts
from tests.drawn_designs import (
    FULL,
    NEUTRAL,
    NOWHERE,
    OTHERS,
    RATIO,
    TIERS,
    TOLERANCE,
    Numbers,
    bandwidths,
    design_of,
    designs,
    evaluated,
    few,
    laws,
)

pytestmark = pytest.mark.usefixtures("float64")


# Tiers


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
    alone = evaluated(axes, batch=found.parts["active"], access="streamed", **NOWHERE)
    assert found.parts["step"] == pytest.approx(alone.parts["step"], rel=1e-6), "as if the others were not there"
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

SKEW = st.sampled_from([1.0, 50.0]).flatmap(lambda most: st.floats(0, most)).map(lambda skew: round(skew, 6))


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


def test_the_busiest_expert_rank_by_hand() -> None:
    """64 experts on 8 ranks, squared coefficient of variation 0.5: a sum of 8 has 1/16."""
    experts = Experts(1.0, 64.0, 2.0, 1.0, 16.0, 16.0)
    assert float(parallel.hot_rank(experts, 0.5, 8.0)) == pytest.approx(1 + np.sqrt(2 * np.log(8) / 16))
    assert float(parallel.hot_rank(experts, 100.0, 8.0)) == 8, "no rank has more than all"


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
