"""Products and sums in another order are what they were, and numbers of rows and of columns are multiplied first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.sweep.comonotone import comonotone
from kvwall.sweep.compact import compact
from kvwall.sweep.provenance import Provenance
from kvwall.sweep.ranges import range_of_array

pytestmark = pytest.mark.made_fast

ROWS, COLUMNS = 5, 12
DRAW = np.random.default_rng(0)
ROW = {name: DRAW.uniform(1, 9, (ROWS, 1)).astype(np.float32) for name in "rs"}
COLUMN = {name: DRAW.uniform(1, 9, (1, COLUMNS)).astype(np.float32) for name in "cd"}


def bent(x):
    """What is no product of a row's number and a column's."""
    return jnp.maximum(x["r"] * x["c"], x["s"] * x["d"])


LAWS = {
    "a product of many": (lambda x: x["r"] * (x["c"] * (x["s"] * (x["d"] * x["r"]))), 1),
    "a sum with common columns": (lambda x: x["r"] * x["c"] + x["c"] * x["s"] - x["s"] * x["c"] * x["r"], 1),
    "a difference": (lambda x: x["r"] * x["c"] - (x["s"] + x["c"] * x["s"]), 2),
    "a difference from what is bent": (lambda x: x["r"] * x["c"] - bent(x), 7),
    "a multiple of what is bent": (lambda x: x["r"] * (x["c"] * (x["s"] * bent(x))), 6),
    "a quotient": (lambda x: x["r"] / (x["s"] * bent(x)) * x["c"], 6),
    "of what is bent twice": (lambda x: x["c"] * bent(x) * (x["r"] * bent(x)), 7),
    "a sum of too many": (lambda x: x["r"] + x["c"] * x["s"] + x["d"] * x["r"] + x["c"] * x["d"] * x["s"], 6),
    "a comparison of a multiple": (lambda x: jnp.where(x["r"] * (x["c"] * bent(x)) > x["s"] * 30, 1.0, 0.0), 7),
    "a comparison of a quotient": (lambda x: jnp.where(x["s"] - 4 <= x["r"] / (x["c"] * bent(x)), 1.0, 0.0), 7),
}


def compacted(laws):
    """Laws of the rows' numbers, compact, with those of columns known."""

    def kernel(rows):
        provenance = Provenance()
        for name, array in rows.items():
            provenance.record(array, None, range_of_array(ROW[name]))
        return compact(lambda given: laws(given | COLUMN), provenance)(rows)

    return kernel


@pytest.mark.parametrize(("laws", "most"), LAWS.values(), ids=LAWS.keys())
def test_laws_are_what_they_were_in_few_operations(laws, most):
    kernel = compacted(laws)
    found = np.broadcast_to(jax.jit(kernel)(ROW), (ROWS, COLUMNS))
    np.testing.assert_allclose(found, np.broadcast_to(laws(ROW | COLUMN), (ROWS, COLUMNS)), rtol=1e-5, atol=1e-4)
    asked = jax.make_jaxpr(kernel)(ROW)
    arithmetic = {"add", "sub", "mul", "div", "neg", "gt", "lt", "ge", "le", "select_n"}
    needed, _ = jax.interpreters.partial_eval.dce_jaxpr(asked.jaxpr, [True])
    of_points = [
        one for one in needed.eqns if one.outvars[0].aval.shape == (ROWS, COLUMNS) and one.primitive.name in arithmetic
    ]
    assert len(of_points) <= most


def test_what_float32_cannot_hold_keeps_its_order():
    def laws(x):
        return (x["r"] * 1e30) * (x["c"] * 1e-30) * (x["s"] * 1e20)

    found = np.asarray(jax.jit(compacted(laws))(ROW))
    np.testing.assert_allclose(found, laws(ROW | COLUMN), rtol=1e-5)


def test_columns_that_go_together_are_found_by_one_of_them():
    base = np.float32([[3, 1, 2, 2]])
    together = comonotone([base, base * base, -base, np.float32([[7, 7, 7, 7]])])
    assert together is not None
    found = together.at(jnp.float32([[2.0], [3.0]]))
    np.testing.assert_array_equal(np.concatenate(found, axis=1), [[2, 4, -2, 7], [3, 9, -3, 7]])


def test_numbers_of_another_precision_keep_their_order():
    with jax.enable_x64(True):
        rows, columns = ({name: np.float64(array) for name, array in of.items()} for of in (ROW, COLUMN))
        found = jax.jit(compact(lambda x: x["r"] * (8.0 * x["c"]) / x["s"]))(rows | columns)
    np.testing.assert_allclose(found, rows["r"] * 8 * columns["c"] / rows["s"], rtol=1e-14)
