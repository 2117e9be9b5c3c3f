"""`kvwall validate ROWS --quality`: the answer's shape, numbers by hand, units kept apart, refusals, broken files."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwall.spaces.quality import RECORD, load_quality_curves
from kvwall.sweep.cli import run
from kvwall.sweep.commands.result_options import HELP
from kvwall.sweep.quality.rows import read_cells, read_rows
from kvwall.sweep.quality.scores import Scores, best_constant, pinball, scores, source_weights
from kvwall.sweep.quality_results import COLUMNS, OPTIONS
from kvwall.sweep.validate_quality import ACCURACY, PERPLEXITY, compare
from tests.evaluated import MODEL, RULER, harness, kvpress

PLAIN = {
    "method": "our own", "family": "naive_grouped", "model": "Our-8B", "benchmark": "our tickets", "subtask": "routing",
    "task_class": "aggregate", "baseline": "80", "higher_is_better": "1", "source": "our lab",
}  # fmt: skip
NARROW = PLAIN | {"bits_k": "4", "bits_v": "3"}
SCORES = ("mae", "mae_no_loss", "bias", "coverage_upper", "pinball_upper")
ROWS: tuple[dict[str, str], ...] = (
    NARROW | {"id": "Q1", "score": "76"},
    NARROW | {"id": "Q2", "score": "20", "source": "their lab, table 3"},
    PLAIN | {"id": "E1", "score": "60", "retention_ratio": "0.3", "family": "structure_aware", "task_class": "code"},
    PLAIN | {"id": "E2", "score": "81", "retention_ratio": "0.9", "family": "structure_aware", "task_class": "code"},
    NARROW | {"id": "P1", "score": "6", "baseline": "5", "higher_is_better": "0", "task_class": "perplexity"},
    NARROW | {"id": "P2", "score": "40", "baseline": "5", "higher_is_better": "0", "task_class": "perplexity"},
)


def written(path: Path, rows: Sequence[Mapping[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    assert run(["validate", *map(str, arguments), "--quality", "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.csv", ROWS)


def by_id(answer: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in answer["predictions"]}


# --- the answer ---------------------------------------------------------------------------------


def test_the_answer_keeps_the_contract(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, rows)
    assert {"overall", "groups", "refused", "predictions", "perplexity", "curves"} <= set(answer)
    for each in (answer["overall"], answer["perplexity"], *answer["groups"]):
        assert {"n", "unit", *SCORES} <= set(each)
    for each in answer["predictions"]:
        assert {"id", "task", "observed", "predicted", "upper", "vetoed", "veto", "unit"} <= set(each)
        assert isinstance(each["vetoed"], bool)
        assert 0 < each["predicted"] <= each["upper"]
    assert [tuple(each["by"]) for each in answer["groups"]][:1] == [("task",)]
    asked = {tuple(each["by"]) for each in answer["groups"]}
    assert {("task",), ("task", "source"), ("family",), ("method",), ("model",)} <= asked
    assert answer["curves"]["version"] == load_quality_curves().version
    assert answer["confidence"] == 0.9


def test_observed_losses_are_relative_or_logarithms(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = by_id(answer_of(capsys, rows))
    observed = {name: each["observed"] for name, each in found.items()}
    assert observed == pytest.approx(
        {"Q1": 0.05, "Q2": 0.75, "E1": 0.25, "E2": -0.0125, "P1": math.log(1.2), "P2": math.log(8)}
    )
    assert {name for name, each in found.items() if each["unit"] == PERPLEXITY} == {"P1", "P2"}


def test_predictions_are_the_records_curves(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against the formulas of the record, in plain Python."""
    found = by_id(answer_of(capsys, rows))
    record = json.loads(RECORD.read_text())
    level = record["confidences"].index(0.9)

    def hazard(task: str, upper: bool) -> float:
        curve, band = record["quantizer"]["naive_grouped"][task], record["upper"]["quantizer"]["naive_grouped"][task]
        total = 0.0
        for share, bits in ((record["key_share"], 4.0), (1 - record["key_share"], 3.0)):
            own = share * curve["scale"] * (math.exp(curve["slope"] * (4 - bits)) - math.exp(-12 * curve["slope"]))
            own += curve["floor"] / 2 * ((16 - bits) / 8) ** 4
            more = band["noise"][level] / 2 * ((16 - bits) / 12) ** 5
            total += math.exp(band["log_spread"][level]) * own + more if upper else own
        return total

    def evicted(kept: float, upper: bool) -> float:
        curve, band = record["evictor"]["query_aware"]["code"], record["upper"]["evictor"]["query_aware"]["code"]
        overload = ((1 - kept) / kept / math.exp(curve["log_half"])) ** curve["exponent"]
        own = -math.log(1 - curve["ceiling"] * overload / (1 + overload))
        more = -band["noise"][level] * math.log(kept)
        return 1 - math.exp(-(math.exp(band["log_spread"][level]) * own + more if upper else own))

    for key, upper in (("predicted", False), ("upper", True)):
        assert found["Q1"][key] == pytest.approx(1 - math.exp(-hazard("aggregate", upper)), rel=1e-4)
        assert found["P1"][key] == pytest.approx(hazard("perplexity", upper), rel=1e-4)
        assert found["E1"][key] == pytest.approx(evicted(0.3, upper), rel=1e-4)
    assert found["Q1"]["predicted"] == found["Q2"]["predicted"]


