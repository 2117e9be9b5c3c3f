"""A user's own points: what they make of a curve, which are refused, and `kvwall calibrate --quality`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvwall as kv
from kvwall.objectives.register import evaluate
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import RECORD, Narrowed, QualityCurves, load_quality_curves
from kvwall.spaces.quality_record_columns import quality_parameters
from kvwall.sweep.calibrate_quality import calibrate_quality, check_out, write_curves
from kvwall.sweep.cli import run
from kvwall.sweep.quality import probe_check
from kvwall.sweep.quality.factors import GRID, blurred, losses_at_factors, scatter_of
from kvwall.sweep.quality.own_points import curve_of_row, log_spread_of, narrow, refusals
from kvwall.sweep.quality.prediction import Prediction, predict
from kvwall.sweep.quality.rows import Named, Part, Row, read_rows
from kvwall.sweep.study import Study
from tests.evaluated import RULER, kvpress

CURVES = load_quality_curves()
SNAPKV = Named("query_agnostic", "snapkv")
"""Of a question that is hidden."""
KEY = "evictor snapkv hidden retrieval_easy"
POINT = "evictor=snapkv,retention=0.5,task=retrieval_easy,baseline=96,score=48,question_visible=false"
DESIGN: Mapping[str, Any] = {
    "model": "Qwen/Qwen3-8B", "hardware": "h100-sxm", "context": 8192, "mode": "ceiling", "evictor": "snapkv",
    "retention": 0.5, "question_visible": False,
}  # fmt: skip


def evicted(loss: float, kept: float = 0.5, subtask: str = "mine", name: str = "", **more: Any) -> Row:
    parts = (Part(1.0, "retrieval_easy", subtask),)
    own = f"{subtask} {kept} {loss} {name}"
    return Row(own, "me", "M", "retrieval_easy", parts, loss, kept=kept, evictor=SNAPKV, visible=False, **more)


def quantized(loss: float, bits: float = 2.0, task: str = "aggregate", name: str = "kivi") -> Row:
    parts = (Part(1.0, task, "mine"),)
    named = Named("structure_aware", name)
    return Row(f"{bits} {loss}", "me", "M", task, parts, loss, key_bits=bits, value_bits=bits, quantizer=named)


def at(row: Row, curves: QualityCurves = CURVES) -> Prediction:
    return predict([row], curves)[0]


def change(*rows: Row, curves: QualityCurves = CURVES) -> Narrowed:
    (found,) = narrow(rows, curves).narrowed
    return found.change


# What points make of a curve


@pytest.mark.parametrize("row", [evicted(0.6), evicted(0.4, 0.2), quantized(0.3), quantized(0.1, 3)])
def test_one_point_moves_its_curve_to_it_and_brings_the_upper_one_closer(row: Row) -> None:
    found = narrow([row], CURVES)
    before, after = at(row), at(row, found.curves)
    assert abs(after.central - row.loss) < 0.35 * abs(before.central - row.loss)
    assert 0 < found.narrowed[0].change.remaining < 1
    assert found.used == (row,)
    assert not found.refused


def test_the_upper_curve_comes_closer_where_the_central_one_stays() -> None:
    row = evicted(at(evicted(0.0)).central)
    before, after = at(row), at(row, narrow([row], CURVES).curves)
    assert after.central == pytest.approx(before.central, abs=0.01)
    assert after.upper < before.upper


def test_more_points_narrow_more_and_those_of_other_subtasks_more_than_those_of_the_same() -> None:
    loss = at(evicted(0.0)).central
    one = change(evicted(loss))
    same = change(*(evicted(loss, 0.5, "mine", str(place), context=1000.0 + place) for place in range(4)))
    several = change(*(evicted(loss, 0.5, f"task {place}") for place in range(4)))
    assert several.remaining < same.remaining < one.remaining
    assert several.points == 4


def test_points_of_several_subtasks_move_the_curve_to_their_middle() -> None:
    rows = [evicted(loss, 0.5, str(loss)) for loss in (0.0, 0.3, 0.9)]
    assert 0.1 < at(evicted(0.0), narrow(rows, CURVES).curves).central < 0.7


def test_however_many_points_the_scatter_within_a_method_remains() -> None:
    rows = [evicted(at(evicted(0.0)).central, 0.5, f"task {place}") for place in range(60)]
    curve = curve_of_row(rows[0])
    floor = 1.2816 * scatter_of("evictor", "query_agnostic").within / log_spread_of(curve, CURVES)
    assert floor <= change(*rows).remaining <= 1.1 * floor


def test_points_that_contradict_each_other_do_not_narrow_below_it_either() -> None:
    apart = change(*(evicted(loss, 0.5, f"{place}") for place, loss in enumerate((0.0, 0.9, 0.02, 0.95))))
    agreeing = change(*(evicted(0.4, 0.5, f"{place}") for place in range(4)))
    curve = curve_of_row(evicted(0.0))
    assert apart.remaining >= 1.28 * scatter_of("evictor", "query_agnostic").within / log_spread_of(curve, CURVES)
    assert apart.remaining > 0.95 * agreeing.remaining
    middle = at(evicted(0.0), narrow([evicted(0.0, 0.5, "a"), evicted(0.9, 0.5, "b")], CURVES).curves).central
    assert 0.05 < middle < 0.85


@pytest.mark.parametrize("loss", [0.0, -0.05, 1.0])
def test_losses_at_the_ends_move_the_curve_as_far_as_their_noise_says(loss: float) -> None:
    row = evicted(loss)
    own = narrow([row], CURVES)
    assert math.isfinite(own.narrowed[0].change.log_factor)
    assert abs(at(row, own.curves).central - min(max(loss, 0.0), 1.0)) < 0.12


def test_a_point_that_says_nothing_moves_nothing() -> None:
    row = evicted(0.0, 0.99)
    assert abs(change(row).log_factor) < 0.3


def test_a_small_standard_error_counts_for_more() -> None:
    row = quantized(0.02, 4)
    sharp, blunt = (narrow([row], CURVES, {row.id: error}).narrowed[0].change.log_factor for error in (0.002, 0.3))
    before = at(row).central
    assert abs(blunt) < abs(sharp)
    assert np.sign(sharp) == np.sign(row.loss - before)


def test_perplexity_has_noise_in_its_own_unit() -> None:
    row = quantized(0.5, 2, "perplexity")
    assert at(row, narrow([row], CURVES).curves).central == pytest.approx(0.5, rel=0.5)
    assert abs(at(row).central - 0.5) > abs(at(row, narrow([row], CURVES).curves).central - 0.5)


def test_the_factor_is_of_the_class_where_the_point_is_of_a_harder_subtask() -> None:
    name = min(CURVES.subtasks, key=lambda each: CURVES.subtasks[each] if each.startswith("RULER/niah") else 0.0)
    assert CURVES.subtasks[name] < -0.05
    assert change(evicted(0.5, subtask=name)).log_factor < change(evicted(0.5)).log_factor


def test_a_factor_of_weights_and_one_of_activations() -> None:
    weights = Row("w", "me", "M", "code", (Part(1.0, "code", "x"),), 0.3, weight_bits=3.0,
                  weight_quantizer=Named("structure_aware", "structure_aware"))  # fmt: skip
    activations = replace(weights, id="a", weight_bits=16.0, activation_bits=4.0, weight_quantizer=None)
    for row in (weights, activations):
        own = narrow([row], CURVES)
        assert len(own.curves.narrowed) == 1
        assert abs(at(row, own.curves).central - 0.3) < 0.5 * abs(at(row).central - 0.3)


# What stays as it is


def test_other_curves_stay_to_the_bit() -> None:
    own = narrow([evicted(0.6), quantized(0.3)], CURVES).curves
    assert set(own.narrowed) == {KEY, "quantizer kivi aggregate"}
    assert replace(own, narrowed={}) == CURVES
    before, after = quality_parameters(CURVES), quality_parameters(own)
    changed: dict[str, int] = {}
    for part in ("evictor", "reader", "weight", "activation"):
        for leaf, value in vars(getattr(before, part)).items():
            there = np.flatnonzero(np.asarray(value) != np.asarray(getattr(getattr(after, part), leaf)))
            changed |= {f"{part} {leaf}": len(there)} if len(there) else {}
    assert changed == {"evictor log_half": 1, "evictor spread": 1, "evictor noise": 1}


def test_neutral_settings_lose_exactly_nothing() -> None:
    own = narrow([evicted(1.0), quantized(0.9)], CURVES).curves
    for row in (evicted(0.0, 1.0), replace(quantized(0.0), key_bits=16.0, value_bits=16.0)):
        found = at(row, own)
        assert (found.central, found.upper) == (0.0, 0.0)


@settings(max_examples=20, deadline=None)
@given(
    st.floats(-20, 20),
    st.floats(0.01, 1.0),
    st.lists(st.floats(0.02, 1.0), min_size=2, max_size=6),
    st.lists(st.floats(2.0, 16.0), min_size=2, max_size=6),
)
def test_losses_never_fall_with_fewer_bits_or_tokens(
    log_factor: float, remaining: float, kept: list[float], bits: list[float]
) -> None:
    narrowed = {key: Narrowed(log_factor, remaining, 1) for key in (KEY, "quantizer kivi aggregate")}
    curves = replace(CURVES, narrowed=narrowed)
    for rows in ([evicted(0, each) for each in sorted(kept)], [quantized(0, each) for each in sorted(bits)]):
        found = predict(rows, curves)
        assert all(each.upper >= each.central - 1e-12 for each in found)
        for name in ("central", "upper"):
            assert np.all(np.diff([getattr(each, name) for each in found]) <= 1e-9)


def test_losses_at_factors_are_those_of_a_record_with_the_factor() -> None:
    rows = [evicted(0.3), quantized(0.3)]
    place = int(np.searchsorted(GRID, 1.5))
    record = {KEY: float(GRID[place]), "quantizer kivi aggregate": float(GRID[place])}
    own = replace(CURVES, narrowed={key: Narrowed(value, 1.0, 1) for key, value in record.items()})
    found = losses_at_factors(rows, ["evictor", "quantizer"], CURVES)[:, place]
    np.testing.assert_allclose(found, [each.central for each in predict(rows, own)], rtol=1e-5)


def test_blurring_keeps_a_constant_and_widens_a_peak() -> None:
    peak = (np.abs(GRID) < 0.03)[None].astype(float)
    wide = blurred(peak, 2.0)[0]
    np.testing.assert_allclose(blurred(np.ones_like(peak), 2.0), 1.0)
    assert np.sqrt((wide * GRID**2).sum() / wide.sum()) == pytest.approx(2.0, rel=1e-3)


def test_a_method_that_ignores_the_question_has_one_curve_under_both_names() -> None:
    row = replace(evicted(0.5), evictor=Named("query_agnostic", "knorm"), visible=True)
    own = narrow([row], CURVES).curves.narrowed
    assert set(own) == {"evictor knorm retrieval_easy", "evictor knorm hidden retrieval_easy"}
    assert len(set(own.values())) == 1


def test_a_curve_narrowed_again_starts_anew_so_that_no_point_counts_twice() -> None:
    first = narrow([evicted(0.6)], CURVES).curves
    again = narrow([evicted(0.6)], first)
    assert again.curves == first
    assert again.narrowed[0].replaced == 1
    other = narrow([quantized(0.3)], first)
    assert other.curves.narrowed[KEY] == first.narrowed[KEY]
    assert other.narrowed[0].replaced == 0


# What is refused


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (replace(evicted(0.0, 1.0), evictor=None), "nothing is compressed"),
        (replace(evicted(0.2), key_bits=4.0, value_bits=4.0), "eviction and KV bits at once"),
        (replace(evicted(0.2), parts=(Part(0.5, "aggregate", "a"), Part(0.5, "code", "b"))), "give its subtasks"),
        (evicted(math.nan), "not a finite number"),
        (evicted(-0.5), "swapped"),
    ],
)
def test_what_says_nothing_of_one_curve_is_refused_with_the_reason(row: Row, told: str) -> None:
    (reason,) = refusals(row)
    assert told in reason
    found = narrow([row, evicted(0.5)], CURVES)
    assert list(found.refused) == [row.id]
    assert len(found.used) == 1


def test_the_same_point_under_another_id_is_refused() -> None:
    found = narrow([evicted(0.5), replace(evicted(0.5), id="again", source="other")], CURVES)
    assert len(found.used) == 1
    assert "is the same point" in found.refused["again"][0]


def test_published_rows_that_are_averages_or_combinations_are_refused() -> None:
    rows, _ = read_rows()
    averages = [row for row in rows if len(row.parts) > 1]
    assert averages
    assert all(refusals(row) for row in averages)
    gains = [row.loss for row in rows if not row.log_ratio]
    assert not any("swapped" in reason for row in rows for reason in refusals(row)), min(gains)


# What a point is worth


@pytest.mark.slow
def test_one_point_halves_the_error_of_query_agnostic_retrieval_on_models_left_out() -> None:
    """One compiled fit for each of four models, none of whose rows the curves have seen."""
    found = probe_check.by_model(probe_check.probed())
    same, others = found["all"]["same_subtask"], found["all"]["other_subtasks"]
    assert same["n"] > 150
    assert same["mae_after"] < 0.5 * same["mae_before"]
    assert same["coverage_after"] > 0.9
    assert same["upper_after"] < 0.8 * same["upper_before"]
    assert others["mae_after"] < 0.7 * others["mae_before"]
    assert others["coverage_after"] > 0.85
    assert len(found) == 5
    for model in found:
        each = found[model]["same_subtask"]
        assert each["mae_after"] < 0.5 * each["mae_before"], model


def test_the_scatter_is_that_of_rows_made_with_it() -> None:
    """Rows of a known scatter have their likelihood's top near it, and a wrong one is less likely."""
    generator = np.random.default_rng(3)
    true = (1.5, 0.8, 0.3)
    groups, rows = [], []
    for _ in range(40):
        own = generator.normal(0, true[0])
        group = {}
        for subtask in range(4):
            shared = own + generator.normal(0, true[1])
            group[str(subtask)] = list(range(len(rows), len(rows) + 3))
            rows += [shared + generator.normal(0, true[2]) for _ in range(3)]
        groups.append(group)
    likelihoods = np.exp(-0.5 * ((GRID - np.array(rows)[:, None]) / 0.1) ** 2) + 1e-6
    found = probe_check.likeliest(groups, likelihoods)
    assert (found.between, found.subtask, found.setting) == pytest.approx(true, rel=0.3)


