"""Laws that are traced once serve arrays of any length, and constants are folded to the bits that JAX computes."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from kvwall.objectives.register import Evaluation, evaluate
from kvwall.sweep import constants, kernel
from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.compact import Interpreter
from kvwall.sweep.compiling import COMPILED_SOON
from kvwall.sweep.layout import Layout
from kvwall.sweep.points import DesignEvaluator
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
        "sum": jnp.sum(jnp.cumsum(layers, axis=0), axis=0) + numbers["column"],
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


MIXED = """
[study]
name = "mixed"
mode = "{mode}"
[space]
model = ["meta-llama/Meta-Llama-3-8B", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
hardware = ["h100-sxm", "mi300x"]
engine = ["vllm", "ideal"]
context = [4096, 70000]
batch = [1, 48]
key_bits = [16, 8]
value_bits = "key_bits"
retention = [1.0, 0.5]
tensor_parallel = [1, 8]
"""


@pytest.mark.parametrize("mode", ["ceiling", "estimate"])
def test_laws_of_mixed_layouts_and_engines_are_those_of_single_designs(mode: str) -> None:
    problem = problem_of(Study.from_text(MIXED.format(mode=mode)))
    space = problem.columns.space
    expected = DesignEvaluator(problem)(np.arange(space.size))
    for columns in (("batch", "context", "retention"), ("model", "engine")):
        layout = Layout(space, tuple(name for name in space.dims if name in columns))
        numbers = np.arange(layout.column_count, dtype=np.int32)[None, :]

        def found(rows: jax.Array, layout: Layout = layout, numbers: np.ndarray = numbers) -> Evaluation:
            return jax.tree.map(jnp.asarray, problem.evaluation(layout.positions(rows, numbers)))

        rows = np.arange(layout.row_count, dtype=np.int32)
        evaluation = jax.jit(found, compiler_options=dict(COMPILED_SOON))(rows[:, None])
        place = layout.grid_index(np.repeat(rows, layout.column_count), np.tile(numbers[0], layout.row_count))
        shape = (layout.row_count, layout.column_count)
        for name, values in evaluation.metrics.items():
            own = np.where(evaluation.sourced[name], np.asarray(values, np.float64), np.nan)
            near = {"rtol": 2e-4, "atol": 1e6 if name in {"memory_margin", "kv_pool_bytes"} else 1e-6}
            np.testing.assert_allclose(
                np.broadcast_to(own, shape).ravel(), expected[name][place], **near, err_msg=f"{name} {columns}"
            )
        for name, codes in evaluation.labels.items():
            agree = np.broadcast_to(codes, shape).ravel() == expected[name][place]
            assert agree.mean() > 0.999, name  # single precision may decide a tie between resources


@pytest.mark.parametrize(
    "law", [lambda x: jnp.cumsum(x, axis=-1), lambda x: jnp.sum(x, axis=0), lambda x: x[:1], lambda x: x.reshape(-1)]
)
def test_a_law_that_works_along_the_grid_is_refused(law: Callable[[jax.Array], jax.Array]) -> None:
    with pytest.raises(TypeError, match="along the grid's own dimensions"):
        jax.jit(lambda x: Interpreter(Provenance()).call_traced(Traced(law), x, 2))(np.ones((3, 2), np.float32))


def test_dimensions_of_length_one_are_added_where_the_law_adds_them() -> None:
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    for law in (lambda x: 2 * x[None], lambda x: 2 * jnp.reshape(x, (*x.shape, 1)), lambda x: 2 * x[:, None]):
        found = jax.jit(lambda x, law=law: Interpreter(Provenance()).call_traced(Traced(law), x, 2))(values)
        np.testing.assert_array_equal(found, law(values))


def pairs_of(name: str, dtype: type[np.generic]) -> list[np.ndarray]:
    """Operands of every combination of odd numbers."""
    numbers = np.arange(-4, 6).astype(dtype) if dtype is np.int32 else ODD.astype(dtype)
    return [numbers] if name in UNARY else [numbers[:, None], numbers[None]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("name", sorted({*constants._IN_NUMPY, "div"} - {"add_any", "not", *LOGICAL}))
def test_numpy_folds_to_the_very_bits(name: str, dtype: type[np.generic], float64: None) -> None:
    if dtype is np.int32 and name in {"floor", "ceil", "div"}:
        pytest.skip("of real numbers")
    primitive, values = getattr(lax, f"{name}_p"), pairs_of(name, dtype)
    shape = np.broadcast_shapes(*(value.shape for value in values))
    params = {"out_dtype": None} if name == "mul" else {}
    with jax.debug_nans(False):
        found = constants.elementwise(primitive, params, values, shape)
        (expected,) = constants.operation(primitive, params, [np.broadcast_to(value, shape) for value in values])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    if name in {"max", "min"} or found.dtype.kind != "f":
        return  # which of two zeros an extreme is, is left open
    signs = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[signs], np.signbit(expected)[signs])


def test_numpy_chooses_as_jax_does(float64: None) -> None:
    values = [np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, 4.0])]
    found = constants.elementwise(lax.select_n_p, {}, values, (2,))
    np.testing.assert_array_equal(found, constants.operation(lax.select_n_p, {}, values)[0])
    np.testing.assert_array_equal(found, [3.0, 2.0])


@pytest.mark.parametrize("name", [*LOGICAL, "not"])
def test_numpy_folds_flags(name: str) -> None:
    one, other = np.array([True, True, False, False]), np.array([True, False, True, False])
    values = [one] if name == "not" else [one, other]
    found = constants.elementwise(getattr(lax, f"{name}_p"), {}, values, (4,))
    (expected,) = constants.operation(getattr(lax, f"{name}_p"), {}, values)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == bool
