"""`compact` gives the same numbers as the laws themselves, at the smallest shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.objectives.register import LABELS, evaluate, evaluation_of
from kvwall.objectives.step import evaluate_step
from kvwall.objectives.time import second_longest
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.space import make_space
from kvwall.sweep.compact import compact

pytestmark = pytest.mark.made_fast

SPACES = {
    "remedies": {
        "model": ["meta-llama/Meta-Llama-3-8B", "Qwen/Qwen2.5-7B-Instruct"],
        "hardware": ["h100-sxm", "mi300x"],
        "context": [1000, 100_000],
        "batch": [1, 7],
        "key_bits": [16, 4, 2],
        "value_bits": "key_bits",
        "retention": [1.0, 0.3],
        "tensor_parallel": [1, 2],
    },
    "every knob": {
        "model": "meta-llama/Meta-Llama-3-8B",
        "hardware": "h100-sxm",
        "context": [50, 5000],
        "output_tokens": [0, 300],
        "key_bits": [16, 3],
        "kv_group_size": [0, 32],
        "residual_window": [0, 128],
        "outlier_fraction": [0.0, 0.01],
        "sink_tokens": [0, 16],
        "recent_tokens": [0, 64],
        "retention": [1.0, 0.25],
        "quantizer": ["structure_aware", "naive"],
        "evictor": ["query_aware", "position"],
        "question_visible": [True, False],
        "weight_bits": ["native", 4],
        "activation_bits": [16, 8],
        "placement_host": [0.0, 0.5],
    },
}


def own_dimensions(space):
    rank = len(space.dims)
    return {
        name: jnp.arange(size, dtype=jnp.int32).reshape([size if i == place else 1 for i in range(rank)])
        for place, (name, size) in enumerate(zip(space.dims, space.shape, strict=True))
    }


@pytest.mark.parametrize("stated", SPACES.values(), ids=SPACES.keys())
def test_compact_laws_equal_the_laws(stated):
    space = make_space(stated)
    columns = Columns(space, load_catalogue(space))
    positions = own_dimensions(space)
    plain, ties = jax.jit(lambda where: laws_and_near_ties(columns.design(where)))(positions)
    small = jax.jit(lambda where: compact(lambda d: evaluate(d, "aggregate"))(columns.design(where)))(positions)
    for name, expected in {**plain.metrics, **plain.sourced, **plain.labels}.items():
        pool = small.metrics if name in small.metrics and expected.dtype == jnp.float32 else {}
        found = pool.get(name, small.labels.get(name, small.sourced.get(name)))
        expected = np.broadcast_to(expected, space.shape)
        found = np.broadcast_to(np.asarray(found), space.shape)
        if expected.dtype == np.float32:
            scale = 8e10 if name == "memory_margin" else 0.0  # a difference of large numbers
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-7 * scale + 1e-12, err_msg=name)
        elif name in LABELS and np.issubdtype(expected.dtype, np.integer):
            undecided = np.broadcast_to(ties[name], space.shape)
            assert undecided.mean() < 0.01, name
            np.testing.assert_array_equal(found[~undecided], expected[~undecided], err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)


def laws_and_near_ties(design):
    """The laws, and per label the points where what it compares differs by less than 1e-5: there rounding decides."""
    step = evaluate_step(design)

    def close(one, other):
        return jnp.abs(one - other) < 1e-5 * jnp.maximum(jnp.abs(one), jnp.abs(other))

    margin = jnp.abs(step.memory.margin) < 1e-5 * design.hardware.memory_capacity
    binds = close(step.time, second_longest(step.times))
    weights, kv_read = step.ledger.weights_read, step.ledger.kv_read
    in_hbm = (1 - design.placement.host) * kv_read + step.ledger.kv_written
    return evaluation_of(design, step, "aggregate"), {
        "status": margin,
        "phase": margin | close(weights, kv_read),
        "bound_by": binds,
        "regime": binds | close(weights, in_hbm),
        "veto": jnp.zeros_like(margin),
    }


def test_terms_keep_the_shape_of_the_axes_they_depend_on():
    space = make_space(SPACES["remedies"])
    columns = Columns(space, load_catalogue(space))
    small = jax.eval_shape(
        lambda where: jax.tree.map(jnp.asarray, compact(lambda d: evaluate(d, "aggregate"))(columns.design(where))),
        own_dimensions(space),
    )
    varies = {
        name: {d for d, n in zip(space.dims, array.shape, strict=False) if n > 1}
        for name, array in small.metrics.items()
    }
    assert varies["quality_loss"] == {"model", "key_bits", "retention"}  # one model's keys have outliers
    assert varies["ridge_point"] == {"hardware"}
    assert varies["kv_bytes_read"] == {"model", "context", "batch", "key_bits", "retention", "tensor_parallel"}
    assert varies["tokens_per_second"] == set(space.dims)


def test_neutral_terms_vanish_and_constants_fold():
    zero, one = np.zeros((1, 1)), np.ones((1, 1))

    def laws(row, column, nothing, unit):
        return {
            "gone": row * nothing,
            "same": row * unit + nothing,
            "folded": jnp.exp(nothing) + unit,
            "chosen": jnp.where(unit > nothing, row, column),
            "full": row + column,
        }

    row, column = jnp.arange(3.0)[:, None], jnp.arange(5.0)[None, :]
    shapes = jax.eval_shape(lambda r, c: jax.tree.map(jnp.asarray, compact(laws)(r, c, zero, one)), row, column)
    assert {name: array.shape for name, array in shapes.items()} == {
        "gone": (1, 1), "same": (3, 1), "folded": (1, 1), "chosen": (3, 1), "full": (3, 5),
    }  # fmt: skip
    found = jax.jit(lambda r, c: compact(laws)(r, c, zero, one))(row, column)
    np.testing.assert_array_equal(found["chosen"], row)
    np.testing.assert_array_equal(found["folded"], 2.0)
    np.testing.assert_array_equal(found["full"], row + column)
