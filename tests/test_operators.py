"""Operators of an estimate against the ceiling's ledger: the same bytes and FLOP, in finer parts."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given

from kvwall.objectives import kv, prefill
from kvwall.objectives.estimate import OperatorTimes, Served, largest, lead, operator_times
from kvwall.objectives.load import load_of
from kvwall.objectives.operators import Operators, by_weight
from kvwall.objectives.step import decoding_work, evaluate_step, flop_of
from kvwall.spaces.achieved import Achieved, ByBits, ByCache, ByDevices, ByWeight
from kvwall.spaces.design import Design
from tests.drawn_designs import design_of, designs

ONE = Achieved(
    weights=ByWeight(1.0, 1.0, 1.0, 1.0, 1.0),
    experts=ByWeight(1.0, 1.0, 1.0, 1.0, 1.0),
    compute=ByBits(1.0, 1.0, 1.0),
    attention=ByCache(1.0, 1.0),
    group_cost=1.0,
    latent=ByCache(1.0, 1.0),
    latent_compute=ByCache(1.0, 1.0),
    link=ByDevices(1.0, 1.0, 1.0),
    collective=ByDevices(0.0, 0.0, 0.0),
    layer=0.0,
    expert_layer=0.0,
    step=0.0,
    sequence=0.0,
    activation=0.0,
    prefill=1.0,
    prompt_layer=0.0,
    mixing=1.0,
)
"""An engine that reaches every peak and costs nothing besides."""


def _work(design: Design) -> Operators:
    load = load_of(design)
    cache = kv.cache_of(design, load.resident, load.rank_sequences)
    return decoding_work(design, load, cache, prefill.prompt_of(design, cache, design.prefix.hit_rate))


def _total(size: ByWeight) -> Any:
    return sum(getattr(size, field.name) for field in fields(ByWeight))


@jax.jit
def _compared(design: Design) -> dict[str, tuple[Any, Any]]:
    """What operators and ledger say of the same."""
    step, work = evaluate_step(design), _work(design)
    prompt = prefill.prompt_of(design, step.ledger.cache, design.prefix.hit_rate)
    both = flop_of(design, step.load, step.ledger.cache, prompt, step.load.rank_sequences, 1.0)
    multiplied = sum(part for parts in work.matrices for part in parts)
    times = operator_times(work, ONE, design.hardware)
    return {
        "weights": (_total(work.dense) + _total(work.experts) + _total(work.ends), step.ledger.weights_read),
        "kv": (work.kv, step.ledger.kv_in_hbm * step.load.uneven),
        "flop": (multiplied + work.attention, sum(part for parts in both for part in parts)),
        "sent": (work.sent.inside, step.ledger.sent.inside),
        "time": (times.decode, jnp.maximum(step.times.hbm, step.times.scale_up)),
    }


@pytest.mark.usefixtures("float64")
@given(designs(serving_mode="static", expert_skew=0.0, expert_parallel=1, die_placement="striped"))
def test_operators_have_the_bytes_and_flop_of_the_ledger(axes: dict[str, Any]) -> None:
    found = _compared(design_of(axes))
    for name in ("weights", "kv", "flop", "sent"):
        operators, ledger = found[name]
        assert float(operators) == pytest.approx(float(ledger), rel=1e-9, abs=1e-3), name


@pytest.mark.usefixtures("float64")
@given(designs(serving_mode="static"))
def test_operators_one_after_another_at_every_peak_take_at_least_the_ceiling(axes: dict[str, Any]) -> None:
    operators, ceiling = _compared(design_of(axes))["time"]
    assert float(operators) >= float(ceiling) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("bits", "activation", "slot"),
    [
        (16.0, 16.0, "sixteen"),
        (16.0, 4.0, "sixteen"),
        (8.0, 8.0, "eight"),
        (8.5, 16.0, "eight_only"),
        (6.56, 16.0, "eight_only"),
        (4.0, 4.0, "four"),
        (4.0, 8.0, "four_only"),
        (4.8, 16.0, "four_only"),
        (2.3, 16.0, "four_only"),
    ],
)
def test_every_format_has_one_slot(bits: float, activation: float, slot: str) -> None:
    found = by_weight(100.0, bits, activation)
    assert {field.name: float(getattr(found, field.name)) for field in fields(ByWeight)} == {
        field.name: 100.0 * (field.name == slot) for field in fields(ByWeight)
    }


def _times(**seconds: float) -> OperatorTimes:
    none = {field.name: jnp.asarray(0.0) for field in fields(OperatorTimes)}
    return OperatorTimes(**{**none, **{name: jnp.asarray(value) for name, value in seconds.items()}})


def test_prompts_count_in_full_for_throughput_and_in_part_between_tokens() -> None:
    times = _times(overhead=0.010, prompt_work=0.3, prompt_fixed=0.1, mixing=0.5)
    served = Served(0.0, 1.0, jnp.asarray(0.1), jnp.asarray(10.0), jnp.asarray(0.0))
    assert float(served.iteration(times)) == pytest.approx(0.010 + 0.1 * 0.4)
    assert float(served.token(times)) == pytest.approx(0.010 + 0.5 * 0.1 * 0.9 * 0.4)


def test_a_single_sequence_is_not_held_up_by_its_own_prompt() -> None:
    times = _times(overhead=0.010, prompt_work=0.4, mixing=1.0)
    served = Served(0.0, 1.0, jnp.asarray(0.01), jnp.asarray(1.0), jnp.asarray(0.0))
    assert float(served.token(times)) == pytest.approx(0.010)


def test_nothing_is_faster_than_the_ceiling() -> None:
    served = Served(0.0, 1.0, jnp.asarray(0.0), jnp.asarray(8.0), jnp.asarray(0.5))
    assert float(served.token(_times(overhead=0.010))) == 0.5
    assert float(served.iteration(_times(overhead=0.010))) == 0.5


def test_transfers_that_are_not_hidden_come_on_top() -> None:
    hidden = Served(jnp.asarray(0.004), 1.0, jnp.asarray(0.0), jnp.asarray(8.0), jnp.asarray(0.0))
    times = _times(overhead=0.010)
    assert float(hidden.token(times)) == pytest.approx(0.010)
    assert float(replace(hidden, link_overlap=0.25).token(times)) == pytest.approx(0.013)


def test_ties_go_to_the_first_and_have_no_lead() -> None:
    tied = tuple(jnp.asarray(each) for each in (2.0, 2.0, 1.0))
    assert int(largest(tied)) == 0
    assert float(lead(tied)) == 0.0