def test_numbers_of_groups_follow_from_the_rows(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, rows, "--confidence", "0.8")
    found = by_id(answer)

    def check(scores: Mapping[str, Any], names: Sequence[str]) -> None:
        some = [found[name] for name in names]
        over = [each["observed"] - each["upper"] for each in some]
        assert scores["n"] == len(names)
        assert scores["mae"] == pytest.approx(fmean(abs(each["predicted"] - each["observed"]) for each in some))
        assert scores["mae_no_loss"] == pytest.approx(fmean(abs(each["observed"]) for each in some))
        assert scores["bias"] == pytest.approx(fmean(each["predicted"] - each["observed"] for each in some))
        assert scores["coverage_upper"] == pytest.approx(fmean(float(each <= 0) for each in over))
        assert scores["pinball_upper"] == pytest.approx(fmean(0.8 * each if each > 0 else -0.2 * each for each in over))

    check(answer["overall"], ["Q1", "Q2", "E1", "E2"])
    check(answer["perplexity"], ["P1", "P2"])
    groups = {(*each["by"].items(), each["unit"]): each for each in answer["groups"]}
    check(groups[("task", "aggregate"), ACCURACY], ["Q1", "Q2"])
    check(groups[("task", "code"), ACCURACY], ["E1", "E2"])
    check(groups[("task", "perplexity"), PERPLEXITY], ["P1", "P2"])
    check(groups[("task", "aggregate"), ("source", "their"), ACCURACY], ["Q2"])
    check(groups[("source", "our"), ACCURACY], ["Q1", "E1", "E2"])
    check(groups[("source", "our"), PERPLEXITY], ["P1", "P2"])
    check(groups[("model", "Our-8B"), PERPLEXITY], ["P1", "P2"])
    check(groups[("family", "evictor query_aware"), ACCURACY], ["E1", "E2"])


def test_no_number_is_of_accuracy_and_perplexity(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, rows)
    sizes: dict[tuple[str, ...], dict[str, int]] = {}
    for each in answer["groups"]:
        of_unit = sizes.setdefault(tuple(each["by"]), {})
        of_unit[each["unit"]] = of_unit.get(each["unit"], 0) + each["n"]
    assert all(each == {ACCURACY: 4, PERPLEXITY: 2} for each in sizes.values())
    assert (answer["overall"]["unit"], answer["perplexity"]["unit"]) == (ACCURACY, PERPLEXITY)


