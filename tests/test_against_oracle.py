"""A thousand random designs over the catalogue: the laws against an independent account in plain Python."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from kvwall.objectives.register import Evaluation, evaluate, label_register
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.space import make_space
from tests.designs import FAMILIES, POINTS, Designs
from tests.oracle import NEUTRAL, Given, Memory, Step, oracle
from tests.oracle_kv import read_by_step
from tests.oracle_prefill import Prefill
from tests.oracle_words import Case, case

SEARCHED = ("max_batch", "max_context")
METRICS = (
    "tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user", "time_per_output_token",
    "time_to_first_token", "weight_bytes_read", "kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved",
    "messages_per_step", "arithmetic_intensity", "ridge_point", "energy_per_token", "cost_per_million_tokens",
    "reload_time", "break_even_bandwidth",
)  # fmt: skip
ROOM = ("memory_margin", "kv_pool_bytes")
DIFFERENCES = (*ROOM, "regime_distance", "crossover_context_bytes", "break_even_context")
"""Metrics that are a difference of larger numbers, or hang on one."""
REQUESTS = {"max_concurrency": 0, "kv_pool_tokens": 1, "kv_pool_blocks": 1}
"""How many requests fill the pool, and by how much one rounding moves them."""
FLOAT64, FLOAT32 = 1e-13, 2e-6
"""Largest relative errors: rounding of some hundreds of operations, tens of times the last place."""


@pytest.fixture(scope="module")
def designs(random_designs: Designs) -> Designs:
    """The random designs."""
    return random_designs


@pytest.fixture(scope="module")
def cases(designs: Designs) -> list[Case]:
    """The oracle's account of all of them."""
    return [case(designs, index) for index in range(POINTS)]


def evaluated(designs: Designs, *, wide: bool) -> Evaluation:
    """The laws' account, at 64 or 32 bits."""
    with jax.enable_x64(wide):
        found = jax.jit(evaluate, static_argnames="task")(designs.design(), task="aggregate")
        assert found.metrics["time_per_output_token"].dtype == (np.float64 if wide else np.float32)
        return jax.tree.map(np.asarray, found)


@pytest.fixture(scope="module", params=[FLOAT64, FLOAT32], ids=["float64", "float32"])
def bound(request: pytest.FixtureRequest) -> float:
    """The relative error allowed."""
    return float(request.param)


@pytest.fixture(scope="module")
def laws(designs: Designs, bound: float) -> Evaluation:
    """What the laws say, in the precision under test."""
    return evaluated(designs, wide=bound == FLOAT64)


def column(cases: list[Case], name: str) -> np.ndarray:
    """The oracle's values of one metric; NaN where unknown, or where a design contradicts itself."""
    found = [one.answer.get(name) for one in cases]
    return np.array([math.nan if number is None else number for number in found], dtype=np.float64)


@pytest.fixture(scope="module")
def consistent(cases: list[Case]) -> np.ndarray:
    """Where the axes do not contradict each other; elsewhere there is a status and no number means anything."""
    found = np.array([not Step(one.given).meaningless for one in cases])
    assert found.mean() > 0.8
    return found


@pytest.mark.parametrize("name", [*METRICS, *SEARCHED, *DIFFERENCES, *REQUESTS])
def test_unknown_where_the_oracle_says_so(
    laws: Evaluation, cases: list[Case], consistent: np.ndarray, name: str
) -> None:
    known = np.broadcast_to(laws.sourced[name], POINTS)
    assert np.array_equal(known[consistent], ~np.isnan(column(cases, name)[consistent]))


@pytest.mark.parametrize("name", METRICS)
def test_metric(laws: Evaluation, cases: list[Case], bound: float, name: str) -> None:
    expected = column(cases, name)
    known = ~np.isnan(expected)
    assert known.sum() > POINTS / 20
    np.testing.assert_allclose(laws.metrics[name][known], expected[known], rtol=bound)