# The command


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "mine.json"
    write_curves(calibrate_quality([], [POINT], {}).record, path)
    return path


def table(path: Path, *rows: Mapping[str, object]) -> Path:
    base = {"id": "", "method": "SnapKV", "model": "M", "benchmark": "RULER", "subtask": "niah_single_2",
            "retention_ratio": 0.5, "baseline": 96, "score": 48, "question_visible": "no", "notes": ""}  # fmt: skip
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(base))
        writer.writeheader()
        writer.writerows(base | {"id": f"row {place}"} | row for place, row in enumerate(rows))
    return path


def test_a_record_is_read_again_as_it_was_written(record: Path) -> None:
    found = load_quality_curves(record)
    assert replace(found, narrowed={}, version=CURVES.version) == CURVES
    assert found.version == f"{CURVES.version} + 1 point of the command line"
    own = change(evicted(0.5, subtask="own/retrieval_easy"))
    assert found.narrowed[KEY].log_factor == pytest.approx(own.log_factor, rel=1e-3)
    assert found.narrowed[KEY].remaining == pytest.approx(own.remaining, rel=1e-3)
    assert found.narrowed[KEY].points == 1


@pytest.mark.parametrize(
    ("key", "own"),
    [
        (KEY, Narrowed(0.1, 1.5, 1)),
        (KEY, Narrowed(0.1, 0.0, 1)),
        (KEY, Narrowed(math.nan, 0.5, 1)),
        (KEY, Narrowed(0.1, 0.5, 0)),
        ("evictor snapvk retrieval_easy", Narrowed(0.1, 0.5, 1)),
    ],
)
def test_a_record_whose_own_evidence_cannot_be_is_refused(tmp_path: Path, key: str, own: Narrowed) -> None:
    write_curves(replace(CURVES, narrowed={key: own}), tmp_path / "bad.json")
    with pytest.raises(InputError, match="narrowed"):
        load_quality_curves(tmp_path / "bad.json")