def test_one_row_and_only_perplexity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(capsys, written(tmp_path / "rows.csv", ROWS[4:5]))
    assert answer["overall"] == {"unit": ACCURACY, "n": 0, **dict.fromkeys(SCORES)}
    assert answer["perplexity"]["n"] == 1
    assert answer["perplexity"]["mae_no_loss"] == pytest.approx(math.log(1.2))
    assert run(["validate", str(tmp_path / "rows.csv"), "--quality"]) == 0
    assert "1 row predicted" in capsys.readouterr().out


def test_vetoed_rows_are_predicted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needle = {"benchmark": "RULER", "subtask": "niah_single_3", "task_class": "retrieval", "retention_ratio": "0.5"}
    blind = PLAIN | needle | {"method": "StreamingLLM", "family": "position"}
    path = written(tmp_path / "rows.csv", [blind | {"id": name, "score": name[1:]} for name in ("V40", "V50", "V60")])
    answer = answer_of(capsys, path)
    assert answer["overall"]["n"] == 3
    assert {(each["vetoed"], each["veto"]) for each in answer["predictions"]} == {(True, "blind_retrieval")}
    assert [each["by"] for each in answer["groups"] if "veto" in each["by"]] == [{"veto": "blind_retrieval"}]
    assert run(["validate", str(path), "--quality"]) == 0
    assert "3 rows of designs that the veto blind_retrieval refuses" in capsys.readouterr().out


