"""`kvwall calibrate RUNS --out RECORD.json`: a record that other commands take, and what goes wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.calibration import RECORD, load_calibration
from kvwall.spaces.errors import InputError
from kvwall.sweep.calibrate_runs import adapt, check_out
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.cli import run
from kvwall.sweep.measured_rows import MeasuredRow
from kvwall.sweep.speed_prediction import predict, usable_steps
from tests.made_rows import BASE, cells_of, row, written
from tests.stand_in_record import stand_in

SLOWER = 1.25
"""How much slower the machine of these tests is than the record says, which has no row of its chip."""
BEFORE = 1 - 1 / SLOWER


def own_rows(count: int) -> list[MeasuredRow]:
    """Runs of one machine, each SLOWER than predicted, and a hundredth off on its own."""
    shapes = [(batch, context) for context in (512, 1024, 2048, 4096) for batch in (1, 4, 16)][:count]
    rows = [
        replace(
            BASE, id=f"own-{place}", hardware="l40s", batch_or_concurrency=batch, input_tokens=context, value=1000.0
        )
        for place, (batch, context) in enumerate(shapes)
    ]
    steps, _ = usable_steps(rows, load_aliases())
    assert steps is not None
    noise = np.random.default_rng(1).normal(0.0, 0.01, len(rows))
    found, _ = predict(steps, stand_in())
    return [
        replace(each.usable.row, value=SLOWER * each.predicted * float(np.exp(own)))
        for each, own in zip(found, noise, strict=True)
    ]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start") / "record.json"
    write_record(stand_in(), path)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [*map(cells_of, own_rows(10)), cells_of(row("fast", value=0.1)), cells_of(row("who", model="Nobody-7B"))]
    return written(tmp_path_factory.mktemp("runs") / "runs.csv", rows)


def test_ten_rows_of_a_machine_bring_the_others_near(runs: Path, record: Path) -> None:
    adapted = adapt([runs], {}, record)
    assert adapted.used == 10
    assert set(adapted.refused) == {"fast", "who"}
    assert adapted.before.median_ape == pytest.approx(BEFORE, abs=0.02)
    assert adapted.after.median_ape is not None
    assert adapted.after.median_ape < 0.5 * BEFORE
    unseen = own_rows(12)[10:]
    steps, _ = usable_steps(unseen, load_aliases())
    assert steps is not None
    off = {
        name: np.median([abs(each.predicted / each.measured - 1) for each in predict(steps, used)[0]])
        for name, used in (("before", stand_in()), ("after", adapted.record))
    }
    assert off["after"] < 0.7 * off["before"]


def test_the_command_writes_a_record_that_validate_takes(
    runs: Path, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert run(["calibrate", str(runs), "--calibration", str(record), "--out", str(out)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Adapted to 10 rows; 2 not used." in text
    assert re.search(r"before: median error (19|20|21)\.\d %", text)
    assert "after: median error" in text
    assert "fast: faster than the ceiling" in text
    assert load_calibration(out).rows == stand_in().rows + 10
    assert run(["validate", str(runs), "--calibration", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["overall"]["median_ape"] < 0.5 * BEFORE
    assert "own" in found["calibration"]["version"]


def test_json_tells_before_and_after(
    runs: Path, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    assert run(["calibrate", str(runs), "--calibration", str(record), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == str(out)
    assert found["used"] == 10
    assert found["after"]["median_ape"] < found["before"]["median_ape"]
    assert {each["id"] for each in found["refused"]} == {"fast", "who"}


def test_results_of_a_benchmark_are_read_as_they_are(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parent / "samples" / "runs" / "vllm_serve.json"
    arguments = ["calibrate", str(sample), "--calibration", str(record), "--out", str(tmp_path / "o.json"), "--json"]
    assert run([*arguments, "--hardware", "h100-sxm", "--tp", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["used"] == 2
    assert run(arguments) == 2
    assert "--hardware" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("no/folder/mine.json", "there is no folder no/folder"),
        ("mine.txt", "ends in .json"),
        ("mine.parquet", "ends in .json"),
        ("folder.json", "is a folder"),
    ],
)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    assert run(["calibrate", "nowhere.csv", "--out", out]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "nowhere.csv" not in err


def test_the_shipped_record_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = tmp_path / "estimate.json"
    shipped.write_text("{}")
    monkeypatch.setattr("kvwall.sweep.calibrate_runs.RECORD", shipped)
    with pytest.raises(InputError, match="is the shipped record"):
        check_out(shipped)
    assert RECORD.name == "estimate.json"


def test_without_a_usable_row_the_reasons_are_told(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = written(tmp_path / "runs.csv", [cells_of(row("a", value=float("nan"))), cells_of(row("b", value=0.01))])
    out = tmp_path / "mine.json"
    assert run(["calibrate", str(runs), "--calibration", str(record), "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert "a: value nan is not above 0" in err
    assert "b: faster than the ceiling" in err
    assert not out.exists()


def test_a_record_that_is_none_is_told(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"version": 3}')
    assert run(["calibrate", str(runs), "--calibration", str(broken), "--out", str(tmp_path / "o.json")]) == 2
    err = capsys.readouterr().err
    assert "broken." in err
    assert "Traceback" not in err


def test_what_must_be_given_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "runs.csv"]) == 2
    assert "--out" in capsys.readouterr().err
    assert run(["calibrate", "--out", "x.json"]) == 2
    assert "RUNS" in capsys.readouterr().err
