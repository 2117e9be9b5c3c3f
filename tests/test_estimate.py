"""Estimates: never faster than the ceiling, bands around them, slower where anything achieved is worse."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.objectives.estimate import Estimate, largest, lead
from kvwall.objectives.extrapolated import RESPECTS, respects
from kvwall.objectives.kernels import overlapped as power_overlapped
from kvwall.objectives.overlap import cube_root, overlapped
from kvwall.objectives.register import BANDED, Evaluation, band_of, evaluate, metric_register
from kvwall.objectives.status import layout_possible
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.achieved import Achieved
from kvwall.spaces.columns import Columns, load_catalogue, with_number
from kvwall.spaces.design import Design
from kvwall.spaces.space import make_space
from tests.designs import Designs
from tests.stand_in import ENGINES, LARGEST, LONGEST, stand_in

pytestmark = pytest.mark.usefixtures("float64")

TASK = "aggregate"
RATES = tuple(name for name in BANDED if name.startswith("tokens_per_second"))
LESS = 1 - 1e-12
PLAIN: dict[str, Any] = {
    "model": "meta-llama/Meta-Llama-3-70B", "hardware": "h100-sxm", "engine": "vllm", "tensor_parallel": 4,
    "batch": 16, "context": 8192,
}  # fmt: skip
SLOWER = {
    "group_cost", "collective", "layer", "expert_layer", "step", "sequence", "activation", "prefill", "prompt_layer",
    "mixing",
}  # fmt: skip
"""What is achieved is worse the more there is of it; everything else is a share, and worse the less there is."""

laws = jax.jit(evaluate, static_argnames="task")


def columns_of(axes: dict[str, Any]) -> Columns:
    """A space with the stand-in for a record."""
    space = make_space(axes)
    return Columns(space, replace(load_catalogue(space), calibration=stand_in()))


def one(**changed: Any) -> Design:
    """One calibrated design."""
    return columns_of(PLAIN | changed).design({})


def value(design: Design, metric: str) -> float:
    """A metric of one design."""
    return float(metric_register(TASK, "estimate")[metric].law(design, evaluate_step(design)))


def drawn(designs: Designs) -> Design:
    """Random designs with an engine each, calibrated."""
    engine = np.random.default_rng(3).integers(0, 4, len(next(iter(designs.positions.values()))))
    stated = {entry.axis.name: list(entry.values) for entry in designs.space.axes if len(entry) > 1}
    space = make_space(stated | {"engine": ["ideal", *ENGINES]})
    catalogue = replace(designs.catalogue, calibration=stand_in())
    return Columns(space, catalogue).design({**designs.positions, "engine": engine})


@pytest.fixture(scope="module")
def both(random_designs: Designs) -> tuple[Evaluation, Evaluation, np.ndarray, np.ndarray]:
    """(estimates, ceilings, which layouts are possible, which have routed experts) of a thousand random designs."""
    with jax.enable_x64(True):
        design = drawn(random_designs)
        ceiling = replace(design, calibrated=None)
        found = laws(design, task=TASK), laws(ceiling, task=TASK)
        return *found, np.asarray(layout_possible(design)), np.asarray(design.model.experts.layers > 0)


def test_no_estimate_is_faster_than_the_ceiling(both: Any) -> None:
    estimates, ceilings, possible, _ = both
    for name in BANDED:
        for each in (name, *band_of(name)):
            found, limit = (np.asarray(array)[possible] for array in (estimates.metrics[each], ceilings.metrics[name]))
            assert np.all(np.isfinite(found)), each
            assert np.all(found <= limit / LESS if name in RATES else found >= limit * LESS), each
        gap = np.abs(np.log(np.asarray(estimates.metrics[name]) / np.asarray(ceilings.metrics[name])))[possible]
        assert np.median(gap) > 0.05, "or the test would not tell the two modes apart"


def test_bands_bracket_the_value_and_are_wider_for_experts(both: Any) -> None:
    estimates, _, possible, routed = both
    for name in BANDED:
        low, high = (np.asarray(estimates.metrics[bound])[possible] for bound in band_of(name))
        middle = np.asarray(estimates.metrics[name])[possible]
        assert np.all((low <= middle) & (middle <= high)), name
        above = np.log(high / middle) if name not in RATES else np.log(middle / low)
        assert above.min() > 0.09
        assert np.median(above[routed[possible]]) > np.median(above[~routed[possible]])


def test_what_follows_from_bytes_alone_is_the_same_in_both_modes(both: Any) -> None:
    estimates, ceilings, _, _ = both
    register = metric_register(TASK, "estimate")
    derived = [name for name, metric in register.items() if metric.evidence == "derived"]
    assert {"kv_bytes_read", "max_batch", "crossover_context_bytes", "energy_per_token"} <= set(derived)
    for name in derived:
        np.testing.assert_array_equal(estimates.metrics[name], ceilings.metrics[name], err_msg=name)
    for name in ("status", "phase"):
        np.testing.assert_array_equal(estimates.labels[name], ceilings.labels[name], err_msg=name)
    assert "extrapolated" not in ceilings.labels


def test_compiled_and_plain_laws_agree(random_designs: Designs, both: Any) -> None:
    with jax.disable_jit(False):
        plain = evaluate(drawn(random_designs), TASK)
    for name, array in plain.metrics.items():
        np.testing.assert_allclose(both[0].metrics[name], array, rtol=1e-9, err_msg=name)


@cache
def slopes() -> dict[str, float]:
    """d ln(TPOT) / d ln(what is achieved) of a design in which every number has a part, by name."""
    design = one(
        model="deepseek-ai/DeepSeek-V3", tensor_parallel=8, batch=64, output_tokens=500, serving_mode="continuous",
        weight_bits=8, context=20_000,
    )  # fmt: skip
    best = calibrated(design).achieved

    def log_time(achieved: Achieved) -> Any:
        moved = replace(design, calibrated=replace(calibrated(design), achieved=achieved))
        return jnp.log(evaluate_step(moved).token_time)

    found = jax.grad(log_time)(jax.tree.map(jnp.asarray, best))
    named = jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda slope, size: slope * size, found, best))
    return {jax.tree_util.keystr(path).strip("."): float(leaf) for path, leaf in named}


def calibrated(design: Design) -> Any:
    """What the design's engine achieves, and how sure that is."""
    return evaluate_step(design).estimated.calibrated