def test_no_veto_is_null(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {(each["vetoed"], each["veto"]) for each in answer_of(capsys, rows)["predictions"]} == {(False, None)}


def test_groups_of_as_many_rows_are_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alike = [NARROW | {"id": f"T{place}", "score": "70", "source": name} for place, name in enumerate("cabb")]
    alike[-1] |= {"score": "71"}
    answer = answer_of(capsys, written(tmp_path / "rows.csv", alike))
    assert [each["by"]["source"] for each in answer["groups"] if list(each["by"]) == ["source"]] == ["b", "a", "c"]
    assert len({each["predicted"] for each in answer["predictions"]}) == 1


def test_confidence_moves_the_upper_loss_alone(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [answer_of(capsys, rows, "--confidence", level)["predictions"] for level in ("0.5", "0.8", "0.85", "0.99")]
    for lower, higher in pairwise(found):
        for one, other in zip(lower, higher, strict=True):
            assert one["upper"] <= other["upper"]
            assert one["predicted"] == other["predicted"]
    assert found[0][0]["upper"] < found[-1][0]["upper"]


def test_another_record_of_curves(rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads(RECORD.read_text()) | {"version": "mine"}
    record["quantizer"]["naive_grouped"]["aggregate"]["scale"] *= 3
    other = tmp_path / "curves.json"
    other.write_text(json.dumps(record))
    answer = answer_of(capsys, rows, "--quality-curves", other)
    assert answer["curves"]["version"] == "mine"
    assert by_id(answer)["Q1"]["predicted"] > 1.5 * by_id(answer_of(capsys, rows))["Q1"]["predicted"]


def test_settings_beyond_the_evidence_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "rows.csv", [NARROW | {"id": "B1", "score": "9", "bits_k": "1", "bits_v": "1"}])
    (found,) = answer_of(capsys, path)["predictions"]
    assert found["beyond"] == ["below 2 bits"]
    assert run(["validate", str(path), "--quality"]) == 0
    assert "1 row beyond what was measured: below 2 bits" in capsys.readouterr().out


# --- sources of the fit -------------------------------------------------------------------------


def test_rows_of_the_fit_are_no_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = read_rows()[0][0].source
    path = written(tmp_path / "rows.csv", [ROWS[0], ROWS[2] | {"source": f"{fitted} Table 1"}])
    answer = answer_of(capsys, path)
    assert {name: each["in_fit"] for name, each in by_id(answer).items()} == {"Q1": False, "E1": True}
    assert answer["sources"] == {"n": 2, "in_fit": 1}
    assert run(["validate", str(path), "--quality"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 sources (1 of 2 rows) are in the fit of the curves, which is no test of them" in words
    assert "docs/quality.md" in words


def test_new_sources_are_said_to_be_new(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(rows), "--quality"]) == 0
    assert "no source of these rows is in the fit" in capsys.readouterr().out


def test_the_shipped_rows_are_all_predicted_or_refused() -> None:
    cells = read_cells()
    report = compare(cells, [], load_quality_curves(), 0.9)
    rows, excluded = read_rows()
    assert report.overall.n + report.perplexity.n == len(rows)
    assert len(report.refused) == sum(excluded.values()) > 0
    assert all(np.isfinite([each.prediction.central, each.prediction.upper]).all() for each in report.compared)


# --- refusals and faults ------------------------------------------------------------------------


def test_unusable_rows_are_refused_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marked = [NARROW | {"id": f"X{place}", "score": f"{50 + place}", "notes": "exclude_fit"} for place in range(4)]
    odd = NARROW | {"id": "X9", "score": "many"}
    path = written(tmp_path / "rows.csv", [ROWS[0], *marked, odd, ROWS[3] | {"baseline": "0"}])
    answer = answer_of(capsys, path)
    assert [each["id"] for each in answer["predictions"]] == ["Q1"]
    reasons = {each["id"]: each["reason"] for each in answer["refused"]}
    assert len(reasons) == 6
    assert all(reasons[f"X{place}"] == "marked unfit by its collector" for place in range(4))
    assert 'score is "many"' in reasons[f"{path}, line 7"]
    assert "its baseline is 0" in reasons[f"{path}, line 8"]
    assert run(["validate", str(path), "--quality"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "1 row predicted, 6 not used." in words
    assert "4 rows: marked unfit by its collector (X0, X1, X2, ...)" in words


def test_a_table_that_contradicts_the_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "rows.csv", [ROWS[0]])
    answer = answer_of(capsys, path, "--table", "weight_quant", code=3)
    assert "its table is weight_quant, but nothing of that kind is compressed" in answer["refused"][0]["reason"]


def test_nothing_usable_is_an_answer_that_exits_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "rows.csv", [ROWS[0] | {"notes": "no baseline"}])
    answer = answer_of(capsys, path, code=3)
    assert answer["overall"]["n"] == answer["perplexity"]["n"] == 0
    assert answer["groups"] == answer["predictions"] == []
    assert [each["id"] for each in answer["refused"]] == ["Q1"]
    assert run(["validate", str(path), "--quality"]) == 3
    assert "0 rows predicted, 1 not used." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        ("", ["--quality"], "is empty|has no lines|Empty"),
        (",".join(COLUMNS) + "\n", ["--quality"], "no lines"),
        ("id,model,method,scor\n1,2,3,4\n", ["--quality"], "column benchmark is missing|column score is missing"),
        ("colour,shape\nred,round\n", ["--quality"], "format is not known"),
        ("{", ["--quality"], "JSON"),
        (None, ["--quality"], "no such file"),
        ("ok", ["--quality", "--confidence", "0.3"], "confidence 0.3 is outside 0.5 to 0.99"),
        ("ok", ["--quality", "--confidence", "nan"], "confidence nan is outside"),
        ("ok", ["--quality", "--confidence", "high"], '--confidence "high" is not a number'),
        ("ok", ["--quality", "--quality-curves", "none.json"], "none.json"),
        ("ok", ["--quality", "--bits-k", "4"], "bits_k and bits_v together"),
        ("ok", ["--quality", "--retention", "two"], '--retention is "two"'),
        ("ok", ["--quality", "--capacity"], "give one of them"),
        ("ok", ["--quality", "--plot", "page.html"], "--plot is of measured speeds: leave it out with --quality"),
        ("ok", ["--quality", "--tp", "2"], "--tp is of measured speeds: leave it out with --quality"),
        ("ok", ["--quality", "--repeats", "collapse"], "--repeats is of measured speeds"),
        ("ok", ["--confidence", "0.9"], "--confidence is of --quality: leave it out with measured speeds"),
        ("ok", ["--bits-k", "4"], "--bits-k is of --quality: leave it out with measured speeds"),
        (
            "ok",
            ["--capacity", "--quality-curves", "a.json"],
            "--quality-curves is of --quality: leave it out with --cap",
        ),
        ("ok", [], "give --quality"),
    ],
)
def test_faults_are_told_without_a_traceback(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.csv"
    if content == "ok":
        written(path, ROWS)
    elif content is not None:
        path.write_text(content)
    assert run(["validate", str(path), *arguments]) == 2
    caught = capsys.readouterr()
    assert not caught.out
    assert "Traceback" not in caught.err
    assert re.search(told, " ".join(caught.err.split())), caught.err


# --- results of evaluation programs -------------------------------------------------------------


def test_every_statement_that_files_leave_open_has_an_option() -> None:
    assert {*HELP, "model"} == set(OPTIONS)


def test_results_of_a_harness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def of(name: str, score: float) -> Path:
        return harness(tmp_path / name, {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": score}})

    baseline, mine = of("results_0.json", 0.5), of("results_1.json", 0.4)
    stated = ["--method", "our int4", "--family", "naive_grouped", "--bits-k", "4", "--bits-v", "4"]
    answer = answer_of(capsys, mine, "--baseline", baseline, "--model", "ours", *stated)
    (found,) = answer["predictions"]
    assert found["observed"] == pytest.approx(0.2)
    assert (found["task"], found["family"], found["model"]) == ("reasoning", "quantizer naive_grouped", "ours")


def test_a_folder_of_kvpress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kvpress(tmp_path, RULER)
    kvpress(tmp_path, {task: {"string_match": 49.0} for task in RULER}, "snapkv", 0.5)
    answer = answer_of(capsys, tmp_path)
    tasks = {each["task"]: each for each in answer["predictions"]}
    assert set(tasks) == {"retrieval_easy", "retrieval_hard"}
    assert tasks["retrieval_hard"]["observed"] == pytest.approx(0.5)
    assert {each["model"] for each in tasks.values()} == {MODEL}


# --- arithmetic ---------------------------------------------------------------------------------


def test_nothing_has_no_scores() -> None:
    assert scores([], [], [], 0.9) == Scores(0, None, None, None, None, None)


def test_what_equals_the_upper_loss_is_covered() -> None:
    assert scores([0.2, 0.2], [0.1, 0.1], [0.2, 0.2], 0.9).coverage_upper == 1
    assert scores([0.2], [0.1], [np.nextafter(0.2, 0)], 0.9).coverage_upper == 0


def test_sources_count_the_same() -> None:
    observed, sources = [0.1, 0.1, 0.1, 0.5], ["a", "a", "a", "b"]
    found = scores(observed, [0.0] * 4, [0.3] * 4, 0.9, source_weights(sources))
    assert found.mae == pytest.approx(0.3)
    assert found.coverage_upper == pytest.approx(0.5)
    assert scores(observed, [0.0] * 4, [0.3] * 4, 0.9).coverage_upper == pytest.approx(0.75)


@given(
    st.lists(st.tuples(st.sampled_from([-0.1, 0.0, 0.1, 0.3, 1.0]), st.sampled_from("abc")), min_size=1, max_size=12),
    st.sampled_from([0.5, 0.8, 0.9]),
)
def test_no_constant_is_better_than_the_best(rows: list[tuple[float, str]], level: float) -> None:
    observed = [value for value, _ in rows]
    share = source_weights([source for _, source in rows])

    def loss(constant: float) -> float:
        return float(np.average(pinball(observed, np.full(len(rows), constant), level), weights=share))

    best = loss(best_constant(observed, level, share))
    assert all(best <= loss(other) + 1e-12 for other in np.linspace(-0.2, 1.1, 53).tolist() + observed)