@pytest.mark.parametrize("name", ROOM)
def test_room_to_a_share_of_the_capacity(
    laws: Evaluation, cases: list[Case], consistent: np.ndarray, bound: float, name: str
) -> None:
    capacity = np.array([one.given.hardware["memory_capacity"] for one in cases])
    expected = column(cases, name)
    # What is subtracted can be many times the capacity; its rounding is not the margin's fault.
    scale = np.maximum(capacity, np.abs(expected))
    error = np.abs(laws.metrics[name] - expected) / scale
    assert np.max(error[consistent]) < bound


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_in_the_pool(
    laws: Evaluation, cases: list[Case], consistent: np.ndarray, bound: float, name: str
) -> None:
    """Equal as far as the room for KV is known, which is a part of the capacity."""
    expected, found = column(cases, name), laws.metrics[name]
    for index in np.flatnonzero(consistent):
        capacity, room = cases[index].given.hardware["memory_capacity"], cases[index].answer["kv_pool_bytes"]
        assert isinstance(room, float)
        assert isinstance(capacity, float)
        # The little that tiers leave to HBM is known as well as the much that they hold.
        loose = 4 * bound * max(capacity / abs(room), 1 / max(1 - cases[index].given.outside, bound))
        near = math.isclose(float(found[index]), float(expected[index]), rel_tol=loose, abs_tol=REQUESTS[name])
        assert near, (index, found[index], expected[index])


def test_crossover(laws: Evaluation, cases: list[Case], consistent: np.ndarray, bound: float) -> None:
    """The same context; in float32, where KV grows so slowly that rounding moves it, one that reads as much."""
    moved = 0
    expected, found = column(cases, "crossover_context_bytes"), laws.metrics["crossover_context_bytes"]
    for index in np.flatnonzero(consistent):
        here, there, design = float(found[index]), float(expected[index]), cases[index].given
        if not math.isclose(here, there, rel_tol=bound):
            moved += 1
            read = Step(design).replica_kv(read_by_step(design, here))
            assert math.isclose(read, Step(design).replica_weights, rel_tol=4 * bound), (index, here, there)
    assert moved <= (POINTS / 100 if bound == FLOAT32 else 0)
    assert np.any(expected == 0)
    assert np.any(np.isinf(expected))
    assert np.isfinite(expected[consistent]).mean() > 0.9


def test_break_even_context(laws: Evaluation, cases: list[Case], bound: float) -> None:
    """The same context, within rounding of the larger of the two times per token that are subtracted."""
    expected = column(cases, "break_even_context")
    for index in np.flatnonzero(~np.isnan(expected)):
        here, there = float(laws.metrics["break_even_context"][index]), float(expected[index])
        linear, quadratic = Prefill(cases[index].given).growth
        loose = math.inf if quadratic == 0 else bound * linear / quadratic
        assert math.isclose(here, there, rel_tol=2 * bound, abs_tol=loose), (index, here, there)
    assert np.any(expected == 0)
    assert np.any(expected > 0)


def test_regime_distance(laws: Evaluation, cases: list[Case], bound: float) -> None:
    expected = column(cases, "regime_distance")
    known = ~np.isnan(expected)
    np.testing.assert_allclose(laws.metrics["regime_distance"][known], expected[known], atol=bound)


@pytest.mark.parametrize("name", SEARCHED)
def test_largest_that_fits(
    laws: Evaluation, cases: list[Case], consistent: np.ndarray, bound: float, name: str
) -> None:
    """The same whole number; in float32 one next to which the oracle's margin passes 0, but for rounding."""
    differ = 0
    expected, found = column(cases, name), laws.metrics[name]
    for index in np.flatnonzero(consistent):
        if found[index] == expected[index].astype(found.dtype):
            continue
        differ += 1
        used = around(cases[index].given, name, found[index])
        capacity = cases[index].given.hardware["memory_capacity"]
        assert capacity is not None
        # The little that tiers leave to HBM is known as well as the much that they hold.
        loose = bound * capacity / max(1 - cases[index].given.outside, bound)
        assert used[0] >= -loose, (index, found[index], expected[index])
        assert used[1] < loose, (index, found[index], expected[index])
    assert differ <= (POINTS / 4 if bound == FLOAT32 else 0)


