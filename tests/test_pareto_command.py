"""`kvwall pareto` and `pareto`: the stored exact front, and other fronts among what is stored, said which."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from kvwall.objectives.register import metric_register
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.commands.pareto import _print_table
from kvwall.sweep.front import Front
from kvwall.sweep.kernel import Problem
from kvwall.sweep.objective import Constraint, Objective, signed
from kvwall.sweep.pareto import EXACT, OF_DATASET, OF_FRONT, SLICE, pareto, read_objectives, rows_of
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.store import open_front, open_results
from kvwall.sweep.stored_front import admissible
from kvwall.sweep.study import Study
from tests.finished_sweeps import NOTHING, TWO_CHIPS, swept


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(TWO_CHIPS, tmp_path_factory.mktemp("pareto") / "two-chips")


@cache
def every_design(text: str) -> dict[str, np.ndarray]:
    """Metrics and labels of a study's whole grid."""
    study = Study.from_text(text)
    return evaluate_designs(Problem(study.columns(), study.task, (), ()), np.arange(study.space.size))


def brute_force(study: Study, objectives: list[Objective], index: np.ndarray) -> dict[int, int]:
    """Of the designs given, those that no admissible one dominates: first of each tie -> how many tie."""
    found = {name: column[index] for name, column in every_design(study.text).items()}
    kept = found["status"] == 1
    for one in study.constraints:
        kept &= found[one.metric] >= (-np.inf if one.low is None else one.low)
        kept &= found[one.metric] <= (np.inf if one.high is None else one.high)
    kept &= ~np.any([np.isnan(found[one.metric]) for one in objectives], axis=0)
    values = np.stack([one.sign * found[one.metric][kept] for one in objectives], axis=1)
    values = np.vectorize(lambda value: float(f"{value:.10e}"))(values)  # equal but for the last bits is equal
    at_most = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    below = (values[:, None, :] < values[None, :, :]).any(axis=2)
    best = ~(at_most & below).any(axis=0)
    ties: dict[tuple[float, ...], list[int]] = {}
    for vector, design in zip(values[best].tolist(), index[kept][best].tolist(), strict=True):
        ties.setdefault(tuple(vector), []).append(design)
    return {min(designs): len(designs) for designs in ties.values()}


def rows(front: xr.Dataset) -> dict[int, int]:
    """Grid index -> multiplicity."""
    return dict(zip(front["grid_index"].values.tolist(), front["multiplicity"].values.tolist(), strict=True))


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
    assert rows(front) == brute_force(study, objectives, np.arange(study.space.size))
    assert front.sizes["point"] >= 3


FINE = """
[study]
name = "fine"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-8B"
hardware = "h100-sxm"
batch = 8
context = { linear = [1000, 2999, 2000] }
[objectives]
minimize = ["time_per_output_token"]
[constraints]
time_per_output_token = { max = "4.9085 ms" }
[sweep]
keep = ["time_per_output_token", "kv_bytes_read", "quality_loss"]
"""
"""Neighbours differ by less than what is stored of them."""


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(FINE, tmp_path_factory.mktemp("pareto") / "fine")


def test_bounds_and_values_are_compared_unrounded(fine: Path) -> None:
    study = Study.from_text(FINE)
    objectives = [Objective("kv_bytes_read", "maximize")]
    exact = brute_force(study, objectives, np.arange(study.space.size))
    assert 100 < min(exact) < 1900, "the bound must cut the axis"
    assert rows(pareto(fine, objectives)) == exact
    with open_results(fine) as stored:
        assert rows(pareto(stored, objectives)) == exact
        values = stored["kv_bytes_read"].values[stored["time_per_output_token"].values <= 0.0049085]
        assert values.max() != pareto(fine, objectives)["kv_bytes_read"].item(), "rounding must matter here"


def test_all_designs_of_a_tie_are_counted(fine: Path) -> None:
    study = Study.from_text(FINE)
    objectives = [Objective("quality_loss", "minimize")]
    found = rows(pareto(fine, objectives))
    assert found == brute_force(study, objectives, np.arange(study.space.size))
    assert next(iter(found.values())) > 100