def test_worse_of_anything_is_slower() -> None:
    found = slopes()
    assert all(np.isfinite(slope) for slope in found.values())
    for name, slope in found.items():
        assert slope >= 0 if name.partition(".")[0] in SLOWER else slope <= 0, name
    moving = {name.partition(".")[0] for name, slope in found.items() if slope != 0}
    silent = {"attention", "group_cost"}  # of KV heads, where there are latents
    assert {field.name for field in fields(Achieved)} - moving == silent


def test_the_time_is_the_sum_of_its_parts() -> None:
    estimate = evaluate_step(one()).estimated
    times = estimate.times
    assert float(sum(estimate.ordered)) == pytest.approx(float(estimate.iteration), rel=1e-12)
    assert float(times.decode) == pytest.approx(float(times.besides_attention + times.attention), rel=1e-12)
    assert int(largest(estimate.ordered)) == int(np.argmax(np.asarray(estimate.ordered)))
    first, second, *_ = np.sort(np.asarray(estimate.ordered))[::-1]
    assert float(lead(estimate.ordered)) == pytest.approx(np.log(first / second))


CONTINUOUS = ("batch", "context", "weight_bits", "key_bits", "retention", "placement_host", "output_tokens")


@pytest.mark.parametrize("metric", ["time_per_output_token", "time_to_first_token", "time_per_output_token_high"])
def test_gradients_equal_finite_differences(metric: str) -> None:
    design = one(
        key_bits=5, value_bits=5, retention=0.7, placement_host=0.2, link_overlap=0.5, output_tokens=300,
        serving_mode="continuous", weight_bits=7, prefix_hit_rate=0.3,
    )  # fmt: skip
    sizes = np.array([float(np.squeeze(number_of(design, axis))) for axis in CONTINUOUS])

    @jax.jit
    def law(numbers: Any) -> Any:
        moved = design
        for axis, number in zip(CONTINUOUS, numbers, strict=True):
            moved = with_number(moved, axis, number)
        return metric_register(TASK, "estimate")[metric].law(moved, evaluate_step(moved))

    exact = jax.jit(jax.grad(law))(sizes)
    for place, axis in enumerate(CONTINUOUS):
        step = np.eye(len(sizes))[place] * sizes * 1e-6
        numeric = (float(law(sizes + step)) - float(law(sizes - step))) / (2 * step[place])
        assert float(exact[place]) == pytest.approx(numeric, rel=1e-4, abs=1e-12), axis


def test_gradients_are_finite_at_every_random_design(random_designs: Designs) -> None:
    design = drawn(random_designs)

    def total(amounts: dict[str, Any]) -> Any:
        moved = design
        for axis, amount in amounts.items():
            moved = with_number(moved, axis, number_of(design, axis) + amount)
        step = evaluate_step(moved)
        return jnp.sum(jnp.log(step.token_time)) + jnp.sum(jnp.log(step.estimated.first_token))

    count = len(next(iter(random_designs.positions.values())))
    found = jax.jit(jax.grad(total))({axis: jnp.zeros(count) for axis in CONTINUOUS})
    for axis, slope in found.items():
        assert np.all(np.isfinite(slope)), axis
        assert np.any(np.asarray(slope) != 0), axis


