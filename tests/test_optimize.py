"""`kvwall optimize`: what it finds, how it goes on, what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optuna
import pytest

import kvwall as kv
from kvwall.objectives.register import STATUS_OK, Evaluation
from kvwall.spaces.axes import AXES, Axis
from kvwall.spaces.columns import Columns, load_catalogue, with_number
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from kvwall.sweep.cli import run
from kvwall.sweep.kernel import Problem, masks
from kvwall.sweep.objective import Constraint
from kvwall.sweep.results import FrontTable
from kvwall.sweep.search import OptimizeResult, optimize
from kvwall.sweep.search.evaluator import BATCH, Evaluator, _violation
from kvwall.sweep.search.exact import grid_optimum
from kvwall.sweep.search.loop import SearchProgress
from kvwall.sweep.search.parameters import Parameters
from kvwall.sweep.search.sampler import LocalSearchSampler
from kvwall.sweep.stored_front import admissible
from kvwall.sweep.study import Study

SMALL = """
[study]
name = "small"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["h100-sxm", "mi300x"]
batch = [64, 1, 8, 256]
context = [8192, 65536]
key_bits = [16, 4, 8]
value_bits = "key_bits"
weight_bits = ["native", 4, 8]
retention = [1.0, 0.3, 0.6]
placement_host = [0.0, 0.5]
tensor_parallel = [1, 8]
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper"]
[constraints]
quality_loss_upper = { max = 0.05 }
time_per_output_token = { max = "100 ms" }
"""
LARGE = (
    SMALL.replace('name = "small"', 'name = "large"')
    .replace("[64, 1, 8, 256]", "{ geom = [1, 1024, 20] }")
    .replace("[8192, 65536]", "{ geom = [4096, 262144, 15] }")
    .replace("[1.0, 0.3, 0.6]", "{ linear = [0.1, 1.0, 19] }")
    .replace("[0.0, 0.5]", "{ linear = [0.0, 0.9, 10] }")
)
HOPELESS = SMALL.replace("max = 0.05", "max = -1.0").replace('"100 ms"', "0.05")
ONE = """
[study]
name = "one"
mode = "ceiling"
[space]
model = "paper/llama-3-70b"
hardware = "paper/b200"
context = 1000
"""


@pytest.fixture(scope="module")
def small() -> Study:
    return Study.from_text(SMALL)


@pytest.fixture(scope="module")
def large() -> Study:
    return Study.from_text(LARGE)


@pytest.fixture(scope="module")
def whole(small: Study) -> OptimizeResult:
    """Every point of the small grid tried."""
    return optimize(small, trials=small.space.size + 10, cold=True, exact_optimum=grid_optimum)


def no_optimum(study: Study) -> float | None:
    return None


@pytest.fixture(scope="module")
def best_of_large(large: Study) -> float | None:
    """The exact optimum of its grid."""
    return grid_optimum(large)


@pytest.fixture(scope="module")
def evaluators() -> dict[str, Evaluator]:
    """The evaluators of this file's studies, by what they compute."""
    return {}