def test_a_front_that_compares_rounded_values_is_another_one(fine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objectives = [Objective("kv_bytes_read", "maximize")]
    exact = rows(pareto(fine, objectives))
    monkeypatch.setattr("kvwall.sweep.stored_front.SLACK", 0.0)
    assert rows(pareto(fine, objectives)) != exact


def test_rows_of_a_slice_front_hold_every_metric_unrounded(folder: Path) -> None:
    front = pareto(folder, "maximize:memory_margin,tokens_per_second_per_device")
    study = Study.from_text(TWO_CHIPS)
    index = front["grid_index"].values
    found = evaluate_designs(Problem(study.columns(), study.task, (), ()), index)
    assert set(metric_register(study.task, "ceiling")) <= set(front.data_vars)
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
    assert rows(front) == brute_force(study, objectives, stored)


def test_rows_that_tie_by_other_objectives_are_counted(folder: Path) -> None:
    front = open_front(folder)
    found = pareto(front, "minimize:weight_bytes_read")
    least = front["weight_bytes_read"].values.min()
    ties = np.flatnonzero(front["weight_bytes_read"].values == least)
    assert len(ties) > 1
    assert rows(found) == {int(front["grid_index"][ties[0]]): len(ties)}


def test_infinities_are_compared_like_numbers_and_unknown_values_are_out() -> None:
    found = {"status": np.ones(4, np.int8), "max_context": np.array([np.inf, 5.0, np.nan, -np.inf])}
    longest, at_least = [Objective("max_context", "maximize")], [Constraint("max_context", low=5.0)]
    assert admissible((), longest, found).tolist() == [True, True, False, True]
    assert admissible(at_least, (), found).tolist() == [True, True, False, False]
    front = Front(1, np.float64)
    front.add(signed(longest, found)[[0, 1, 3]], np.arange(3))
    assert front.index.tolist() == [0]


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
    assert rows(front) == brute_force(study, list(study.objectives), np.array(own))


def test_a_whole_dataset_gives_the_front_that_unrounded_values_give(folder: Path) -> None:
    study = Study.from_text(TWO_CHIPS)
    with open_results(folder) as stored:
        found = pareto(stored)
    assert rows(found) == brute_force(study, list(study.objectives), np.arange(study.space.size))
    for name in ("tokens_per_second_per_device", "time_per_output_token"):
        for end in (np.min, np.max):
            assert end(found[name]) == pytest.approx(float(end(pareto(folder)[name])), rel=1e-6)


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
    assert set(AXES) | set(metric_register("aggregate", "ceiling")) <= set(first)
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


SLICED = (
    TWO_CHIPS
    + """
[sweep.slice]
batch = [1, 64]
"""
)


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(SLICED, tmp_path_factory.mktemp("pareto") / "sliced")


def test_holding_axes_gives_the_exact_front_of_the_stored_points_that_have_these_values(sliced: Path) -> None:
    study = Study.from_text(SLICED)
    where = {"hardware": "h100-sxm", "value_bits": 4, "placement_host": 0}
    points = [study.space.point(index) for index in range(study.space.size)]
    own = [i for i, p in enumerate(points) if p["batch"] != 8 and all(p[name] == where[name] for name in where)]
    found = pareto(sliced, where=where)
    assert rows(found) == brute_force(study, list(study.objectives), np.array(own))
    assert found.sizes["point"] >= 3
    assert (
        "of the stored slice with hardware = h100-sxm and value_bits = 4 and placement_host = 0;"
        in found.attrs["basis"]
    )
    with open_results(sliced) as stored:
        assert rows(pareto(stored, where=where)) == rows(found)


def test_an_axis_that_the_study_holds_fixed_may_be_named(sliced: Path) -> None:
    where = {"model": "meta-llama/Meta-Llama-3-70B", "hardware": "b200-sxm"}
    assert rows(pareto(sliced, where=where)) == rows(pareto(sliced, where={"hardware": "b200-sxm"}))


def test_a_value_that_is_not_stored_is_refused_with_the_nearest_that_are(sliced: Path) -> None:
    with pytest.raises(InputError) as caught:
        pareto(sliced, where={"batch": 8, "context": 131_071, "contxt": 1, "retention": 2, "model": "other"})
    told = dict(zip(("batch", "context", "contxt", "retention", "model"), caught.value.faults, strict=True))
    assert "batch = 8 is not stored: choose 1 or 64; it is on the study's grid" in told["batch"]
    assert "choose 131,072 or " in told["context"]
    assert "did you mean context" in told["contxt"]
    assert "out of range" in told["retention"]
    assert "choose meta-llama/Meta-Llama-3-70B" in told["model"]


def test_values_that_exclude_each_other_are_refused(sliced: Path) -> None:
    with pytest.raises(InputError, match="no stored point has key_bits = 8 and value_bits = 4"):
        pareto(sliced, where={"key_bits": 8, "value_bits": 4})


def test_holding_an_axis_needs_the_metrics_stored(sliced: Path) -> None:
    with pytest.raises(InputError, match="does not hold energy_per_token"):
        pareto(sliced, "energy_per_token", where={"batch": 1})


def test_where_is_typed_axis_by_axis(sliced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pareto", str(sliced), "--where", "tensor-parallel=8", "--where", "batch=64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {(row["tensor_parallel"], row["batch"]) for row in told["front"]} == {(8, 64)}
    wrong = ["--where", "batch", "--where", "context=4096", "--where", "context=8192", "--where", "contxt=1"]
    assert run(["pareto", str(sliced), *wrong]) == 2
    faults = capsys.readouterr().err.splitlines()
    assert len(faults) == 3
    assert "write AXIS=VALUE" in faults[0]
    assert "context is given twice" in faults[1]
    assert "did you mean context" in faults[2]


def test_an_axis_among_the_objectives_is_sent_to_where(sliced: Path) -> None:
    with pytest.raises(InputError, match="is an axis, not a metric: hold it at a value with --where context=VALUE"):
        pareto(sliced, "tokens_per_second_per_device,context")


def test_a_row_of_the_table_is_one_line_with_its_units_in_the_header(
    sliced: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pareto", str(sliced), "--where", "batch=64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rule = next(place for place, line in enumerate(lines) if set(line) == {"-", "+"})
    header = [cell.strip() for cell in lines[rule - 1].split("|")]
    assert {"(tok/s)", "(%)", "(ms)"} <= set(header)
    body = [line for line in lines[rule + 1 :] if "|" in line]
    assert len(body) == min(30, pareto(sliced, where={"batch": 64}).sizes["point"])
    for line in body:
        cells = [cell.strip() for cell in line.split("|")]
        assert len(cells) == len(header)
        assert all(cells), line
        assert not re.search("tok|%|ms", line)


def test_a_constrained_metric_has_a_column(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    bounded = {constraint.metric for constraint in Study.load(folder / "study.toml").constraints}
    assert bounded == {"quality_loss_upper"}
    assert run(["pareto", str(folder), "--objectives", "tokens_per_second_per_device"]) == 0
    header = [line.split("|")[-1].strip() for line in capsys.readouterr().out.partition("-+-")[0].splitlines()]
    assert " ".join(header).strip().startswith("quality loss upper (%)")


def test_axes_that_a_narrow_terminal_has_no_room_for_are_named(sliced: Path) -> None:
    console = Console(width=50, file=io.StringIO())
    shown = rows_of(pareto(sliced))
    axes = ["hardware", "batch", "key_bits", "value_bits", "retention", "tensor_parallel"]
    metrics = ["tokens_per_second_per_device", "quality_loss_upper"]
    left_out = _print_table(console, axes, metrics, ["memory_margin"], shown, "aggregate")
    assert 1 < len(left_out) < len(axes)
    assert [*axes, "memory_margin"][-len(left_out) :] == left_out
    assert all(len(line) <= 50 for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]
