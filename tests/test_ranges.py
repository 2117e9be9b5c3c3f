"""Ranges hold whatever float32 makes of their operands, and promise nothing where a NaN may be."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from kvwall.sweep.ranges import ANY, is_finite, range_after, range_of_array

BOUNDS = st.sampled_from([-np.inf, -1e30, -7.5, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 2.0, 3.25, 1e20, 3e38, np.inf]).map(
    lambda bound: float(np.float32(bound))
)
RANGES = st.tuples(BOUNDS, BOUNDS).map(sorted)
UNARY = {
    "neg": lax.neg, "abs": lax.abs, "floor": lax.floor, "ceil": lax.ceil, "exp": lax.exp, "log": lax.log,
    "log1p": lax.log1p, "expm1": lax.expm1, "sqrt": lax.sqrt, "square": lax.square,
}  # fmt: skip
BINARY = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "max": lax.max, "min": lax.min}
COMPARISONS = {"ge": lax.ge, "gt": lax.gt, "le": lax.le, "lt": lax.lt, "eq": lax.eq, "ne": lax.ne}


def inside(within, share):
    """Some float32 numbers of a range: its ends, and between."""
    low, high = np.clip(within, -3.3e38, 3.3e38)
    middle = low * (1 - share) + high * share
    return np.array([*within, np.clip(middle, *within)], np.float32)


def assert_holds(found, within):
    """NaN only where the range is not finite; every number inside of it."""
    found = np.asarray(found, np.float64)
    assert not (is_finite(within) and np.any(~np.isfinite(found))), (found, within)
    numbers = found[~np.isnan(found)]
    assert np.all((numbers >= within[0]) & (numbers <= within[1])), (found, within)


@pytest.fixture(autouse=True)
def nan_allowed():
    import jax

    with jax.debug_nans(False):
        yield


@pytest.mark.parametrize("name", UNARY)
@given(one=RANGES, share=st.floats(0, 1))
def test_results_of_one_operand_are_in_range(name, one, share):
    assert_holds(UNARY[name](jnp.asarray(inside(one, share))), range_after(name, [tuple(one)]))


@pytest.mark.parametrize("name", BINARY)
@given(one=RANGES, other=RANGES, share=st.floats(0, 1))
def test_results_of_two_operands_are_in_range(name, one, other, share):
    left, right = np.meshgrid(inside(one, share), inside(other, 1 - share))
    assert_holds(BINARY[name](jnp.asarray(left), jnp.asarray(right)), range_after(name, [tuple(one), tuple(other)]))


@pytest.mark.parametrize("name", COMPARISONS)
@given(one=RANGES, other=RANGES, share=st.floats(0, 1))
def test_decided_comparisons_hold(name, one, other, share):
    low, high = range_after(name, [tuple(one), tuple(other)], "b")
    left, right = np.meshgrid(inside(one, share), inside(other, 1 - share))
    found = np.asarray(COMPARISONS[name](jnp.asarray(left), jnp.asarray(right)))
    assert np.all((found >= low) & (found <= high))


@given(one=RANGES, share=st.floats(0, 1), exponent=st.integers(-3, 4).filter(bool))
def test_powers_are_in_range(one, share, exponent):
    found = lax.integer_pow(jnp.asarray(inside(one, share)), exponent)
    assert_holds(found, range_after("integer_pow", [tuple(one)], exponent=exponent))


def test_a_sign_once_certain_stays_certain():
    positive = (0.0, 5.0)
    for name in ("add", "mul", "max", "min"):
        assert range_after(name, [positive, positive])[0] == 0.0
    assert range_after("div", [positive, (1.0, 2.0)])[0] == 0.0


def test_what_is_not_known_has_no_range():
    assert range_after("tan", [(0.0, 1.0)]) == ANY
    assert range_after("sub", [(0.0, np.inf), (0.0, np.inf)]) == ANY
    assert range_after("div", [(1.0, 1.0), (-1.0, 1.0)]) == ANY
    assert range_after("add", [(0.0, 1.0), (0.0, 1.0)], "i") == ANY  # integers may wrap
    assert range_of_array(np.array([1.0, np.nan])) == ANY
    assert range_of_array(np.array([])) == ANY
