"""The exact front by bounds: equal to exhaustive search, on random and adversarial grids and on real studies."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from kvwall.objectives.register import STATUS_OK
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from kvwall.sweep import branch
from kvwall.sweep.bounds import ADMISSIBLE, BOXES_PER_CALL, INFEASIBLE, POSSIBLE, REJECTED, Bounded, Bounds
from kvwall.sweep.boxes import Boxes, Ordered
from kvwall.sweep.branch import BranchSearch, Certificate
from kvwall.sweep.front import Front
from kvwall.sweep.objective import signed
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.run import front_table, problem_of
from kvwall.sweep.study import Study

HARDWARE = Path(__file__).parent.parent / "spaces" / "catalog" / "hardware"
STATED = {"model": "paper/llama-3-70b", "hardware": ["h100-sxm", "b200-sxm"], "context": 4096}
AXES = ("batch", "retention", "placement_host", "tensor_parallel")


def random_space(random: np.random.Generator):
    """A grid with one dimension of names and up to three of numbers, whose values come in any order."""
    stated = dict(STATED)
    for axis in AXES[: random.integers(0, len(AXES))]:
        values = np.arange(1, random.integers(2, 6))
        random.shuffle(values)
        stated[axis] = [float(v) / 8 if axis in {"retention", "placement_host"} else int(v) for v in values]
    return make_space(stated)


def grid_index(ordered: Ordered, places: np.ndarray) -> np.ndarray:
    """Flat grid index of places of shape (points, dimensions)."""
    return np.ravel_multi_index(
        [order[places[:, dim]] for dim, order in enumerate(ordered.positions)], ordered.space.shape
    )


class Tabled:
    """Bounds out of tables of objectives and fates, as tight as they can be or looser."""

    def __init__(self, ordered, objectives, fates, random, loose):
        self._ordered, self._objectives, self._fates = ordered, objectives, fates
        self._random, self._loose = random, loose

    def __call__(self, boxes: Boxes) -> Bounded:
        found = [self._one(first, last) for first, last in zip(boxes.first, boxes.last, strict=True)]
        best, worst, fate = zip(*found, strict=True)
        return Bounded(np.array(best), np.array(worst), np.array(fate, np.int8))

    def _one(self, first, last):
        inside = tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))
        places = np.stack([axis.ravel() for axis in np.mgrid[inside]], axis=1)
        index = grid_index(self._ordered, places)
        values, fates = self._objectives[index], self._fates[index]
        known = values[fates == ADMISSIBLE]
        slack = self._loose * self._random.random(values.shape[1]) * (len(index) > 1)
        everywhere = set(fates.tolist())
        fate = everywhere.pop() if len(everywhere) == 1 else POSSIBLE
        if not len(known):
            return np.full(values.shape[1], -np.inf), np.full(values.shape[1], np.inf), fate if fate else REJECTED
        return known.min(axis=0) - slack, known.max(axis=0) + slack, fate


def table_of(front):
    return {
        tuple(v): (i, m)
        for v, i, m in zip(front.values.tolist(), front.index.tolist(), front.multiplicity.tolist(), strict=True)
    }


def exhaustive(values, admissible):
    """(vector -> (lowest index, multiplicity)) by comparing all pairs."""
    kept = np.flatnonzero(admissible)
    found = {}
    for i in kept:
        if not any(np.all(values[j] <= values[i]) and np.any(values[j] < values[i]) for j in kept):
            index, count = found.get(tuple(values[i].tolist()), (int(i), 0))
            found[tuple(values[i].tolist())] = (min(index, int(i)), count + 1)
    return found


def adversarial(kind, points, objectives, random):
    line = np.linspace(-1, 1, points)
    return {
        "random": lambda: random.random((points, objectives)),
        "coarse": lambda: random.integers(-1, 2, (points, objectives)).astype(float),
        "equal": lambda: np.full((points, objectives), 0.25),
        "opposed": lambda: np.stack([line * (-1) ** k for k in range(objectives)], axis=1),
        "infinite": lambda: random.choice([-np.inf, np.inf, 0.0, 1.0], (points, objectives)),
    }[kind]()


@pytest.mark.parametrize("kind", ["random", "coarse", "equal", "opposed", "infinite"])
def test_front_of_hundreds_of_random_grids_is_the_exhaustive_one(kind, monkeypatch):
    monkeypatch.setattr(branch, "_PENDING", 3)
    for seed in range(240):
        random = np.random.default_rng([seed, len(kind)])
        ordered = Ordered(random_space(random))
        points, objectives = ordered.space.size, int(random.integers(1, 6))
        values = adversarial(kind, points, objectives, random)
        likely = random.choice([[1, 0, 0], [0.6, 0.2, 0.2], [0, 0.5, 0.5]])
        fates = random.choice([ADMISSIBLE, INFEASIBLE, REJECTED], points, p=likely).astype(np.int8)
        bounds = Tabled(ordered, values, fates, random, loose=random.choice([0.0, 0.5]))
        monkeypatch.setattr("kvwall.sweep.dives.BOXES_PER_CALL", 4)
        monkeypatch.setattr("kvwall.sweep.looseness._PROBES", 2)
        found = BranchSearch(ordered, bounds, objectives).run()
        assert table_of(found.front) == exhaustive(values, fates == ADMISSIBLE), (kind, seed)
        assert found.certificate.points == points, (kind, seed)


def test_a_bound_that_is_too_tight_would_be_noticed():
    """The comparison above can fail: bounds that claim less than a design reaches lose it."""
    random = np.random.default_rng(1)
    ordered = Ordered(make_space({**STATED, "batch": [1, 2, 4, 8, 16], "retention": [0.25, 0.5, 1.0]}))
    values = random.random((ordered.space.size, 2))
    fates = np.full(ordered.space.size, ADMISSIBLE, np.int8)
    found = BranchSearch(ordered, Tabled(ordered, values, fates, random, loose=-3.0), 2).run()
    assert table_of(found.front) != exhaustive(values, fates == ADMISSIBLE)


STUDIES = {
    "dense": """
        model = ["meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.3-70B-Instruct"]
        hardware = ["h100-sxm", "mi300x", "l4"]
        batch = [64, 1, 7]
        context = [4096, 131072]
        key_bits = [4, 16, 2]
        value_bits = "key_bits"
        weight_bits = ["native", 4]
        retention = [1.0, 0.1]
        tensor_parallel = [1, 8, 3]
    """,
    "experts": """
        model = ["deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b", "Qwen/Qwen3-Next-80B-A3B-Instruct"]
        hardware = ["b200-sxm", "h200-sxm"]
        batch = [3, 256]
        context = [8192, 100000]
        key_bits = [16, 8]
        value_bits = "key_bits"
        tensor_parallel = [1, 8]
        pipeline_parallel = [1, 4]
        expert_parallel = [8, 1]
        expert_skew = [0.0, 0.3]
    """,
    "tiers": """
        model = "meta-llama/Llama-3.3-70B-Instruct"
        hardware = ["h100-sxm", "gh200-96"]
        engine = ["ideal", "vllm"]
        batch = [1, 48]
        context = 60000
        block_size = [16, 1]
        prefix_share = [0.0, 0.5]
        prefix_group = [1, 6]
        placement_host = [0.5, 0.0, 0.9]
        placement_nvme = [0.0, 0.4]
        access = ["streamed", "parked"]
        tensor_parallel = 4
        draft_tokens = [0, 3]
        output_tokens = [0, 512]
    """,
}
ASKED = """
    [objectives]
    maximize = ["tokens_per_second_per_device", "max_context"]
    minimize = ["quality_loss_upper", "cost_per_million_tokens", "time_per_output_token"]
    [constraints]
    time_per_output_token = {{ max = 0.1 }}
    memory_margin = {{ min = 1e9 }}
