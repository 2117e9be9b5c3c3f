"""Reductions of rows equal those of every point, and few of them are done."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwall.sweep.compact import compact
from kvwall.sweep.kernel import compile_options
from kvwall.sweep.provenance import Provenance
from kvwall.sweep.ranges import range_of_array
from kvwall.sweep.reduction import NONE, Reduction, true_extremes
from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study

pytestmark = pytest.mark.made_fast

ROWS, COLUMNS = 6, 40
WHOLE = np.arange(-4, 5).astype(np.float32)
"""Small whole numbers: whatever is made of a few of them is exact in float32, in any order."""
POSITIVE = np.float32([1, 2, 4])


def inputs(seed):
    """Two numbers per row and two per column, of which one each is positive."""
    draw = np.random.default_rng(seed)
    return {
        "r": draw.choice(WHOLE, (ROWS, 1)),
        "p": draw.choice(POSITIVE, (ROWS, 1)),
        "c": draw.choice(WHOLE, (1, COLUMNS)),
        "d": draw.choice(POSITIVE, (1, COLUMNS)),
    }


def reduced(laws, given):
    """What Reduction makes of `laws`, a function giving (value, mask); and how many reductions it does."""
    done = []

    def kernel(arrays):
        provenance = Provenance()
        for name, array in arrays.items():
            provenance.record(array, None, range_of_array(given[name]))
        value, mask = compact(laws, provenance)(arrays)
        batch = Reduction((ROWS, COLUMNS), provenance)
        asked = [batch.extreme("min", value, mask), batch.extreme("max", value, mask), batch.count(mask)]
        batch.run()
        done.append(batch.size)
        return list(batch.stacked(asked[:2])) + list(batch.stacked(asked[2:]))

    return [np.asarray(each) for each in jax.jit(kernel)(given)], done[0]


def expected(laws, given):
    """The same of every point."""
    value, mask = (np.broadcast_to(np.asarray(each), (ROWS, COLUMNS)) for each in laws(given))
    low = np.min(np.where(mask, value, NONE["min"]), axis=1)
    return low, np.max(np.where(mask, value, NONE["max"]), axis=1), np.sum(mask, axis=1)


def assert_equal_to_every_point(laws, given):
    found, size = reduced(laws, given)
    for one, other in zip(found, expected(laws, given), strict=True):
        np.testing.assert_array_equal(one, other)
    return size


def mixed(x):
    """A flag that follows from neither the row nor the column alone."""
    return x["r"] + x["c"] >= 0


PUSHED = {
    "scaled by either sign": (lambda x: x["r"] * (x["c"] * x["p"] + x["d"] * x["r"]), 2),
    "shifted and bounded": (lambda x: jnp.maximum(x["p"] * x["d"] - x["r"] * x["c"] + x["r"], x["r"]), 2),
    "subtracted and rounded": (lambda x: jnp.floor((x["r"] - (x["c"] * x["r"] + x["d"])) / 2), 2),
    "chosen by row": (lambda x: jnp.where(x["r"] > 0, x["c"] + x["r"], 2 * x["c"]), 2),
    "divided by what is positive": (lambda x: 8 * x["p"] / (x["d"] * x["p"]), 2),
    "grows with one column": (lambda x: x["p"] * x["d"] + jnp.minimum(x["p"] * x["d"], 3) * x["d"], 2),
    "falls with one column": (lambda x: 8 / x["d"] - x["p"] * x["d"], 2),
    "not monotone in it": (lambda x: x["d"] * x["p"] - x["d"] * x["d"], 2),
    "of the row alone": (lambda x: x["r"] * x["p"], 0),
}


@pytest.mark.parametrize(("value", "reductions"), PUSHED.values(), ids=PUSHED.keys())
@pytest.mark.parametrize("seed", range(3))
def test_extremes_are_led_back_to_simpler_ones(value, reductions, seed):
    given = inputs(seed)
    size = assert_equal_to_every_point(lambda x: (value(x), mixed(x)), given)
    assert size == 1 + reductions, "one counts the mask"


def test_metrics_of_one_quantity_share_its_reductions():
    given = inputs(0)

    def kernel(arrays):
        provenance = Provenance()
        for name, array in arrays.items():
            provenance.record(array, None, range_of_array(given[name]))

        def laws(x):
            time = x["d"] * x["p"] + x["d"] * x["d"] * x["p"] * x["p"]
            return [time, x["p"] / time, x["r"] * time, jnp.log(time), -time], mixed(x)

        metrics, mask = compact(laws, provenance)(arrays)
        batch = Reduction((ROWS, COLUMNS), provenance)
        for metric in metrics:
            batch.extreme("min", metric, mask), batch.extreme("max", metric, mask)
        batch.run()
        assert batch.size == 3
        return 0

    jax.jit(kernel)(given)


def test_a_sign_that_holds_in_the_mask_leads_extremes_back():
    """Room left by what varies is not negative where it is enough, so that many fit into it as the least need says."""
    given = inputs(0)

    def laws(x):
        need = x["p"] * x["d"] + x["d"] * x["d"]
        room = x["r"]
        return jnp.floor(room / need), room - need >= 0

    assert assert_equal_to_every_point(laws, given) == 3, "a count, and two extremes of the need"


def test_a_bound_of_what_is_least_does_not_change_it():
    given = inputs(0)

    def kernel(arrays):
        provenance = Provenance()
        for name, array in arrays.items():
            provenance.record(array, None, range_of_array(given[name]))

        def laws(x):
            time = x["d"] * x["p"] + x["d"] * x["d"] * x["c"]
            return time, mixed(x), jnp.logical_and(mixed(x), time <= x["p"])

        time, mask, quick = compact(laws, provenance)(arrays)
        batch = Reduction((ROWS, COLUMNS), provenance)
        asked = [batch.extreme("min", time, one) for one in (mask, quick)] + [batch.extreme("max", time, quick)]
        batch.run()
        assert batch.size == 4, "two counts, the least of both masks, the greatest of one"
        return batch.stacked(asked)

    found = np.asarray(jax.jit(kernel)(given))
    time = given["d"] * given["p"] + given["d"] * given["d"] * given["c"]
    quick = np.logical_and(given["r"] + given["c"] >= 0, time <= given["p"])
    np.testing.assert_array_equal(found[1], np.min(np.where(quick, time, NONE["min"]), axis=1))
    np.testing.assert_array_equal(found[2], np.max(np.where(quick, time, NONE["max"]), axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_extremes_of_columns_that_go_together_are_those_of_one(seed):
    given = inputs(seed)
    columns = {name: given.pop(name) for name in "cd"}

    def laws(x):
        return x["p"] * columns["d"] + x["p"] * columns["d"] ** 2, x["r"] + columns["c"] >= 0

    found, size = reduced(laws, given)
    for one, other in zip(found, expected(laws, given), strict=True):
        np.testing.assert_array_equal(one, other)
    assert size == 3, "a count, and the extremes of a column"


LEAVES = st.sampled_from("rpcd")
NUMBERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul", "max", "min"]), inner, inner),
        st.tuples(st.just("half"), inner),
        st.tuples(st.just("neg"), inner),
    ),
    max_leaves=5,
)
FLAGS = st.recursive(
    st.tuples(st.sampled_from(["ge", "gt", "le", "lt", "eq"]), NUMBERS, NUMBERS),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("where"), inner, inner, inner),
        st.tuples(st.just("code"), inner, inner, st.integers(0, 2)),
    ),
    max_leaves=5,
)
MEANING = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum,
    "half": lambda one: jnp.floor(one / 2), "neg": jnp.negative, "ge": jnp.greater_equal, "gt": jnp.greater,
    "le": jnp.less_equal, "lt": jnp.less, "eq": jnp.equal, "and": jnp.logical_and, "or": jnp.logical_or,
    "not": jnp.logical_not, "where": jnp.where,
    "code": lambda one, other, code: jnp.where(one, 2, jnp.where(other, 1, 0)) == code,
}  # fmt: skip


def meaning(formula, x):
    if isinstance(formula, int):
        return formula
    if isinstance(formula, str):
        return x[formula]
    name, *operands = formula
    return MEANING[name](*(meaning(operand, x) for operand in operands))


@settings(max_examples=60, deadline=None)
@given(number=NUMBERS, flag=FLAGS, seed=st.integers(0, 10**6))
def test_any_law_is_reduced_as_every_point_would_be(number, flag, seed):
    assert_equal_to_every_point(lambda x: (meaning(number, x), meaning(flag, x)), inputs(seed))


def test_infinite_values_and_rows_without_points():
    given = inputs(1)

    def laws(x):
        value = jnp.where(x["r"] + x["c"] > -3, jnp.inf, x["c"] * x["r"])
        return value, jnp.logical_and(x["r"] != 0, x["c"] * x["p"] > 1)

    given["r"][0] = 0
    assert_equal_to_every_point(laws, given)
    low, high = true_extremes(*reduced(laws, given)[0][:2])
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    assert np.any(np.isposinf(high))


def test_no_point_of_the_grid_touches_memory():
    """The compiler fuses the laws into the reduction: it keeps no array of as many numbers as there are points."""
    if jax.default_backend() != "cpu":
        pytest.skip("compilers of other devices may keep some")
    for reducer in Stream(problem_of(Study.load("memory-wall"))).reducers():
        text = jax.jit(reducer.reduce, compiler_options=compile_options()).lower(0, reducer.edges).compile().as_text()
        entry = text[text.index("ENTRY") :]
        assert f"[{reducer.rows_per_call}]" in entry
        assert f"[{reducer.rows_per_call},{reducer.layout.column_count}]" not in entry


def test_an_extreme_behind_a_long_chain_of_operations_is_found():
    rows = np.linspace(1.0, 2.0, ROWS, dtype=np.float32)[:, None]
    columns = np.linspace(0.5, 1.5, COLUMNS, dtype=np.float32)[None, :]

    def law(row, column):
        value = row + column
        for _ in range(1500):
            value = jnp.maximum(value * 0.999, column) + row
        return value

    def found(row):
        provenance = Provenance()
        value = compact(law, provenance)(row, columns)
        batch = Reduction((ROWS, COLUMNS), provenance)
        later = batch.extreme("max", value, np.ones((1, 1), bool))
        batch.run()
        return later()

    expected = np.max(jax.jit(law)(rows, columns), axis=1, keepdims=True)
    np.testing.assert_allclose(np.broadcast_to(jax.jit(found)(rows), (ROWS, 1)), expected, rtol=1e-5)