def around(design: Given, name: str, found: np.floating) -> tuple[float, float]:
    """The margins at a largest number and at the next, which are a rank's sequences or a page's tokens away."""
    # Whole numbers that are apart in this precision stand for those between them.
    apart = float(np.spacing(found)) if np.spacing(found) > 1 else 0.0
    step = design.ranks if name == "max_batch" else design.axis("block_size")
    most, margins = float(found), []
    for count in (most - apart, most + step + apart):
        tokens, batch = design.axis("context"), design.axis("batch")
        tokens, batch = (tokens, count) if name == "max_batch" else (count, batch)
        margins.append(Memory(design).margin(tokens, batch))
    left, right = margins
    assert left is not None
    assert right is not None
    return left, right


def test_labels(laws: Evaluation, cases: list[Case], bound: float) -> None:
    """Equal, but where two quantities are equal within rounding."""
    for name, label in label_register("ceiling").items():
        for index, one in enumerate(cases):
            expected, code = one.answer.get(name), int(laws.labels[name][index])
            if expected is not None and label.meanings[code] != expected:
                assert at_boundary(one, 4 * bound), (name, index, label.meanings[code], expected)


def at_boundary(one: Case, bound: float) -> bool:
    """Whether a label of this design hangs on a difference within rounding."""
    step, margin, distance = Step(one.given), one.answer["memory_margin"], one.answer["regime_distance"]
    capacity = one.given.hardware["memory_capacity"]
    assert isinstance(margin, float)
    assert capacity is not None
    pairs = [(step.replica_kv(step.kv_read), step.replica_weights), (margin + capacity, capacity), step.hbm_shares]
    near = isinstance(distance, float) and distance < bound
    return near or any(math.isclose(*pair, rel_tol=bound) for pair in pairs)


def test_the_designs_meet_every_label(cases: list[Case]) -> None:
    met = {name: {one.answer.get(name) for one in cases} for name in label_register("ceiling")}
    assert met["status"] == {"ok", "memory", "layout", "unsourced_input", "veto"}
    assert met["veto"] == {"none", "k_outliers", "naive_low_bits", "blind_retrieval"}
    assert met["phase"] == {"weight", "kv", "capacity", None}
    assert met["bound_by"] == {"hbm", "compute", "scale_up", "tier_link", None}
    assert met["regime"] == {"weight", "kv", "compute", "scale_up", "tier_link", None}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_the_designs_meet_every_axis(cases: list[Case], family: tuple[str, ...]) -> None:
    """Each axis is set where the step time is known, so that it is compared."""
    timed = [one.given for one in cases if one.answer.get("time_per_output_token") is not None]
    for axis in family:
        assert sum(design.axes[axis] != NEUTRAL[axis] for design in timed) >= POINTS / 100, axis


def test_the_comparison_can_fail(designs: Designs, cases: list[Case]) -> None:
    """The oracle fed another hardware's memory bandwidth is told apart by the tightest and the widest bound."""
    one = next(case for case in cases if case.answer.get("bound_by") == "hbm" and not case.given.outside)
    hardware = dict(one.given.hardware)
    hardware["memory_bandwidth"] = (hardware["memory_bandwidth"] or 0.0) * (1 + 4 * FLOAT32)
    wrong = oracle(one.given.model, hardware, one.given.axes)
    name, index = "time_per_output_token", cases.index(one)
    found = evaluated(designs, wide=False).metrics[name][index]
    np.testing.assert_allclose(found, one.answer[name], rtol=FLOAT32)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found, wrong[name], rtol=FLOAT32)


def test_the_payload_picks_the_format_not_the_scales() -> None:
    """Stored bits of a block-scaled FP8 checkpoint are above 8; its arithmetic is FP8 all the same."""
    space = make_space({"model": "Qwen/Qwen3-32B-FP8", "hardware": "h100-sxm", "context": 1000, "activation_bits": 8})
    catalogue = load_catalogue(space)
    (model,), (chip,) = catalogue.models, catalogue.hardware
    assert model.ffn_bits > 8
    assert chip.fp8_flops is not None
    found = evaluate(Columns(space, catalogue).design({}), "aggregate").metrics["ridge_point"]
    np.testing.assert_allclose(found, chip.fp8_flops.value / chip.memory_bandwidth.value, rtol=FLOAT32)
