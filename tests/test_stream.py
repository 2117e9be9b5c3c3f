"""Streaming a grid against evaluating each of its points, in one piece, in float64, with plain NumPy around it."""

from dataclasses import asdict

import jax
import numpy as np
import pytest

from kvwall.objectives.register import LABELS, STATUS_OK, metric_register
from kvwall.objectives.status import STATUSES
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from kvwall.sweep.blocks import BlockEvaluator
from kvwall.sweep.front import FILTER_SIZE, Front
from kvwall.sweep.kernel import COUNTED_LABELS, Problem
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.run import front_table
from kvwall.sweep.stream import Stream

pytestmark = pytest.mark.made_fast

FAST = Objective("tokens_per_second_per_device", "maximize")
GOOD = Objective("quality_loss_upper", "minimize")
CHEAP = Objective("cost_per_million_tokens", "minimize")
PROMPT = Objective("time_per_output_token", "minimize")
LONG = Objective("max_context", "maximize")

BASE = {
    "model": ["meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.2-1B"],
    "hardware": ["h100-sxm", "mi300x", "l40s"],
    "batch": [1, 8, 64, 300],
    "context": [1000, 8000, 64_000, 400_000],
    "key_bits": [16, 8, 4, 2],
    "value_bits": "key_bits",
    "retention": [1.0, 0.5, 0.2],
    "placement_host": [0.0, 0.5, 1.0],
    "tensor_parallel": [1, 2, 3, 8],
}
ONE = {"model": "meta-llama/Meta-Llama-3-8B", "hardware": "h100-sxm", "context": 1000}
BUDGETS = (Constraint("time_per_output_token", high=0.05), Constraint("quality_loss", high=0.2))
CASES = {
    "two objectives": (BASE, (FAST, GOOD), ()),
    "three, constrained": (BASE, (FAST, GOOD, CHEAP), BUDGETS),
    "five": (BASE, (FAST, GOOD, CHEAP, PROMPT, LONG), (Constraint("tokens_per_second_per_user", low=20.0),)),
    "only narrow": (BASE, (GOOD,), ()),
    "one axis": ({**ONE, "context": [10, 20, 4000]}, (FAST, GOOD), ()),
    "one point": (ONE, (FAST, GOOD), ()),
    "unsourced link and price": ({**BASE, "hardware": ["b200-sxm", "h20"]}, (FAST, CHEAP), ()),
    "nothing admissible": (BASE, (FAST, GOOD), (Constraint("tokens_per_second", low=1e12),)),
}


def problem_of(stated, objectives, constraints):
    space = make_space(stated)
    return Problem(Columns(space, load_catalogue(space)), "aggregate", objectives, constraints)


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def case(request):
    problem = problem_of(*request.param)
    stream = Stream(problem)
    result = stream.run()
    everything = evaluate_designs(problem, np.arange(problem.columns.space.size))
    return problem, stream, result, everything


def admissible_points(problem, everything):
    ok = everything["status"] == STATUS_OK
    for constraint in problem.constraints:
        value = everything[constraint.metric]
        ok &= np.nan_to_num(value, nan=np.inf) <= (np.inf if constraint.high is None else constraint.high)
        ok &= np.nan_to_num(value, nan=-np.inf) >= (-np.inf if constraint.low is None else constraint.low)
    for objective in problem.objectives:
        ok &= ~np.isnan(everything[objective.metric])
    return ok


def means_something(label, everything):
    """A phase or a regime needs a step that can be computed: no impossible layout, no missing figure."""
    computed = [STATUSES.index("ok"), STATUSES.index("memory")]
    return np.isin(everything["status"], computed) if label != "status" else np.ones(len(everything["status"]), bool)


def test_counts(case):
    problem, _, result, everything = case
    summary = result.summary
    assert summary.points == problem.columns.space.size
    assert summary.feasible == np.sum(everything["status"] == STATUS_OK)
    assert summary.admissible == np.sum(admissible_points(problem, everything))
    for label in COUNTED_LABELS:
        codes = everything[label][means_something(label, everything)]
        np.testing.assert_array_equal(summary.totals[label], np.bincount(codes, minlength=len(LABELS[label].meanings)))


