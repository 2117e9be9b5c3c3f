"""`kvwall validate ROWS`: arithmetic of errors and bands, what is refused and flagged, the page, and broken files."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvwall.objectives.bands import DEVIATIONS_OF_BAND
from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.errors import InputError
from kvwall.sweep.accuracy import Accuracy, Errors, accuracy, errors_of, grouped
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.cli import run
from kvwall.sweep.held_out_record import HELD_OUT, load_held_out
from kvwall.sweep.measured_rows import ROWS, read_rows
from kvwall.sweep.report.accuracy import accuracy_section, accuracy_sections
from kvwall.sweep.report.parts import Table
from kvwall.sweep.speed_groups import GROUPINGS
from kvwall.sweep.speed_prediction import collapsed, log_seconds, predict, usable_steps
from kvwall.sweep.study import Study
from kvwall.sweep.validate_page import page, write_page
from kvwall.sweep.validate_speed import SpeedReport, nothing_usable
from tests.made_rows import cells_of, compared, row, written
from tests.page import numbers, read
from tests.stand_in_record import stand_in

MIXED = (
    row("a-1"),
    row("a-2", value=11.0),
    row("a-3", metric="output_tokens_per_s_total", value=1400.0),
    row("a-4", metric="decode_tokens_per_s_per_user", value=90.0, hardware="l40s", weight_precision="fp8"),
    row("a-5", metric="e2e_latency_ms", value=3000.0, model="Mixtral-8x7B", tp=2, n_devices=2),
    row("a-6", metric="output_tokens_per_s_per_gpu", value=250.0, model="Llama-3.1-70B", tp=4, n_devices=8),
    row("b-1", batch_kind="concurrency", input_tokens=100_000, batch_or_concurrency=2, value=12.0),
)


@pytest.fixture(scope="module")
def report() -> SpeedReport:
    return compared(MIXED)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "record.json"
    write_record(stand_in(), path)
    return path


# --- arithmetic ---------------------------------------------------------------------------------


def test_errors_by_hand() -> None:
    found = accuracy(Errors(np.array([0.1, -0.3, 0.2]), np.array([0.1, 0.5, 0.2]), np.array([True, False, True])))
    assert found.n == 3
    assert found.mape == pytest.approx(0.2)
    assert found.median_ape == pytest.approx(0.2)
    assert found.bias == pytest.approx(0.0)
    assert found.coverage == pytest.approx(2 / 3)
    assert found.bias_time == pytest.approx(0.8 / 3)


def test_nothing_has_no_errors() -> None:
    nothing = Errors(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))
    assert accuracy(nothing) == Accuracy(0, None, None, None, None)


def test_a_rate_too_high_is_a_time_too_short() -> None:
    found = errors_of(np.log([0.5, 0.5]), np.array([0.5, 1.0]), np.array([False, True]))
    assert found.relative == pytest.approx([-0.5, 1.0])
    assert found.slower == pytest.approx([-0.5, -0.5])
    assert found.inside.tolist() == [False, True]


def test_groups_hold_every_row_once() -> None:
    errors = Errors(np.array([0.1, 0.2, 0.6]), np.zeros(3), np.ones(3, dtype=bool))
    labels = [{"chip": "x", "engine": "e"}, {"chip": "y", "engine": "e"}, {"chip": "x", "engine": "e"}]
    found = grouped(labels, errors, (("chip",), ("engine",)))
    assert [(by, each.n) for by, each in found] == [({"chip": "x"}, 2), ({"chip": "y"}, 1), ({"engine": "e"}, 3)]
    assert found[0][1].mape == pytest.approx(0.35)


# --- predictions --------------------------------------------------------------------------------


def test_every_row_has_a_value_inside_its_band(report: SpeedReport) -> None:
    assert {each.id for each in report.predictions} == {each.id for each in MIXED}
    for each in report.predictions:
        assert 0 < each.low <= each.predicted <= each.high, each.id
        assert each.low < each.high


def test_numbers_are_in_the_rows_own_unit(report: SpeedReport) -> None:
    found = {each.id: each for each in report.predictions}
    step = found["a-1"].predicted / 1e3
    assert found["a-2"].predicted == found["a-1"].predicted
    assert 0.8 * 16 / step < found["a-3"].predicted < 16 / step  # prefill counts
    assert found["a-5"].predicted > 256
    assert 20 < found["a-4"].predicted < 200
    assert found["a-5"].routed
    assert not found["a-1"].routed


def test_the_measured_number_of_a_row_predicted_exactly_has_no_error() -> None:
    once = compared(MIXED)
    exact = [replace(each.usable.row, value=each.predicted) for each in once.predictions]
    found = compared(exact).overall
    assert found.mape == pytest.approx(0.0, abs=1e-9)
    assert found.coverage == 1.0


def test_the_band_is_what_directions_and_models_add_up_to() -> None:
    steps, _ = usable_steps(
        [row("a-1"), row("a-2", model="Mixtral-8x7B", tp=2, n_devices=2, value=30.0)], load_aliases()
    )
    assert steps is not None
    narrow, wide = (log_seconds(steps, stand_in(spread))[1] for spread in (1e-6, 0.3))
    assert np.all(narrow > 0.005)
    assert wide == pytest.approx(np.hypot(narrow, [0.3, 0.6]), rel=1e-6)


def test_a_wrong_term_by_one_deviation_moves_the_prediction_as_the_band_says() -> None:
    """All directions but one are switched off: the weights' time."""
    steps, _ = usable_steps([row("a-1", batch_or_concurrency=1, input_tokens=16, output_tokens=1)], load_aliases())
    assert steps is not None
    base = stand_in(1e-9)
    only = np.zeros((len(base.names), len(base.names)))
    only[0, 0] = 0.05**2
    certain = replace(base, covariance=tuple(map(tuple, only.tolist())))
    middle, spread = log_seconds(steps, certain)
    effect = certain.terms["weights"].mean
    changed = replace(effect, value=effect.value + 0.05)
    moved = replace(certain, terms={**certain.terms, "weights": replace(certain.terms["weights"], mean=changed)})
    assert log_seconds(steps, moved)[0] - middle == pytest.approx(spread, rel=0.06)


