"""`kvwall pareto` and `pareto`: the stored exact front, and other fronts among what is stored, said which."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from kvwall.objectives.register import metric_register
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.kernel import Problem
from kvwall.sweep.objective import Objective
from kvwall.sweep.pareto import EXACT, OF_DATASET, OF_FRONT, SLICE, pareto, read_objectives
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.store import open_front, open_results
from kvwall.sweep.study import Study
from tests.finished_sweeps import NOTHING, TWO_CHIPS, swept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(TWO_CHIPS, tmp_path_factory.mktemp("pareto") / "two-chips")


def brute_force(study: Study, objectives: list[Objective], index: np.ndarray) -> set[int]:
    """Grid indices, of those given, that no admissible one dominates; one of each tie."""
    found = evaluate_designs(Problem(study.columns(), study.task, (), ()), index)
    kept = (found["status"] == 1) & (found["quality_loss_upper"] <= 0.1)
    values = np.stack([one.sign * found[one.metric][kept] for one in objectives], axis=1)
    at_most = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    below = (values[:, None, :] < values[None, :, :]).any(axis=2)
    return set(index[kept][~(at_most & below).any(axis=0)].tolist())


def test_the_study_s_own_front_is_the_stored_one(folder: Path) -> None:
    front = pareto(folder)
    assert front.attrs["basis"] == EXACT
    np.testing.assert_array_equal(front["grid_index"], open_front(folder)["grid_index"])


def test_naming_the_study_s_objectives_changes_nothing(folder: Path) -> None:
    names = "maximize:tokens_per_second_per_device, quality_loss_upper, minimize:time_per_output_token"
    assert pareto(folder, names).attrs["basis"] == EXACT


def test_stored_metrics_give_a_front_of_the_stored_slice(folder: Path) -> None:
    objectives = [Objective("memory_margin", "maximize"), Objective("tokens_per_second_per_device", "maximize")]
    front = pareto(folder, objectives)
    assert front.attrs["basis"] == SLICE
    study = Study.from_text(TWO_CHIPS)
    exact = brute_force(study, objectives, np.arange(study.space.size))
    # stored values are rounded to 12 bits: compare by value, not by which of two near-equal designs is named
    found = evaluate_designs(Problem(study.columns(), study.task, (), ()), np.array(sorted(exact)))
    for one in objectives:
        best = (one.sign * found[one.metric]).min()
        assert (one.sign * front[one.metric].values).min() == pytest.approx(best, rel=5e-4)
    assert len(front["point"]) >= 3
    values = np.stack([one.sign * front[one.metric].values for one in objectives], axis=1)
    for design in np.stack([one.sign * found[one.metric] for one in objectives], axis=1):
        assert (values <= design + 5e-4 * np.abs(design)).all(axis=1).any()


def test_rows_of_a_slice_front_hold_every_metric_unrounded(folder: Path) -> None:
    front = pareto(folder, "maximize:memory_margin,tokens_per_second_per_device")
    study = Study.from_text(TWO_CHIPS)
    index = front["grid_index"].values
    found = evaluate_designs(Problem(study.columns(), study.task, (), ()), index)
    assert set(metric_register(study.task)) <= set(front.data_vars)
    np.testing.assert_array_equal(front["time_per_output_token"], found["time_per_output_token"])
    for row in range(len(index)):
        point = study.space.point(int(index[row]))
        assert {name: front[name].values[row] for name in study.space.dims} == {n: point[n] for n in study.space.dims}


def test_other_metrics_give_a_front_among_the_front_s_designs(folder: Path) -> None:
    objectives = [Objective("energy_per_token", "minimize"), Objective("max_batch", "maximize")]
    front = pareto(folder, objectives)
    assert front.attrs["basis"] == OF_FRONT
    study = Study.from_text(TWO_CHIPS)
    stored = open_front(folder)["grid_index"].values
    exact = brute_force(study, objectives, stored)
    assert set(front["grid_index"].values.tolist()) <= exact
    assert 0 < front.sizes["point"] <= len(exact)


def test_a_selection_gives_the_front_of_its_points(folder: Path) -> None:
    with open_results(folder) as stored:
        selected = stored.sel(hardware="h100-sxm").isel(context=[0, 2])
        front = pareto(selected)
    assert front.attrs["basis"] == OF_DATASET
    assert set(front["hardware"].values.tolist()) == {"h100-sxm"}
    study = Study.from_text(TWO_CHIPS)
    points = [study.space.point(index) for index in range(study.space.size)]
    contexts = [study.space.values("context")[place] for place in (0, 2)]
    own = [i for i, p in enumerate(points) if p["hardware"] == "h100-sxm" and p["context"] in contexts]
    exact = brute_force(study, list(study.objectives), np.array(own))
    speeds = evaluate_designs(Problem(study.columns(), study.task, (), ()), np.array(sorted(exact)))
    best = speeds["tokens_per_second_per_device"].max()
    assert float(front["tokens_per_second_per_device"].max()) == pytest.approx(best, rel=5e-4)


def test_a_whole_dataset_agrees_with_the_exact_front_to_the_rounding(folder: Path) -> None:
    with open_results(folder) as stored:
        of_stored = pareto(stored)
    exact = pareto(folder)
    for name in ("tokens_per_second_per_device", "time_per_output_token"):
        for end in (np.min, np.max):
            assert end(of_stored[name]) == pytest.approx(float(end(exact[name])), rel=5e-4)


def test_a_dataset_without_what_is_needed_is_refused(folder: Path) -> None:
    with open_results(folder) as stored, pytest.raises(InputError, match="does not hold quality_loss_upper"):
        pareto(stored.drop_vars("quality_loss_upper"))
    with pytest.raises(InputError, match="carries no study"):
        pareto(xr.Dataset())


def test_all_faults_of_the_objectives_are_told() -> None:
    study = Study.from_text(TWO_CHIPS)
    with pytest.raises(InputError) as caught:
        read_objectives("tokens_per_secnd,phase,up:quality_loss,arithmetic_intensity,max_batch,max_batch", study)
    told = "\n".join(caught.value.faults)
    assert len(caught.value.faults) == 5
    assert "did you mean tokens_per_second" in told
    assert "is a label" in told
    assert "write maximize:quality_loss or minimize:quality_loss" in told
    assert "could be wanted large or small" in told
    assert "named twice" in told
    with pytest.raises(InputError, match="no objective"):
        read_objectives("", study)


def test_json_is_one_strict_object_of_axes_and_metrics(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told["objectives"] == {
        "tokens_per_second_per_device": "maximize", "quality_loss_upper": "minimize",
        "time_per_output_token": "minimize",
    }  # fmt: skip
    assert told["basis"] == EXACT
    front = open_front(folder)
    assert len(told["front"]) == front.sizes["point"]
    first = told["front"][0]
    assert set(AXES) | set(metric_register("aggregate")) <= set(first)
    assert first["status"] == "ok"
    assert first["tokens_per_second_per_device"] == float(front["tokens_per_second_per_device"][0])
    assert first["context"] == int(front["context"][0])


def test_the_table_says_among_which_points(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", str(folder)]) == 0
    assert "exact front of the whole grid" in " ".join(capsys.readouterr().out.split())
    assert run(["pareto", str(folder), "--objectives", "energy_per_token"]) == 0
    assert "front among the designs of the study's own front" in " ".join(capsys.readouterr().out.split())


def test_nothing_admissible_leaves_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nothing = swept(NOTHING, tmp_path / "nothing")
    assert run(["pareto", str(nothing), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["front"] == []
    assert "no design is admissible" in captured.err


def test_a_missing_folder_is_wrong_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err