def test_histogram_of_the_first_objective(case):
    problem, _, result, everything = case
    name = problem.objectives[0].metric
    value = everything[name][(everything["status"] == STATUS_OK) & ~np.isnan(everything[name])]
    if len(np.unique(value)) < 2:
        assert not result.summary.histogram
        return
    if not np.all(np.isfinite(value)):
        assert not result.summary.histogram
        return
    histogram = result.summary.histogram[name]
    assert histogram.counts.sum() == len(value)
    np.testing.assert_allclose(histogram.edges[[0, -1]], [value.min(), value.max()], rtol=2e-5, atol=1e-7)
    moved = 2e-5 * np.abs(histogram.edges)  # a value within rounding of an edge may fall on either side
    fewest = [
        np.sum((value > low + a) & (value < high - b))
        for low, high, a, b in zip(histogram.edges, histogram.edges[1:], moved, moved[1:], strict=False)
    ]
    assert np.all(histogram.counts >= fewest)


def test_rejections(case):
    problem, _, result, everything = case
    feasible = everything["status"] == STATUS_OK
    for constraint in problem.constraints:
        value = everything[constraint.metric]
        outside = (value > (constraint.high or np.inf)) | (value < (constraint.low or -np.inf)) | np.isnan(value)
        assert result.summary.rejected[str(constraint)] == np.sum(feasible & outside)


def test_marginals_along_every_dimension(case):
    problem, stream, result, everything = case
    space = problem.columns.space
    feasible = (everything["status"] == STATUS_OK).reshape(space.shape)
    asked = {one.metric for one in (*problem.objectives, *problem.constraints)}
    for place, dim in enumerate(space.dims):
        others = tuple(axis for axis in range(len(space.dims)) if axis != place)
        for name, dims in stream.depends.items():
            kept = dim in dims and (name in asked or metric_register(problem.task, "ceiling")[name].summarised)
            assert (name in result.summary.low[dim]) == kept
            if not kept:
                continue
            value = np.where(feasible, everything[name].reshape(space.shape), np.nan)
            none = np.all(np.isnan(value), axis=others)
            low = np.where(none, np.nan, np.min(np.where(np.isnan(value), np.inf, value), axis=others))
            high = np.where(none, np.nan, np.max(np.where(np.isnan(value), -np.inf, value), axis=others))
            absolute = {"memory_margin": 2e4, "regime_distance": 1e-6}  # what a difference of numbers may be off by
            close = {"equal_nan": True, "rtol": 3e-5, "atol": absolute.get(name, 1e-7)}
            np.testing.assert_allclose(result.summary.low[dim][name], low, **close, err_msg=f"{dim} {name}")
            np.testing.assert_allclose(result.summary.high[dim][name], high, **close, err_msg=f"{dim} {name}")
        for label in COUNTED_LABELS:
            codes = np.where(means_something(label, everything), everything[label], -1).reshape(space.shape)
            rows = np.moveaxis(codes, place, 0).reshape(len(space[dim]), -1)
            expected = [np.bincount(row[row >= 0], minlength=len(LABELS[label].meanings)) for row in rows]
            np.testing.assert_array_equal(result.summary.counts[dim][label], expected)


def test_front_is_that_of_brute_force(case):
    problem, _, result, everything = case
    ok = admissible_points(problem, everything)
    values = np.stack([everything[o.metric] * o.sign for o in problem.objectives], axis=1)
    candidates = np.flatnonzero(ok)
    found = front_table(problem, result.front).grid_index
    assert set(found) <= set(candidates)
    assert len(found) == len(set(found))
    for index in found:  # no other member beats it at all, no other design by more than float32's rounding
        assert not np.any(beaten_by(values[index], values[found], 1e-11))
        assert not np.any(beaten_by(values[index], values[candidates], 2e-5))
    slack = 2e-5 * np.where(np.isfinite(values), np.abs(values), 0.0) + 1e-7
    for index in candidates:  # and whatever is not on it is matched or beaten by something that is
        assert np.any(np.all(values[found] <= values[index] + slack[index], axis=1))


def beaten_by(point, others, rounding):
    """Which of the others are as good everywhere, and better somewhere by more than rounding (finite or not)."""
    slack = rounding * np.where(np.isfinite(point), np.abs(point), 0.0)
    equal = np.isclose(others, point, rtol=1e-11, atol=0)
    as_good = np.all(equal | (others < point - slack), axis=1)
    return as_good & np.any(~equal & (others < point - slack), axis=1)