def test_bands_are_no_faster_than_the_ceiling() -> None:
    steps, _ = usable_steps([row("a-1"), row("a-2", metric="decode_tokens_per_s_per_user", value=50)], load_aliases())
    assert steps is not None
    found, _ = predict(steps, stand_in(2.0))
    ceiling = float(np.broadcast_to(steps.served.ceiling, 2)[0])
    assert found[0].low == pytest.approx(1e3 * ceiling)
    assert found[1].high == pytest.approx(1 / ceiling)
    assert found[0].high == pytest.approx(found[0].predicted * math.exp(DEVIATIONS_OF_BAND * 2.0), rel=0.05)


def test_what_is_beyond_the_measurements_is_flagged_with_its_reason(report: SpeedReport) -> None:
    because = {each.id: " | ".join(each.because) for each in report.predictions}
    assert not because["a-1"]
    assert "chip l40s: no row" in because["a-4"]
    assert "context 100,128 is beyond the longest measured, 32,768" in because["b-1"]
    others = compared(
        [
            row("c-1", framework="Whatever"),
            row("c-2", framework="llama.cpp", framework_version="b6000", kv_precision="q8_0"),
            row("c-3", batch_or_concurrency=600, input_tokens=64),
            row("c-4", framework=""),
        ]
    )
    because = {each.id: " | ".join(each.because) for each in others.predictions}
    assert "engine Whatever: no row of the fit" in because["c-1"]
    assert "engine llamacpp on h100-sxm" in because["c-2"]
    assert "KV of 8.5 bits: llamacpp was measured with 16" in because["c-2"]
    assert "batch 600 is beyond" in because["c-3"]
    assert "engine not stated" in because["c-4"]