def number_of(design: Design, axis: str) -> Any:
    """The numbers of an axis."""
    from kvwall.spaces.columns import NUMBER_FIELDS

    record, field = NUMBER_FIELDS[axis]
    return getattr(getattr(design, record), field)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"batch": 1},
        {"model": "meta-llama/Llama-2-70b-hf", "tensor_parallel": 8},
        {"placement_host": 0.4, "retention": 0.5},
        {"model": "google/gemma-3-27b-it", "batch": 256},
        {"draft_tokens": 3},
    ],
)
def test_the_time_crossover_solves_its_own_equation(changed: dict[str, Any]) -> None:
    tokens = value(one(**changed), "crossover_context_time")
    assert np.isfinite(tokens)
    there = with_number(one(**changed), "context", np.float64(tokens))
    times = evaluate_step(there).estimated.times
    assert float(times.attention) == pytest.approx(float(times.besides_attention), rel=1e-6)


def test_attention_over_a_fixed_state_never_takes_longest() -> None:
    assert value(one(model="mistralai/Mamba-Codestral-7B-v0.1"), "crossover_context_time") == np.inf


def test_interference_is_less_than_a_whole_prompt_and_more_than_none() -> None:
    static, serving = one(output_tokens=200), one(output_tokens=200, serving_mode="continuous")
    per_token = value(serving, "time_per_output_token")
    assert value(static, "time_per_output_token") < per_token
    assert per_token < 16 / value(serving, "tokens_per_second")
    alone = one(output_tokens=200, serving_mode="continuous", batch=1)
    assert value(alone, "time_per_output_token") == pytest.approx(
        value(one(output_tokens=200, batch=1), "time_per_output_token")
    )


def test_a_prompt_on_warm_weights_takes_its_parts() -> None:
    """A short prompt waits for the weights, a long one for arithmetic; both for what calls cost."""
    step = evaluate_step(one(context=1))
    weights = float(step.estimated.times.moved)
    assert value(one(context=1), "time_to_first_token") > weights
    doubled = value(one(context=60_000), "time_to_first_token") / value(one(context=30_000), "time_to_first_token")
    assert 2 < doubled < 3


@pytest.mark.parametrize(
    ("changed", "outside"),
    [
        ({}, ()),
        ({"engine": "ideal"}, ()),
        ({"hardware": "b200-sxm"}, ("chip",)),
        ({"key_bits": 4, "value_bits": 4}, ("cache_format",)),
        ({"key_bits": 8}, ()),
        ({"context": LONGEST, "output_tokens": 2}, ("context",)),
        ({"context": LONGEST}, ()),
        ({"batch": LARGEST + 1}, ("batch",)),
        ({"hardware": "b200-sxm", "context": 10**6, "batch": 4000, "value_bits": 2}, RESPECTS[2:]),
    ],
)
def test_what_is_extrapolated(changed: dict[str, Any], outside: tuple[str, ...]) -> None:
    design = one(**changed)
    found = respects(design, evaluate_step(design))
    assert tuple(name for name, flag in zip(RESPECTS[1:], found, strict=True) if bool(flag)) == outside
    code = int(evaluate(design, TASK).labels["extrapolated"])
    assert RESPECTS[code] == (outside[0] if outside else "no")


def test_the_spread_is_that_of_the_directions() -> None:
    """By finite differences: each direction's effect on the logarithm, and the models' own."""
    design = one()
    estimate: Estimate = evaluate_step(design).estimated
    moves = []
    ways = len(jax.tree.leaves(estimate.calibrated.directions)[0])
    for place in range(ways):
        direction = jax.tree.map(lambda leaf, place=place: leaf[place], estimate.calibrated.directions)
        ends = []
        for sign in (1e-4, -1e-4):
            there = jax.tree.map(
                lambda best, way, sign=sign: best + sign * way, estimate.calibrated.achieved, direction
            )
            ends.append(float(jnp.log(estimate.served.token(estimate.times_at(there)))))
        moves.append((ends[0] - ends[1]) / 2e-4)
    assert float(estimate.spread) == pytest.approx(np.sqrt(np.sum(np.square(moves)) + 0.08**2), rel=1e-6)
    assert max(map(abs, moves)) > 0.01


def test_the_overlap_is_that_of_kernels() -> None:
    first, second = np.geomspace(1e-9, 1e3, 40), np.geomspace(1e-8, 1e2, 40)[:, None]
    np.testing.assert_allclose(overlapped(first, second), power_overlapped(first, second), rtol=1e-12)
    narrow = overlapped(jnp.asarray(first, jnp.float32), jnp.asarray(second, jnp.float32))
    np.testing.assert_allclose(narrow, power_overlapped(first, second), rtol=2e-6)
    sizes = jnp.geomspace(1e-20, 1e12, 50)
    np.testing.assert_allclose(jax.vmap(jax.grad(cube_root))(sizes), sizes ** (-2 / 3) / 3, rtol=1e-12)
    assert float(overlapped(0.0, 0.0)) < 1e-11