def test_discarding_rows_loses_nothing_to_the_last_bit(case):
    problem, stream, result, _ = case
    main, _, points = stream.compile()
    exhaustive = Front(len(problem.objectives))
    nothing = np.full((FILTER_SIZE, len(problem.objectives)), np.inf, np.float32)
    for start in range(0, stream.first.row_count, main.rows_per_call):
        best = main(start).best
        for row in range(0, len(best), points.rows_per_call):
            rows = np.arange(row, min(row + points.rows_per_call, len(best)))
            index, values = points(start + rows, best[rows], nothing)
            exhaustive.add(values, index)
    for name in ("values", "index", "multiplicity"):
        np.testing.assert_array_equal(getattr(result.front, name), getattr(exhaustive, name), err_msg=name)


class Interrupted(Exception):
    pass


class Keeper:
    """Keeps every state, and stops the stream at one of them."""

    def __init__(self, stop_at, kept=None):
        self.stop_at, self.kept, self.offers = stop_at, kept, 0

    def last(self):
        return self.kept

    def offer(self, arrays, complete=False):
        self.offers += 1
        self.kept = {name: np.array(array) for name, array in arrays().items()}
        if self.offers == self.stop_at:
            raise Interrupted


def test_an_interrupted_stream_ends_as_an_uninterrupted_one():
    stream = Stream(problem_of(*CASES["three, constrained"]), points_per_call=4096)
    calls = Keeper(None)
    whole = stream.run(keep=calls)
    assert calls.offers >= 4, "too few blocks to interrupt between"
    for stop_at in range(1, calls.offers + 1):
        keeper = Keeper(stop_at)
        with pytest.raises(Interrupted):
            stream.run(keep=keeper)
        resumed = stream.run(keep=Keeper(None, keeper.kept))
        for name in ("values", "index", "multiplicity"):
            np.testing.assert_array_equal(getattr(resumed.front, name), getattr(whole.front, name))
        jax.tree.map(np.testing.assert_array_equal, asdict(resumed.summary), asdict(whole.summary))


def test_blocks_equal_single_points():
    problem = problem_of(*CASES["unsourced link and price"])
    space = problem.columns.space
    names = ("tokens_per_second", "cost_per_million_tokens", "quality_loss", "phase", "status")
    block = BlockEvaluator(problem, dict(zip(space.dims, space.shape, strict=True)), names)
    found = block({name: np.arange(size) for name, size in zip(space.dims, space.shape, strict=True)})
    everything = evaluate_designs(problem, np.arange(space.size))
    for name in names:
        expected = everything[name].reshape(space.shape)
        if name == "phase":
            expected = np.where(means_something(name, everything).reshape(space.shape), expected, -1)
        np.testing.assert_allclose(found[name], expected, rtol=2e-5, atol=1e-7, equal_nan=True, err_msg=name)
    part = {name: np.arange(size)[-1:] for name, size in zip(space.dims, space.shape, strict=True)}
    smaller = block(part)["tokens_per_second"]
    np.testing.assert_array_equal(smaller.ravel(), found["tokens_per_second"].ravel()[-1:])


@pytest.mark.parametrize("name", ["one axis", "one point"])
def test_blocks_of_few_dimensions(name):
    problem = problem_of(*CASES[name])
    space = problem.columns.space
    wanted = ("tokens_per_second", "quality_loss", "phase", "status")
    block = BlockEvaluator(problem, dict(zip(space.dims, space.shape, strict=True)), wanted)
    found = block({dim: np.arange(size) for dim, size in zip(space.dims, space.shape, strict=True)})
    everything = evaluate_designs(problem, np.arange(space.size))
    for metric in wanted:
        np.testing.assert_allclose(found[metric], everything[metric].reshape(space.shape), rtol=2e-5)


def test_a_long_axis_and_a_wide_grid_stay_within_memory():
    wide = {**ONE, "batch": {"range": [1, 5000, 1]}, "context": {"range": [1000, 4199, 1]}}
    stream = Stream(problem_of(wide, (FAST,), ()))
    for reducer in stream.reducers():
        assert reducer.layout.column_count >= 3000
        assert reducer.rows_per_call * 100 * 4 < 2e7, "bytes one call brings back"


def test_a_grid_with_more_rows_than_can_be_numbered_is_refused():
    space = make_space({**ONE, "batch": {"range": [1, 900000, 1]}, "context": {"range": [1, 900000, 1]}})
    enormous = {
        **ONE,
        **{name: {"linear": [0.1, 0.9, 1000]} for name in ("retention", "utilisation", "outlier_fraction")},
    }
    enormous |= {"batch": {"range": [1, 100000, 1]}, "context": {"range": [1, 100000, 1]}}
    assert space.size == 8.1e11
    with pytest.raises(InputError, match="rows"):
        Stream(problem_of(enormous, (FAST,), ()))