def test_rows_that_cannot_be_are_refused_one_by_one() -> None:
    found = compared(
        [
            row("ok"),
            row("nan", value=float("nan")),
            row("negative", value=-1.0),
            row("fast", value=0.1),
            row("slow", value=1e300),
            row("still", metric="output_tokens_per_s_total", value=5e-324),
            row("model", model="Llama-9-8B"),
            row("batch", batch_or_concurrency=None),
            row("huge", batch_or_concurrency=2_000_000_000),
            row("memory", model="Llama-3.1-405B"),
            row("split", tp=None, n_devices=4),
            row("metric", metric="ttft_ms"),
        ]
    )
    assert [each.id for each in found.predictions] == ["ok"]
    reasons = {name: " ".join(some) for name, some in found.refused.items()}
    assert "not above 0" in reasons["nan"]
    assert "not above 0" in reasons["negative"]
    assert "faster than the ceiling by more than 1.25 times" in reasons["fast"]
    assert "1,000,000 times slower than predicted" in reasons["slow"]
    assert "still" in reasons
    assert "not in the catalogue" in reasons["model"]
    assert "batch not stated" in reasons["batch"]
    assert "out of range" in reasons["huge"]
    assert "not one sequence fits" in reasons["memory"]
    assert "how the devices split" in reasons["split"]
    assert "ttft_ms" in reasons["metric"]


def test_repeats_count_once_with_their_median(report: SpeedReport) -> None:
    found = {each.id: each for each in collapsed(report.predictions)}
    assert "a-2" not in found
    assert found["a-1"].measured == 10.5
    assert found["a-1"].repeats == 2
    assert found["a-3"].repeats == 1
    assert len(found) == len(MIXED) - 1


def test_published_rows_are_predicted() -> None:
    rows = read_rows(ROWS)[::4]
    found = compared(rows)
    assert len(found.predictions) > 0.97 * len(rows)
    assert len(found.refused) + len(found.predictions) == len(rows)
    json.dumps(found.to_json(), allow_nan=False)
    for names in GROUPINGS:
        assert sum(each.n for by, each in found.groups if set(by) == set(names)) == len(found.predictions)


# --- what is printed ----------------------------------------------------------------------------


def test_json_has_the_keys_of_the_contract(report: SpeedReport) -> None:
    found = report.to_json()
    assert {"overall", "groups", "refused", "predictions"} <= found.keys()
    summary = {"n", "mape", "median_ape", "bias", "coverage"}
    assert summary <= found["overall"].keys()
    assert all(summary | {"by"} <= group.keys() for group in found["groups"])
    assert {next(iter(group["by"])) for group in found["groups"]} == {
        "hardware", "model", "engine", "precision", "context", "batch", "kind", "metric",
    }  # fmt: skip
    keys = {"id", "measured", "predicted", "low", "high", "extrapolated", "extrapolated_because"}
    assert all(keys <= each.keys() for each in found["predictions"])
    first = found["predictions"][0]
    errors = [abs(each["predicted"] / each["measured"] - 1) for each in found["predictions"]]
    assert found["overall"]["mape"] == pytest.approx(np.mean(errors))
    assert found["overall"]["median_ape"] == pytest.approx(np.median(errors))
    inside = [each["low"] <= each["measured"] <= each["high"] for each in found["predictions"]]
    assert found["overall"]["coverage"] == pytest.approx(np.mean(inside))
    assert first["measured"] == 10.0


def test_bands_of_groups_are_in_order(report: SpeedReport) -> None:
    bands = [by["batch"] for by, _ in report.groups if "batch" in by]
    assert bands == ["2 to 8", "9 to 32"]
    assert [by["kind"] for by, _ in report.groups if "kind" in by] == ["dense", "experts"]