"""


def study_of(name: str, mode: str = "ceiling") -> Study:
    text = f'[study]\nname = "{name}"\nmode = "{mode}"\n[space]\n{STUDIES[name]}\n{ASKED.format()}'
    return Study.from_text(text)


def evaluated(study: Study):
    """(objectives, admissible) of every design, in float64, design by design."""
    problem = problem_of(study)
    found = evaluate_designs(problem, np.arange(study.space.size))
    admissible = found["status"] == STATUS_OK
    for one in study.constraints:
        admissible &= np.asarray(one.allows(found[one.metric]))
    values = signed(study.objectives, found)
    return values, admissible & ~np.isnan(values).any(axis=1)


@pytest.fixture(scope="module", params=[*STUDIES])
def case(request):
    study = study_of(request.param)
    return study, *evaluated(study)


@pytest.fixture(scope="module")
def ordered_bounds(case):
    study = case[0]
    ordered = Ordered(study.space)
    return ordered, Bounds(problem_of(study), ordered)


def test_front_of_a_study_is_that_of_evaluating_every_design(case, ordered_bounds):
    study, values, admissible = case
    whole = Front(len(study.objectives), np.float64)
    whole.add(values[admissible], np.flatnonzero(admissible))
    search = BranchSearch(*ordered_bounds, len(study.objectives))
    found = search.run()
    table, expected = front_table(problem_of(study), found.front), front_table(problem_of(study), whole)
    assert len(expected) > 1
    np.testing.assert_array_equal(table.grid_index, expected.grid_index)
    np.testing.assert_array_equal(table.multiplicity, expected.multiplicity)
    assert found.certificate.points == study.space.size
    assert found.certificate.irrelevant_blocks > 0


def test_a_box_of_one_design_has_its_numbers(case, ordered_bounds):
    study, values, admissible = case
    ordered, bounds = ordered_bounds
    places = np.stack(np.unravel_index(np.arange(min(study.space.size, BOXES_PER_CALL)), study.space.shape), axis=1)
    found = bounds(Boxes(places, places))
    index = grid_index(ordered, places)
    np.testing.assert_array_equal(found.fate == ADMISSIBLE, admissible[index])
    np.testing.assert_allclose(found.best[admissible[index]], values[index][admissible[index]], rtol=1e-11)
    np.testing.assert_array_equal(found.best, np.where(np.isfinite(found.best), found.worst, found.best))


def test_bounds_of_a_box_hold_for_every_design_in_it(case, ordered_bounds):
    study, _, _ = case
    ordered, bounds = ordered_bounds
    random = np.random.default_rng(3)
    ends = np.stack([random.integers(0, n, (2, 400)) for n in study.space.shape], axis=-1)
    first, last = ends.min(axis=0), ends.max(axis=0)
    last[:, ordered.named] = first[:, ordered.named]
    inside = np.stack([random.integers(first[:, d], last[:, d] + 1) for d in range(first.shape[1])], axis=1)
    box, design = bounds(Boxes(first, last)), bounds(Boxes(inside, inside))
    shown = design.fate == ADMISSIBLE
    assert np.all(box.best[shown] <= design.best[shown])
    assert np.all(box.worst[shown] >= design.worst[shown])
    assert set(box.fate[shown].tolist()) <= {POSSIBLE, ADMISSIBLE}
    assert np.all(design.fate[box.fate == ADMISSIBLE] == ADMISSIBLE)
    assert np.all(design.fate[box.fate == INFEASIBLE] == INFEASIBLE)


def test_estimates_are_bounded_as_well():
    study = study_of("dense", "estimate")
    values, admissible = evaluated(study)
    whole = Front(len(study.objectives), np.float64)
    whole.add(values[admissible], np.flatnonzero(admissible))
    found = BranchSearch.of(problem_of(study)).run()
    np.testing.assert_array_equal(np.sort(found.front.index), np.sort(whole.index))


class Interrupted(Exception):
    pass


class Kept:
    """Keeps every state, and ends the run after some."""

    def __init__(self, arrays=None, end=10**9):
        self.arrays, self.left = arrays, end

    def last(self):
        return self.arrays

    def offer(self, arrays, complete=False):
        self.left -= 1
        if self.left <= 0:
            self.arrays = arrays()
            raise Interrupted


@pytest.mark.parametrize("end", [1, 2, 3, 5, 8, 13])
def test_an_interrupted_search_goes_on_to_the_same_front(end, monkeypatch):
    monkeypatch.setattr(branch, "BOXES_PER_CALL", 16)
    monkeypatch.setattr("kvwall.sweep.dives.BOXES_PER_CALL", 4)
    monkeypatch.setattr("kvwall.sweep.looseness._PROBES", 2)
    random = np.random.default_rng(end)
    ordered = Ordered(make_space({**STATED, "batch": [*range(1, 12)], "retention": [i / 10 for i in range(1, 11)]}))
    values = random.random((ordered.space.size, 2))
    fates = np.full(ordered.space.size, ADMISSIBLE, np.int8)
    search = BranchSearch(ordered, Tabled(ordered, values, fates, random, loose=0.5), 2)
    whole = search.run()
    keep = Kept(end=end)
    with pytest.raises(Interrupted):
        search.run(keep=keep)
    found = search.run(keep=Kept(keep.arrays))
    assert keep.arrays["certificate"].sum() > 0
    assert table_of(found.front) == table_of(whole.front)
    assert found.certificate.points == ordered.space.size


def test_an_interruption_when_nothing_waits_leaves_out_no_root(monkeypatch):
    monkeypatch.setattr(branch, "BOXES_PER_CALL", 1)
    monkeypatch.setattr("kvwall.sweep.dives.BOXES_PER_CALL", 1)
    hardware = sorted(path.stem for path in HARDWARE.glob("*.toml"))
    ordered = Ordered(make_space({**STATED, "hardware": hardware}))
    assert ordered.roots == len(hardware) > 2 * ((os.cpu_count() or 1) + 1)
    random = np.random.default_rng(0)
    values, fates = random.random((len(hardware), 2)), np.full(len(hardware), ADMISSIBLE, np.int8)
    search = BranchSearch(ordered, Tabled(ordered, values, fates, random, loose=0.0), 2)
    whole, keep = search.run(), Kept(end=1)
    with pytest.raises(Interrupted):
        search.run(keep=keep)
    assert len(keep.arrays["waiting.first"]) == 0
    found = search.run(keep=Kept(keep.arrays))
    assert table_of(found.front) == table_of(whole.front)
    assert found.certificate.points == ordered.space.size


def test_axes_without_effect_are_ties_not_work():
    """A price basis changes nothing where no cost is asked: its designs are counted, not compared one by one."""
    text = """
        [study]
        name = "ties"
        mode = "ceiling"
        [space]
        model = "paper/llama-3-70b"
        hardware = "h100-sxm"
        context = 8192
        batch = [1, 2]
        tensor_parallel = 4
        placement_host = 0.0
        link_overlap = {linear = [0.0, 1.0, 1000]}
        [objectives]
        maximize = ["tokens_per_second"]
    """
    found = BranchSearch.of(problem_of(Study.from_text(text))).run()
    assert found.front.multiplicity.tolist() == [1000]
    assert found.certificate.boxes < 20
    assert found.certificate.tied_points == 1000


def test_a_study_of_one_design_is_its_own_front():
    text = '[study]\nname = "one"\nmode = "ceiling"\n[space]\nmodel = "paper/llama-3-70b"\nhardware = "h100-sxm"\n'
    text += 'context = 8192\ntensor_parallel = 4\n[objectives]\nmaximize = ["tokens_per_second"]\n'
    found = BranchSearch.of(problem_of(Study.from_text(text))).run()
    assert found.front.index.tolist() == [0]


def test_a_search_without_objectives_is_refused():
    study = dataclasses.replace(study_of("dense"), objectives=())
    with pytest.raises(InputError, match="name one in"):
        BranchSearch.of(problem_of(study))


def test_certificates_add_up():
    one = Certificate(infeasible_points=3, dominated_blocks=2, boxes=5)
    one.add(Certificate(infeasible_points=4, tied_points=1, dominated_blocks=1))
    assert (one.points, one.irrelevant_blocks, one.boxes) == (8, 3, 5)
    assert not jax.config.jax_enable_x64  # searches leave the precision of the process alone
