"""The exact front: against brute force, on random and adversarial points, however they arrive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kvwall.sweep.front import Front


def brute_force(values):
    """(vector -> (lowest index, multiplicity)) of the non-dominated vectors, by comparing all pairs."""
    found = {}
    for i, point in enumerate(values):
        dominated = any(np.all(other <= point) and np.any(other < point) for other in values)
        if not dominated:
            index, count = found.get(tuple(point), (i, 0))
            found[tuple(point)] = (min(index, i), count + 1)
    return found


def as_table(front):
    return {
        tuple(v): (i, m)
        for v, i, m in zip(front.values, front.index.tolist(), front.multiplicity.tolist(), strict=True)
    }


def points(objectives):
    small = st.integers(0, 4).map(float) | st.floats(-100, 100, width=32) | st.sampled_from([np.inf, -np.inf])
    return hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(objectives)), elements=small)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_front_equals_brute_force_in_any_order_and_split(data):
    objectives = data.draw(st.integers(1, 5))
    values = data.draw(points(objectives)) + np.float32(0)
    order = np.array(data.draw(st.permutations(range(len(values)))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    front = Front(objectives)
    for part in np.split(order, cuts):
        front.add(values[part], part)
    assert as_table(front) == brute_force(values)


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_all_equal_points_are_one_with_their_number(objectives):
    front = Front(objectives)
    front.add(np.ones((1000, objectives), np.float32), np.arange(1000)[::-1].copy())
    assert as_table(front) == {(1.0,) * objectives: (0, 1000)}


def test_anti_correlated_points_all_stay():
    x = np.arange(2000, dtype=np.float32)
    front = Front(2)
    front.add(np.stack([x, -x], axis=1), np.arange(2000))
    assert len(front) == 2000


def test_negative_zero_ties_with_zero():
    front = Front(1)
    front.add(np.array([[0.0], [-0.0]], np.float32), np.array([5, 3]))
    assert as_table(front) == {(0.0,): (3, 2)}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_row_is_ruled_out_only_if_its_ideal_is_dominated(data):
    objectives = data.draw(st.integers(1, 4))
    known, ideals = data.draw(points(objectives)), data.draw(points(objectives))
    front = Front(objectives)
    front.add(known, np.arange(len(known)))
    kept = front.may_improve(ideals, np.ones(objectives, bool))
    for ideal, keep in zip(ideals, kept, strict=True):
        dominated = any(np.all(k <= ideal) and np.any(k < ideal) for k in known)
        assert keep == (not dominated)


def test_slack_keeps_a_row_whose_ideal_is_beaten_by_the_last_bit_only():
    front = Front(2)
    front.add(np.array([[1.0, 1.0]], np.float32), np.array([0]))
    ideal = np.array([[np.nextafter(np.float32(1), np.float32(2)), 1.0]], np.float32)
    assert not front.may_improve(ideal, np.array([True, True]))[0]
    assert front.may_improve(ideal, np.array([False, True]))[0]