def test_the_command_prints_and_draws(tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written(tmp_path / "rows.csv", [*map(cells_of, MIXED), cells_of(row("x-1", value=0.01))])
    plot = tmp_path / "plot.html"
    assert run(["validate", str(rows), "--calibration", str(record), "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert "7 rows predicted: median error" in out
    assert "x-1: faster than the ceiling" in out
    assert str(plot) in out.replace("\n", "")
    assert run(["validate", str(rows), "--calibration", str(record), "--repeats", "collapse", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overall"]["n"] == 6
    assert found["refused"][0]["id"] == "x-1"


def test_many_refused_rows_are_told_by_reason(tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [cells_of(row("ok")), *(cells_of(row(f"n-{place}", model="Nobody-7B")) for place in range(30))]
    assert run(["validate", str(written(tmp_path / "r.csv", rows)), "--calibration", str(record)]) == 0
    out = capsys.readouterr().out
    assert "Not used (30):" in out
    assert '30 rows: model "Nobody-7B" is not in the catalogue' in out
    assert "n-7" not in out


def test_what_the_file_leaves_open_is_stated(tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = written(tmp_path / "r.csv", [cells_of(row("a-1", hardware="", n_devices=None, tp=None, value=40.0))])
    arguments = ["validate", str(rows), "--calibration", str(record), "--json"]
    assert run([*arguments, "--hardware", "l40s", "--tp", "1", "--n-devices", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["groups"][0]["by"] == {"hardware": "l40s"}


# --- broken input -------------------------------------------------------------------------------


def test_a_file_without_usable_rows_is_refused_with_reasons(
    tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = written(tmp_path / "r.csv", [cells_of(row("a-1", value=float("nan")))])
    assert run(["validate", str(rows), "--calibration", str(record), "--json"]) == 2
    caught = capsys.readouterr()
    assert "no row can be used: a-1: value nan is not above 0" in caught.err
    assert not caught.out


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        ("", [], "is empty|has no lines|Empty"),
        ("id,model\n", [], "missing|no lines"),
        ("{", [], "JSON"),
        (None, [], r"^kvwall: [^:]*rows\.csv: no such file: name a file of results$"),
        ("ok", ["--repeats", "sometimes"], 'repeats "sometimes" is unknown: give keep or collapse'),
        ("ok", ["--hardware", "h900"], "h900"),
        ("ok", ["--tp", "two"], '--tp is "two"'),
        ("ok", ["--plot", "no/such/folder/plot.html"], "--plot no/such/folder/plot.html: there is no folder"),
        ("ok", ["--plot", "."], "--plot"),
        ("ok", ["--calibration", "no.json"], "no.json: no such file"),
        ("ok", ["--no-such-option"], "no-such-option"),
        ("ok", ["--capacity", "--tp", "2"], "--tp is of measured speeds"),
    ],
)
def test_faults_are_told_without_a_traceback(
    tmp_path: Path,
    record: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rows.csv"
    if content == "ok":
        written(path, [cells_of(row("a-1"))])
    elif content is not None:
        path.write_text(content)
    default = [] if "--calibration" in arguments or "--capacity" in arguments else ["--calibration", str(record)]
    assert run(["validate", str(path), *default, *arguments]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert re.search(told, err), err


def test_reasons_of_many_unusable_rows_are_counted() -> None:
    fault = nothing_usable({f"r-{place}": ("batch not stated",) for place in range(21)})
    assert fault.faults == ("no row can be used: batch not stated (21 rows)",)
    assert nothing_usable({}).faults == ("no row can be used: the files hold none",)


# --- the page -----------------------------------------------------------------------------------


def test_the_page_shows_every_row_once_and_asks_nothing_of_a_network(report: SpeedReport, tmp_path: Path) -> None:
    write_page(report, tmp_path / "page.html")
    elements = read(tmp_path / "page.html")
    assert set(elements.figures) == {"predicted-time", "predicted-sequence", "predicted-device"}
    drawn = sum(
        len(numbers(trace["x"]))
        for figure in elements.figures.values()
        for trace in figure["data"]
        if trace["mode"] == "markers"
    )
    assert drawn == len(MIXED)
    for tag, attributes in elements.elements:
        assert not attributes.get("src"), tag
        assert (attributes.get("href") or "#").startswith("#"), tag
    assert all(figure["config"]["showSendToCloud"] is False for figure in elements.figures.values())


def test_a_figure_has_the_rows_numbers(report: SpeedReport, tmp_path: Path) -> None:
    write_page(report, tmp_path / "page.html")
    figure = read(tmp_path / "page.html").figures["predicted-device"]
    found = {each.id: each for each in report.predictions}
    xs = sorted(x for trace in figure["data"] if trace["mode"] == "markers" for x in numbers(trace["x"]))
    assert xs == pytest.approx(sorted([found["a-3"].measured, found["a-6"].measured]))
    whole = found["a-5"]
    figure = read(tmp_path / "page.html").figures["predicted-time"]
    ys = [y for trace in figure["data"] if trace["mode"] == "markers" for y in numbers(trace["y"])]
    assert any(y == pytest.approx(whole.predicted / 256, rel=1e-4) for y in ys)


def test_names_on_the_page_are_text(tmp_path: Path) -> None:
    text = page(compared([replace(row("<script>alert(1)</script>"), framework="<b>x</b>")]))
    assert "<script>alert(1)" not in text
    assert "<b>x</b>" not in text


@pytest.mark.browser
def test_a_browser_draws_the_figures_without_a_complaint(report: SpeedReport, tmp_path: Path) -> None:
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium on the PATH")
    path = tmp_path / "page.html"
    write_page(report, path)
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,2000",
        "--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    assert done.stdout.count('class="plot js-plotly-plot"') == 3


# --- the record of rows left out ----------------------------------------------------------------

SCORE = {"n": 20, "mape": 0.15, "median_ape": 0.1, "bias": -0.02, "coverage": 0.8}
KINDS = {"dense": SCORE, "experts": SCORE | {"n": 5, "coverage": None}}
HELD = {
    "rows": 25,
    "forms": [{"name": "ceiling", "meaning": "one factor", **KINDS}, {"name": "operators", "meaning": "all", **KINDS}],
    "left_out": {"pair": KINDS, "chip": KINDS},
    "pure_bandwidth": SCORE,
    "groups": [
        {"by": {"hardware": "h100-sxm"}, **SCORE},
        {"by": {"engine": "vllm"}, **SCORE},
        {"by": {"batch": "32 to 127"}, **SCORE},
        {"by": {"batch": "8 to 31"}, **SCORE},
    ],
    "refused": {"batch not stated": 3},
    "chips": [],
    "own_rows": [{"chip": "mi300x", "engine": "vllm", "rows": 50, "before": 0.2, "after": 0.1}],
}
STUDY = """
[study]
name = "x"
[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["h100-sxm", "tpu-v6e"]
context = 4096
engine = "vllm"
"""


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    path = tmp_path / "held_out.json"
    path.write_text(json.dumps(HELD))
    return path


def test_the_record_of_rows_left_out_is_checked(held_out: Path, tmp_path: Path) -> None:
    assert load_held_out(held_out).left_out["pair"].dense.median_ape == 0.1
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(HELD | {"rows": "many", "forms": 3}))
    with pytest.raises(InputError, match=r"kvwall\.sweep\.calibration\.estimate") as caught:
        load_held_out(broken)
    assert len(caught.value.faults) >= 2
    with pytest.raises(InputError, match="not a record"):
        load_held_out(tmp_path / "nowhere.json")


def test_a_report_shows_the_errors_of_its_chips_and_engines(held_out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvwall.sweep.report.accuracy.load_held_out", lambda: load_held_out(held_out))
    study = Study.from_text(STUDY)
    section = accuracy_section(study)
    table = section.blocks[0]
    assert isinstance(table, Table)
    assert [cells[0] for cells in table.rows][:3] == ["H100 SXM", "vllm", "dense models"] or table.rows[0][1] == "20"
    assert table.rows[0][1:] == ("20", "10.0 %", "15.0 %", "-2.0 %", "80 %")
    assert "tpu" in section.notes[0].lower()
    assert accuracy_sections(replace(study, mode="ceiling")) == ()
    assert accuracy_sections(study) == (section,)


def test_a_report_says_why_there_are_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvwall.sweep.report.accuracy.load_held_out", lambda: load_held_out(tmp_path / "no.json"))
    assert "not a record" in accuracy_section(Study.from_text(STUDY)).lead[0]


def accuracy_page() -> Any:
    path = Path(__file__).parent.parent / "docs" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_docs_tells_what_the_record_holds(held_out: Path) -> None:
    text = accuracy_page().page(load_held_out(held_out), stand_in())
    assert "| model and chip never seen together | dense | 20 | 10.0 % | 15.0 % | -2.0 % | 80 % |" in text
    assert "| ceiling: one factor | 10.0 % | 15.0 % | 10.0 % | 15.0 % |" in text
    assert text.index("8 to 31") < text.index("32 to 127")
    assert "| batch not stated | 3 |" in text
    assert "| mi300x | vllm | 50 | 20.0 % | 10.0 % | -50 % |" in text
    assert "| h100-sxm | kv8 |" in text
    assert "### Model" not in text


@pytest.mark.skipif(not HELD_OUT.exists(), reason="the record is not fitted yet")
def test_the_page_of_the_docs_is_up_to_date() -> None:
    module = accuracy_page()
    found = module.page(load_held_out(), module.load_calibration())
    assert found == module.PAGE.read_text(encoding="utf-8"), "run: python docs/accuracy.py"