@pytest.fixture(autouse=True)
def _scored_by_one_program(evaluators: dict[str, Evaluator], monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is compiled for each study instead of for each search; a search changes nothing in it."""

    def of(study: Study, parameters: Parameters) -> Evaluator:
        return evaluators.setdefault(f"{study.spec_hash} {study.continuous}", Evaluator(study, parameters))

    monkeypatch.setattr(sys.modules["kvwall.sweep.search.optimize"], "Evaluator", of)


def every_point(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """Objectives and admissibility of the grid, from the public metrics in float64."""
    import jax

    from kvwall.objectives.register import evaluate

    index = np.unravel_index(np.arange(study.space.size), study.space.shape)
    with jax.enable_x64(True):
        where = dict(zip(study.space.dims, index, strict=True))
        found = jax.jit(lambda positions: evaluate(study.columns().design(positions), study.task))(where)
        admissible = np.asarray(found.labels["status"] == 1)
        for constraint in study.constraints:
            admissible = admissible & (np.asarray(found.metrics[constraint.metric]) <= constraint.high)
        values = [np.asarray(found.metrics[objective.metric]) for objective in study.objectives]
    shape = (study.space.size,)
    return np.stack([np.broadcast_to(each, shape) for each in values], axis=1), np.broadcast_to(admissible, shape)


def best_of(found: OptimizeResult, study: Study) -> float:
    assert found.best is not None
    value = found.best[study.objectives[0].metric]
    assert isinstance(value, float)
    return value


def test_a_grid_within_the_trials_is_searched_whole(small: Study, whole: OptimizeResult) -> None:
    values, admissible = every_point(small)
    assert whole.trials == small.space.size
    assert best_of(whole, small) == pytest.approx(values[admissible, 0].max(), rel=1e-5)
    assert whole.regret == 0.0
    assert whole.front_source == "exact"


def test_its_front_is_the_brute_force_one(small: Study, whole: OptimizeResult) -> None:
    values, admissible = every_point(small)
    signed = values[admissible].astype(np.float32) * [-1, 1]
    beaten = [np.any(np.all(signed <= row, axis=1) & np.any(signed < row, axis=1)) for row in signed]
    expected = np.unique(signed[~np.array(beaten)], axis=0)
    names = [objective.metric for objective in small.objectives]
    reached = np.unique(np.array([[row[name] for name in names] for row in whole.front]) * [-1, 1], axis=0)
    assert reached == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_few_trials_come_close_to_the_exact_optimum(large: Study, best_of_large: float | None) -> None:
    assert large.space.size > 1_000_000
    found = [
        optimize(large, trials=1000, seed=seed, cold=True, exact_optimum=lambda study: best_of_large).regret
        for seed in range(2)
    ]
    assert all(regret is not None and 0 <= regret < 0.05 for regret in found)


def test_local_search_beats_random_trials(large: Study) -> None:
    parameters = Parameters(large.space)
    evaluator = Evaluator(large, parameters)
    draw = np.random.default_rng(0)
    scores = evaluator([parameters.params(int(index)) for index in draw.integers(large.space.size, size=1000)])
    chance = scores.objectives[scores.admissible, 0].max()
    assert best_of(optimize(large, trials=1000, cold=True, exact_optimum=no_optimum), large) > chance


def test_same_seed_same_result_and_another_seed_another(large: Study) -> None:
    first, again, other = (optimize(large, trials=200, seed=s, exact_optimum=no_optimum) for s in (3, 3, 4))
    assert first.best == again.best
    assert first.front == again.front
    assert first.front != other.front


def trials_of(path: Path, stage: str = "best") -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    names = [s.study_name for s in optuna.get_all_study_summaries(storage) if s.study_name.endswith(stage)]
    found = optuna.load_study(study_name=names[0], storage=storage).get_trials()
    storage.remove_session()
    storage.engine.dispose()
    return found


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_a_second_call_goes_on_and_ends_as_one_call_would(large: Study, tmp_path: Path) -> None:
    at_once, in_parts = tmp_path / "a" / "trials.db", tmp_path / "b" / "trials.db"
    whole = optimize(large, trials=250, storage=str(at_once), exact_optimum=no_optimum)
    optimize(large, trials=130, storage=str(in_parts), exact_optimum=no_optimum)  # within a batch
    parts = optimize(large, trials=250, storage=str(in_parts), exact_optimum=no_optimum)
    assert [t.params for t in trials_of(in_parts)] == [t.params for t in trials_of(at_once)]
    assert parts.best == whole.best
    assert parts.trials == 250
    again = optimize(large, trials=250, storage=str(in_parts), exact_optimum=no_optimum)
    assert len(trials_of(in_parts)) == 250
    assert again.best == whole.best


def test_the_search_for_the_front_ends_alike_however_often_it_is_interrupted(large: Study, tmp_path: Path) -> None:
    at_once, in_parts = tmp_path / "a" / "trials.db", tmp_path / "b" / "trials.db"
    whole = optimize(large, trials=400, storage=str(at_once), exact_optimum=no_optimum)
    for trials in (130, 320, 400):  # within a batch, within a generation, and to the end
        parts = optimize(large, trials=trials, storage=str(in_parts), exact_optimum=no_optimum)
    found = [trial.params for trial in trials_of(in_parts, "front")]
    assert len(found) == 200
    assert found == [trial.params for trial in trials_of(at_once, "front")]
    assert len({tuple(params.items()) for params in found}) > 100, "later generations must bring new designs"
    assert parts.front == whole.front


def test_an_interrupted_search_keeps_its_trials(large: Study, tmp_path: Path) -> None:
    path = tmp_path / "trials.db"

    def stop(at: SearchProgress) -> None:
        if at.done >= 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimize(large, trials=200, storage=str(path), progress=stop, exact_optimum=no_optimum)
    assert len(trials_of(path)) == 100
    found = optimize(large, trials=200, storage=str(path), exact_optimum=no_optimum)
    assert found.best == optimize(large, trials=200, exact_optimum=no_optimum).best


def test_trials_a_dead_run_left_open_are_failed_and_tried(large: Study, tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    optimize(large, trials=50, storage=str(path), exact_optimum=no_optimum)
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    name = next(s.study_name for s in optuna.get_all_study_summaries(storage) if s.study_name.endswith("best"))
    parameters = Parameters(large.space)
    left = parameters.params(12345)
    zombie = optuna.load_study(study_name=name, storage=storage)
    zombie.enqueue_trial(left)
    zombie.ask(parameters.distributions)
    storage.remove_session()
    storage.engine.dispose()
    optimize(large, trials=100, storage=str(path), exact_optimum=no_optimum)
    kept = trials_of(path)
    assert [t.state.name for t in kept if t.params == left] == ["FAIL", "COMPLETE"]
    assert sum(t.state.name == "COMPLETE" for t in kept) == 100


def test_a_changed_study_is_refused(small: Study, tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    optimize(small, trials=50, storage=str(path), exact_optimum=no_optimum)
    changed = Study.from_text(SMALL.replace("max = 0.05", "max = 0.06"))
    with pytest.raises(InputError, match="0.05.*--out"):
        optimize(changed, trials=50, storage=str(path), exact_optimum=no_optimum)


def test_one_writer_at_a_time(small: Study, tmp_path: Path) -> None:
    path = str(tmp_path / "trials.db")

    def second(at: SearchProgress) -> None:
        optimize(small, trials=50, storage=path, exact_optimum=no_optimum)

    with pytest.raises(InputError, match="written by process"):
        optimize(small, trials=50, storage=path, progress=second, exact_optimum=no_optimum)


@pytest.mark.parametrize("storage", ["nonsense://x", "sqlite:////proc/no/trials.db"])
def test_storage_that_cannot_be_used_is_an_input_fault(small: Study, storage: str) -> None:
    with pytest.raises(InputError):
        optimize(small, trials=50, storage=storage, exact_optimum=no_optimum)


def test_a_file_that_is_no_database_is_an_input_fault(small: Study, tmp_path: Path) -> None:
    (tmp_path / "trials.db").write_text("not a database, and long enough to be looked at" * 50)
    with pytest.raises(InputError, match="cannot be used"):
        optimize(small, trials=50, storage=str(tmp_path / "trials.db"), exact_optimum=no_optimum)


def test_nothing_admissible_says_what_rules_out_how_many() -> None:
    found = optimize(Study.from_text(HOPELESS), trials=100, cold=True)
    assert found.best is None
    assert found.front == []
    assert found.regret is None
    text = "\n".join(found.rejected)
    assert "no design tried is admissible: of 1" in text
    assert "constraint quality_loss_upper <= -1 rejects" in text
    assert "constraint time_per_output_token <= 0.05 rejects" in text


def test_a_search_that_misses_what_exists_says_so(small: Study) -> None:
    tight = Study.from_text(SMALL.replace("max = 0.05", "max = -1.0"))
    found = optimize(tight, trials=50, exact_optimum=lambda study: 1.0)
    assert "yet the grid holds admissible designs" in (found.reason or "")


def front_of(study: Study, index: int, value: float) -> FrontTable:
    metrics = {objective.metric: np.array([value]) for objective in study.objectives}
    return FrontTable(np.array([index]), np.array([1]), metrics, {})


def test_a_warm_start_begins_from_the_exact_front_and_gives_it(large: Study) -> None:
    known = optimize(large, trials=1500, seed=9, cold=True, exact_optimum=no_optimum)
    assert known.best is not None
    front = front_of(large, large.space.index({n: known.best[n] for n in large.space.dims}), best_of(known, large))
    warm = optimize(large, trials=50, seed=1, front=front)
    cold = optimize(large, trials=50, seed=1, front=front, cold=True)
    assert warm.regret == 0.0
    assert warm.front_source == "exact"
    assert [row["batch"] for row in warm.front] == [known.best["batch"]]
    assert cold.front_source == "search"
    assert cold.regret is None or cold.regret > 0.1


def test_regret_is_relative_to_the_optimum(small: Study) -> None:
    found = optimize(small, trials=50, exact_optimum=lambda study: 1e6)
    assert found.regret == pytest.approx((1e6 - best_of(found, small)) / 1e6)


def test_regret_of_a_minimized_objective_is_positive_when_worse() -> None:
    text = SMALL.replace('minimize = ["quality_loss_upper"]', 'minimize = ["cost_per_million_tokens"]')
    study = Study.from_text(text.replace('maximize = ["tokens_per_second_per_device"]\n', ""))
    found = optimize(study, trials=100, exact_optimum=lambda study: 0.001)
    assert found.regret == pytest.approx((best_of(found, study) - 0.001) / 0.001)
    assert found.regret > 0
    assert {row["cost_per_million_tokens"] for row in found.front} == {best_of(found, study)}


def test_parameters_and_grid_points_are_one_to_one(small: Study) -> None:
    parameters = Parameters(small.space)
    draw = np.random.default_rng(1)
    for index in map(int, draw.integers(small.space.size, size=200)):
        assert parameters.chosen(parameters.params(index)) == small.space.point(index)


def test_numeric_parameters_are_in_order_of_their_values(small: Study) -> None:
    parameters = Parameters(small.space)
    params = parameters.params(0)
    batches = [parameters.chosen({**params, "batch": rank})["batch"] for rank in range(4)]
    formats = [parameters.chosen({**params, "weight_bits": rank})["weight_bits"] for rank in range(3)]
    assert batches == [1, 8, 64, 256]
    assert formats == [4.0, 8.0, "native"]
    assert isinstance(parameters.distributions["hardware"], optuna.distributions.CategoricalDistribution)
    assert "value_bits" not in parameters.distributions


def test_a_tied_axis_follows_its_leader(small: Study) -> None:
    found = optimize(small, trials=100, exact_optimum=no_optimum)
    assert all(row["value_bits"] == row["key_bits"] for row in found.front)


def test_violations_are_shares_of_their_bounds(small: Study) -> None:
    parameters = Parameters(small.space)
    evaluator = Evaluator(small, parameters)
    values, admissible = every_point(small)
    index = np.arange(0, small.space.size, 7)
    scores = evaluator([parameters.params(int(i)) for i in index])
    assert np.array_equal(scores.admissible, admissible[index])
    loss = evaluator.rules.index("quality_loss_upper <= 0.05")
    expected = np.maximum(0, values[index, 1] - 0.05) / 0.05
    assert scores.violations[:, loss] == pytest.approx(np.minimum(expected, 10), rel=1e-4, abs=1e-6)


def test_batches_of_any_length_share_one_compilation(small: Study) -> None:
    parameters = Parameters(small.space)
    evaluator = Evaluator(small, parameters)
    for count in (1, BATCH - 1, BATCH, BATCH + 1):
        assert len(evaluator([parameters.params(i) for i in range(count)])) == count
    # a long run's other kernels may have pushed this one out again
    assert evaluator._score._cache_size() <= 1  # type: ignore[attr-defined]


def test_no_design_is_tried_twice(large: Study, tmp_path: Path) -> None:
    optimize(large, trials=400, storage=str(tmp_path / "trials.db"), exact_optimum=no_optimum)
    tried = [tuple(sorted(t.params.items())) for t in trials_of(tmp_path / "trials.db")]
    assert len(set(tried)) == 400


def test_a_continuous_search_leaves_the_grid() -> None:
    study = Study.from_text(SMALL.replace("[objectives]", "[optimize]\ncontinuous = true\n[objectives]"))
    values, admissible = every_point(study)
    found = optimize(study, trials=1000, cold=True)
    assert best_of(found, study) > values[admissible, 0].max()
    assert found.regret is None
    assert "left the grid" in (found.reason or "")
    best = found.best or {}
    assert best["retention"] not in study.space.values("retention")
    assert isinstance(best["batch"], int)
    assert best["weight_bits"] in study.space.values("weight_bits")
    assert best["value_bits"] == best["key_bits"]


NUMERIC = [axis for axis in AXES.values() if axis.kind in {"int", "real"}]


@pytest.mark.parametrize("axis", NUMERIC, ids=lambda axis: axis.name)
def test_every_numeric_axis_can_leave_the_grid(axis: Axis) -> None:
    """Between two grid values the design holds the number asked for, and the grid's design the grid's."""
    low, high = max(axis.low, 1e-3), min(axis.high, 1e4)
    low, high = (1, 9) if axis.kind == "int" else (low, high)
    fixed = {"model": "paper/llama-3-70b", "hardware": "paper/b200", "context": 1000}
    space = make_space(fixed | {axis.name: [low, high]})
    parameters = Parameters(space, continuous=True)
    middle = 4 if axis.kind == "int" else (low + high) / 2
    columns = Columns(space, load_catalogue(space))
    zero = {axis.name: np.zeros(1, dtype=np.int64)}
    ends = [jax.tree.leaves(columns.design({axis.name: np.array([place])})) for place in (0, 1)]
    between = jax.tree.leaves(with_number(columns.design(zero), axis.name, np.array([middle])))
    assert parameters.free == (axis.name,)
    changed = [
        (float(np.ravel(leaf)[0]), float(np.ravel(first)[0]), float(np.ravel(last)[0]))
        for first, last, leaf in zip(*ends, between, strict=True)
        if not np.array_equal(first, leaf)
    ]
    assert changed == [(middle, low, high)]


BOUNDS = [(None, None), (0.0, None), (None, 0.0), (-1.0, 1.0), (1.0, 1.0), (None, 5e-324), (3.0, 1e30)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_engine_search_and_stored_fronts_agree_on_what_a_constraint_allows(
    low: float | None, high: float | None, small: Study
) -> None:
    constraint = Constraint("max_context", low, high)
    values = np.float32([-np.inf, -1.0000001, -1.0, 0.0, 1e-30, 1.0, 1.0000001, 2.9999998, 3.0, 1e30, np.inf, np.nan])
    status = np.full(len(values), STATUS_OK, np.int8)
    with jax.debug_nans(False):
        found = Evaluation({"max_context": values}, {"status": status}, {"max_context": ~np.isnan(values)})
        _, engine, _ = masks(Problem(small.columns(), small.task, (), (constraint,)), found)
        violations = np.asarray(_violation(jnp.asarray(values), constraint))
    np.testing.assert_array_equal(violations <= 0, engine)
    stored = {"status": status, "max_context": values}
    np.testing.assert_array_equal(admissible([constraint], [], stored), engine)
    assert np.isfinite(violations).all()
    outside = (values < -np.inf if low is None else values < low - 1e-4 * abs(low)) | (
        values > np.inf if high is None else values > high + 1e-4 * abs(high) + 1e-20
    )
    assert not np.any(np.asarray(engine)[outside])
    assert np.asarray(engine)[-2] == (high is None), "an infinity is compared like a number"


def test_a_continuous_design_is_evaluated_at_its_own_numbers() -> None:
    study = Study.from_text(SMALL.replace("[objectives]", "[optimize]\ncontinuous = true\n[objectives]"))
    best = optimize(study, trials=100, cold=True).best or {}
    report = kv.evaluate(
        mode="ceiling", **{name: best[name] for name in kv.evaluate(mode="ceiling", **point(study)).to_json()["inputs"]}
    ).to_json()
    for name in ("tokens_per_second_per_device", "kv_bytes_read", "memory_margin", "cost_per_million_tokens"):
        assert best[name] == pytest.approx(report["metrics"][name], rel=1e-4)


def point(study: Study) -> dict[str, object]:
    return dict(study.space.point(0))


def test_a_single_design_is_its_own_optimum() -> None:
    study = Study.from_text(ONE)
    found = optimize(study, exact_optimum=grid_optimum)
    assert (found.trials, found.regret, len(found.front)) == (1, 0.0, 1)


def test_the_sampler_proposes_within_every_distribution(large: Study) -> None:
    parameters = Parameters(large.space, continuous=True)
    study = optuna.create_study(sampler=LocalSearchSampler(parameters, 1.0, 0))
    for _ in range(300):
        trial = study.ask(parameters.distributions)
        for name, each in parameters.distributions.items():
            assert each._contains(each.to_internal_repr(trial.params[name]))
        trial.set_constraint("status", 0.0)
        study.tell(trial, float(trial.params["retention"]))


@pytest.mark.parametrize(("trials", "seed"), [(0, 0), (-5, 0), (10, -1), (10, 2**32)])
def test_trials_and_seed_have_bounds(small: Study, trials: int, seed: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        optimize(small, trials=trials, seed=seed)


def written(folder: Path, text: str) -> str:
    path = folder / "study.toml"
    path.write_text(text)
    return str(path)


def test_the_command_prints_one_json_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimize", written(tmp_path, SMALL), "--trials", "100", "--out", str(tmp_path / "out"), "--json"]
    assert run(words) == 0
    streams = capsys.readouterr()
    found = json.loads(streams.out)
    assert {"best", "front", "trials", "seconds", "regret", "reason"} <= found.keys()
    assert found["trials"] == 100
    assert found["best"]["status"] == "ok"
    assert "100 of 100 trials" in streams.err
    assert (tmp_path / "out" / "trials.db").is_file()


def test_the_command_leaves_with_3_when_nothing_is_admissible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["optimize", written(tmp_path, HOPELESS), "--trials", "50", "--out", str(tmp_path / "out"), "--json"]
    assert run(words) == 3
    streams = capsys.readouterr()
    assert json.loads(streams.out)["best"] is None
    assert "constraint quality_loss_upper <= -1 rejects" in streams.err


def test_the_command_leaves_with_130_when_interrupted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def interrupted(self: Evaluator, batch: object) -> object:
        calls.append(batch)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return scored(self, batch)  # type: ignore[arg-type]

    scored = Evaluator.__call__
    monkeypatch.setattr(Evaluator, "__call__", interrupted)
    words = ["optimize", written(tmp_path, SMALL), "--trials", "200", "--out", str(tmp_path / "out")]
    assert run(words) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert len(trials_of(tmp_path / "out" / "trials.db")) == 2 * BATCH
