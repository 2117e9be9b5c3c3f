"""Laws that are traced once serve arrays of any length, and constants are folded to the bits that JAX computes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from kvwall.objectives.register import evaluate
from kvwall.sweep import constants, kernel
from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.compact import Interpreter
from kvwall.sweep.provenance import Provenance
from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study
from kvwall.sweep.traced import Traced
from tests.finished_sweeps import TWO_CHIPS

ODD = np.array([0.0, -0.0, 1.5, -2.25, 3e4, 1e-30, np.inf, -np.inf, np.nan, 7.0])
UNARY = ("neg", "floor", "ceil")
LOGICAL = ("and", "or", "xor")


def layered(numbers: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Slices, sums and reshapes of layers; `layers` has a leading dimension of three."""
    layers = numbers["layers"] * numbers["row"]
    first, rest = layers[:1], layers[1:]
    return {
        "sum": jnp.sum(layers, axis=0) + numbers["column"],
        "first": jnp.reshape(first, first.shape[1:]) * numbers["column"],
        "rest": jnp.max(rest, axis=0) - numbers["row"],
        "number": numbers["number"] * 2,
    }


@pytest.mark.parametrize(("rows", "columns"), [(4, 5), (1, 7), (6, 1)])
def test_one_program_serves_arrays_of_any_length(rows: int, columns: int) -> None:
    random = np.random.default_rng(0)
    laws, traces = Traced(layered), []
    for size in ((rows, columns), (2, 3)):
        given = {
            "row": random.random((size[0], 1)).astype(np.float32),
            "column": random.random((1, size[1])).astype(np.float32),
            "layers": random.random((3, 1, size[1])).astype(np.float32),
            "number": np.full((1, 1), 3.0, np.float32),
        }

        def found(row: jax.Array, given: dict[str, np.ndarray] = given) -> dict[str, jax.Array]:
            result = Interpreter(Provenance()).call_traced(laws, {**given, "row": row}, 2)
            return jax.tree.map(jnp.asarray, result)

        for name, value in jax.jit(found)(given["row"]).items():
            expected = layered({key: jnp.asarray(array) for key, array in given.items()})[name]
            np.testing.assert_allclose(np.broadcast_to(value, expected.shape), expected, rtol=1e-6)
        traces.append(len(laws._programs))
    assert traces == [1, 1] if min(rows, columns) > 1 else traces[0] == 1


def test_kernels_of_a_study_trace_its_laws_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*given):
        calls.append(given)
        return evaluate(*given)

    monkeypatch.setattr(kernel, "evaluate", counted)
    problem = problem_of(Study.from_text(TWO_CHIPS))
    stream = Stream(problem)
    stream.compile()
    sizes = {name: len(problem.columns.space[name]) for name in problem.columns.space.dims}
    BlockEvaluator(problem, sizes, ("time_per_output_token",)).compile()
    assert 0 < len(calls) <= 3  # of blocks and shapes; of rows and columns, where a number may be the same along either


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("name", sorted({*constants._IN_NUMPY, "div"} - {"add_any", "not", *LOGICAL}))
def test_numpy_folds_to_the_very_bits(name: str, dtype: type[np.generic], float64: None) -> None:
    if dtype is np.int32 and name in {"floor", "ceil"}:
        pytest.skip("of real numbers")
    primitive, numbers = getattr(lax, f"{name}_p"), ODD.astype(dtype) if dtype is not np.int32 else np.arange(-4, 6)
    numbers = numbers.astype(dtype)
    values = [numbers] if name in UNARY else [numbers[:, None], np.where(numbers == 0, 1, numbers)[None].astype(dtype)]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    params = {"out_dtype": None} if name == "mul" else {}
    with jax.debug_nans(False):
        found = constants.elementwise(primitive, params, values, shape)
        (expected,) = constants.operation(primitive, params, [np.broadcast_to(value, shape) for value in values])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("name", [*LOGICAL, "not"])
def test_numpy_folds_flags(name: str) -> None:
    one, other = np.array([True, True, False, False]), np.array([True, False, True, False])
    values = [one] if name == "not" else [one, other]
    found = constants.elementwise(getattr(lax, f"{name}_p"), {}, values, (4,))
    (expected,) = constants.operation(getattr(lax, f"{name}_p"), {}, values)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == bool