def test_json_of_files_and_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(tmp_path / "rows.csv", {}, {"score": 40, "retention_ratio": 0.4}, {"retention_ratio": 1})
    out = tmp_path / "mine.json"
    assert run(["calibrate", str(rows), "--quality", "--point", POINT, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"out", "version", "used", "before", "after", "refused", "curves", "notices"}
    assert (found["out"], found["used"]) == (str(out), 3)
    assert found["version"] == "2 + 3 points of rows.csv and the command line"
    assert found["after"]["mae"] < 0.5 * found["before"]["mae"]
    assert found["before"]["perplexity"]["n"] == 0
    (refused,) = found["refused"]
    assert "nothing is compressed" in refused["reason"]
    (curve,) = found["curves"]
    assert (curve["name"], curve["task"], curve["question_visible"]) == ("snapkv", "retrieval_easy", False)
    assert curve["remaining"] < 1
    assert math.log(curve["factor"]) == pytest.approx(load_quality_curves(out).narrowed[KEY].log_factor, rel=1e-3)
    assert {each["id"] for each in curve["at"]} == {"row 0", "row 1", "point 1"}
    assert all(each["upper_after"] >= each["after"] for each in curve["at"])
    assert load_quality_curves(out).narrowed[KEY].points == 3


def test_the_table_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    assert run(["calibrate", "--quality", "--point", POINT, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    for words in ("evictor snapkv, question hidden, task retrieval_easy", "50 % kept", "[quality] curves",
                  "validate ROWS --quality", "--quality-curves", "not in it"):  # fmt: skip
        assert words in told


def test_points_of_an_unknown_method_go_to_the_family_or_to_the_name_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = table(tmp_path / "rows.csv", {"method": "OurEvictor"})
    out = tmp_path / "mine.json"
    assert run(["calibrate", str(rows), "--quality", "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["curves"][0]["name"] == "query_agnostic"
    assert any("OurEvictor, no known name; name another curve with --evictor" in each for each in found["notices"])
    assert run(["calibrate", str(rows), "--quality", "--out", str(out), "--json", "--evictor", "snapkv"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["curves"][0]["name"], found["curves"][0]["question_visible"]) == ("snapkv", False)


def test_results_of_evaluation_programs_are_read_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    kvpress(folder, RULER)
    kvpress(folder, RULER | {"niah_single_1": {"string_match": 60.0}}, press="knorm", ratio=0.5)
    found = calibrate_quality([folder], [], {})
    assert {curve.found.curve.name for curve in found.curves} == {"knorm"}
    (easy,) = [curve for curve in found.curves if curve.curve.task == "retrieval_easy"]
    assert max(point.after.row.loss for point in easy.points) == pytest.approx(0.4)
    assert found.record.version.endswith("of results")


def test_a_point_that_says_next_to_nothing_is_told() -> None:
    found = calibrate_quality([], ["evictor=quest,read_fraction=0.9,task=code,baseline=50,score=50"], {})
    assert any("say next to nothing" in each for each in found.notices)
    assert not any("next to nothing" in each for each in calibrate_quality([], [POINT], {}).notices)


def test_notices_of_models_and_of_a_question_that_is_not_stated(tmp_path: Path) -> None:
    rows = table(tmp_path / "rows.csv", {"question_visible": ""}, {"question_visible": "", "model": "N"})
    found = calibrate_quality([rows], [], {})
    assert any("2 points without a word on the question" in each for each in found.notices)
    assert any("several models" in each for each in found.notices)
    assert found.curves[0].found.curve.visible


def test_a_second_call_starts_from_the_first_and_tells_what_it_replaces(record: Path) -> None:
    kivi = "quantizer=kivi,key_bits=2,value_bits=2,task=code,baseline=50,score=45"
    added = calibrate_quality([], [kivi], {}, record)
    assert set(added.record.narrowed) == {KEY, "quantizer kivi code"}
    assert added.record.version == "2 + 1 point of the command line + 1 point of the command line"
    assert not any("counts no longer" in each for each in added.notices)
    again = calibrate_quality([], [POINT], {}, record)
    assert any("1 point, counts no longer" in each for each in again.notices)
    assert again.record.narrowed[KEY].points == 1


def test_a_standard_error_in_the_notes_or_in_the_point_is_used(tmp_path: Path) -> None:
    def factor(error: str) -> float:
        stated = calibrate_quality([], [f"{POINT}{error}"], {}).record.narrowed[KEY].log_factor
        noted = error.removeprefix(",")
        rows = table(tmp_path / "rows.csv", {"benchmark": "x", "subtask": "x", "notes": f"a; {noted}"})
        of_file = calibrate_quality([rows], [], {"task_class": "retrieval_easy"}).record.narrowed[KEY].log_factor
        assert of_file == pytest.approx(stated, rel=1e-6)
        return stated

    assert abs(factor(",standard_error=90")) < 0.8 * abs(factor(",standard_error=0.5"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evictor": "snapvk"}, "did you mean snapkv"),
        ({"evictor": None}, "retention is stated without evictor"),
        ({"retention": None}, "retention or read_fraction is missing"),
        ({"retention": "1.5"}, "must be a number from"),
        ({"retention": "1"}, "nothing is compressed"),
        ({"retention": None, "read_fraction": "0.5"}, "drops tokens: state retention"),
        ({"task": "retrieval"}, "did you mean"),
        ({"task": None}, "task is missing"),
        ({"baseline": None}, "baseline is missing"),
        ({"baseline": "0"}, "its baseline is 0"),
        ({"baseline": "nan"}, "baseline is not a finite number"),
        ({"score": "nan"}, "score is not a finite number"),
        ({"score": "inf"}, "score is not a finite number"),
        ({"score": "much"}, 'score is "much": give a number'),
        ({"score": "98", "baseline": "50"}, "swapped"),
        ({"score": "0.5"}, "two scales"),
        ({"question_visible": "perhaps"}, "write yes or no"),
        ({"key_bits": "4"}, "state key_bits and value_bits together"),
        ({"quantizer": "kivi", "key_bits": "4", "value_bits": "4"}, "measure one at a time"),
        ({"weight_bits": "4"}, "weight_bits is stated without weight_quantizer"),
        ({"standard_error": "-1"}, "0 or more"),
        ({"keep": "0.5"}, '"keep" is unknown'),
    ],
)
def test_faults_of_a_point_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: Mapping[str, str | None], told: str
) -> None:
    words = dict(each.split("=") for each in POINT.split(","))
    if changes == {"score": "0.5"}:
        words["baseline"] = "50"
    words |= {key: value for key, value in changes.items() if value is not None}
    text = ",".join(f"{key}={value}" for key, value in words.items() if changes.get(key, "") is not None)
    out = tmp_path / "mine.json"
    assert run(["calibrate", "--quality", "--point", text, "--out", str(out)]) == 2
    assert told in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--quality"], "no points are given"),
        (["--quality", "nowhere.csv"], "nowhere.csv"),
        (["--quality", "--point", POINT, "--evictor", "snapvk"], "did you mean snapkv"),
        (["--quality", "--point", POINT, "--point", POINT, "--hardware", "h100-sxm"], "leave it out with --quality"),
        (["--quality", "--point", POINT, "--quality-curves", "none.json"], "cannot be read"),
        (["--point", POINT], "--point is for --quality"),
        (["--method", "snapkv", "runs.csv"], "--method is for --quality"),
        (["--quality", "--point", "a", "--point", "b=1"], '--point "b=1"'),
    ],
)
def test_faults_of_the_command_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert run(["calibrate", *arguments, "--out", str(tmp_path / "mine.json")]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


def test_the_same_point_twice_counts_once() -> None:
    found = calibrate_quality([], [POINT, POINT], {})
    assert len(found.points) == 1
    assert len(found.refused) == 1


def test_what_is_read_or_is_something_else_is_never_overwritten(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    point = ["calibrate", "--quality", "--point", POINT]
    before = record.read_bytes()
    assert run([*point, "--quality-curves", str(record), "--out", str(record)]) == 2
    assert record.read_bytes() == before
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert run([*point, "--out", str(other)]) == 2
    assert other.read_text() == "{}"
    assert run([*point, "--out", str(tmp_path / "no" / "mine.json")]) == 2
    assert run([*point, "--out", str(tmp_path / "mine.txt")]) == 2
    told = capsys.readouterr().err
    for words in ("would overwrite", "is no quality record", "there is no folder", "ends in .json"):
        assert words in told
    with pytest.raises(InputError, match="is the shipped record"):
        check_out(RECORD)
    check_out(record)


def test_a_folder_that_cannot_be_written_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Path, mode: str = "r", *more: Any, **named: Any) -> None:
        raise PermissionError(13, "Permission denied")

    out = tmp_path / "mine.json"
    assert run(["calibrate", "--quality", "--point", POINT, "--out", str(out)]) == 0
    written = out.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("kvwall.sweep.store.atomic.Path.open", refuse)
        found = calibrate_quality([], [POINT.replace("48", "40")], {})
        with pytest.raises(InputError, match="choose a folder that you may write to"):
            write_curves(found.record, out)
    assert out.read_bytes() == written
    assert list(tmp_path.iterdir()) == [out]


def test_evaluate_takes_the_record_and_says_so(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kv.evaluate(**DESIGN, task="retrieval_easy")
    after = kv.evaluate(**DESIGN, task="retrieval_easy", quality_curves=str(record))
    assert before.metrics["quality_loss"] < 0.3
    assert after.metrics["quality_loss"] == pytest.approx(0.45, abs=0.05)
    assert after.metrics["quality_loss_code"] == before.metrics["quality_loss_code"]
    assert after.metrics["quality_loss_upper"] < before.metrics["quality_loss_upper"]
    assert any("narrowed by 1 measured point of your own" in flag for flag in after.flags)
    assert not any("of your own" in flag for flag in before.flags)
    words = ["evaluate", "--model", "Qwen/Qwen3-8B", "--hardware", "h100-sxm", "--context", "8192", "--json"]
    words += ["--mode", "ceiling", "--evictor", "snapkv", "--retention", "0.5", "--question-visible", "false"]
    assert run([*words, "--task", "retrieval_easy", "--quality-curves", str(record)]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["quality_loss"] == after.metrics["quality_loss"]


def test_a_study_takes_the_record(record: Path) -> None:
    study = Study.from_text(
        f"""
        [study]
        name = "own"
        mode = "ceiling"
        [space]
        model = "Qwen/Qwen3-8B"
        hardware = "h100-sxm"
        context = 8192
        evictor = "snapkv"
        question_visible = false
        retention = [0.5, 1.0]
        [quality]
        task = "retrieval_easy"
        curves = "{record}"
        [objectives]
        maximize = ["tokens_per_second"]
        """
    )
    expected = kv.evaluate(**DESIGN, task="retrieval_easy", quality_curves=str(record)).metrics
    design = study.columns().design({name: np.array([0, 1]) for name in study.space.dims})
    found = jax.device_get(evaluate(design, study.task).metrics)
    for name in ("quality_loss", "quality_loss_upper"):
        narrowed, neutral = np.ravel(found[name])
        assert narrowed == pytest.approx(expected[name], rel=1e-5)
        assert neutral == 0
