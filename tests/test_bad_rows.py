"""Rows of a table that cannot be used are refused one by one, with their reasons; the others are used."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.errors import InputError
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.cli import run
from kvwall.sweep.measured import usable_row
from kvwall.sweep.measured_rows import REQUIRED, read_rows
from kvwall.sweep.runs import read_runs
from tests.made_rows import COLUMNS, cells_of, compared, row
from tests.stand_in_record import stand_in

COUNTS = ("n_devices", "tp", "pp", "ep", "batch_or_concurrency", "input_tokens", "output_tokens")
ALL = (*COLUMNS, "pp", "ep")
FRACTIONS = ("8.5", "two", "1,000", "0x10", "1_000", "inf", "8 GPUs", "1e999", "²")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "record.json"
    write_record(stand_in(), path)
    return path


def cells(name: str, **changed: object) -> list[str]:
    found = {**cells_of(row(name)), "pp": "", "ep": "", **changed}
    return [str(found[column]) for column in ALL]


def table(path: Path, lines: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([ALL, *lines])
    return path


def reasons_of(path: Path) -> dict[str, str]:
    """Id -> why it is refused; every other row of the file is read."""
    found = read_runs([path], {})
    assert [each.id for each in found.rows if each.id.startswith("good")] == ["good-1", "good-2"]
    return {name: "; ".join(reasons) for name, reasons in found.refused.items()}


def beside_good(path: Path, *lines: Sequence[str]) -> dict[str, str]:
    return reasons_of(table(path, [cells("good-1"), *lines, cells("good-2")]))


@pytest.mark.parametrize("column", COUNTS)
@pytest.mark.parametrize("text", FRACTIONS)
def test_a_count_that_is_no_whole_number(tmp_path: Path, column: str, text: str) -> None:
    found = beside_good(tmp_path / "rows.csv", cells("bad", **{column: text}))
    assert found.keys() == {"bad"}
    assert f'{column} is "{text}": it is no whole number' in found["bad"]


@pytest.mark.parametrize("column", COUNTS)
def test_a_count_out_of_range(tmp_path: Path, column: str) -> None:
    lines = [cells("large", **{column: 99_999_999_999}), cells("below", **{column: -3}), cells("none", **{column: 0})]
    found = beside_good(tmp_path / "rows.csv", *lines)
    least = 0 if column == "input_tokens" else 1
    assert "must be 999999999 or less" in found["large"]
    assert found["below"] == f"{column} is -3: it must be {least} or more"
    assert ("none" in found) == bool(least)


@pytest.mark.parametrize("column", COUNTS)
def test_counts_below_one_are_refused_whatever_the_rows_came_from(column: str) -> None:
    least = 0 if column == "input_tokens" else 1
    for count in (-1, least - 1):
        with pytest.raises(InputError, match=f"{column} is {count}: it must be {least} or more"):
            usable_row(row("a", **{column: count}), load_aliases())


def test_an_empty_prompt_is_one_token() -> None:
    assert usable_row(row("a", input_tokens=0), load_aliases()).axes["context"] == 1


@pytest.mark.parametrize("text", ["", " ", "-", "?", "n/a", "NaN", "unknown", "8(?)", "8?", "8 (?)"])
def test_a_count_that_its_source_does_not_state(tmp_path: Path, text: str) -> None:
    path = table(tmp_path / "rows.csv", [cells("a", tp=text)])
    assert read_runs([path], {}).rows[0].tp is None


@pytest.mark.parametrize("text", ["8", " 8 ", "8.0", "+8", "8e0"])
def test_a_whole_number_however_it_is_written(tmp_path: Path, text: str) -> None:
    assert read_runs([table(tmp_path / "rows.csv", [cells("a", tp=text)])], {}).rows[0].tp == 8


@pytest.mark.parametrize(
    ("text", "told"),
    [("abc", 'value is "abc": it is no number'), ("1.5 ms", "the unit has its own column"), ("", "value is blank"),
     ("1,5", "it is no number"), ("x" * 9999, "..."), ("--", "it is no number")],
)  # fmt: skip
def test_a_value_that_is_no_number(tmp_path: Path, text: str, told: str) -> None:
    found = beside_good(tmp_path / "rows.csv", cells("bad", value=text))
    assert told in found["bad"]
    assert len(found["bad"]) < 200


def test_lines_too_short_or_too_long(tmp_path: Path) -> None:
    short, long = cells("short")[:-3], [*cells("long"), "more"]
    found = beside_good(tmp_path / "rows.csv", short, long, [], ["", " ", ""])
    width = len(ALL)
    assert found["short"].startswith(f"its line has {width - 3} cells and the first line {width}")
    assert found["long"].startswith(f"its line has {width + 1} cells and the first line {width}")
    assert beside_good(tmp_path / "rows.csv", [*cells("blank-more"), "", ""]) == {}


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    found = beside_good(tmp_path / "rows.csv", cells("two lines", model="Llama\n3"), cells("", value="x"), ["alone"])
    path = tmp_path / "rows.csv"
    assert found.keys() == {f"{path}, line 5", "alone"}
    assert found["alone"].startswith("its line has 1 cell and")


def test_a_row_without_an_id_is_used_by_its_line(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv", [cells(""), cells(" ")])
    assert [each.id for each in read_runs([path], {}).rows] == [f"{path}, line 2", f"{path}, line 3"]


def test_of_rows_with_one_id_the_first_is_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    found = beside_good(path, cells("good-1", value=99), cells("bad", value="x"), cells("bad"), cells("good-1"))
    told = "an earlier row has this id: give each its own"
    assert found[f"good-1 ({path}, line 3)"] == found[f"good-1 ({path}, line 6)"] == told
    assert found[f"bad ({path}, line 5)"] == told
    assert len(found) == 4
    other = table(tmp_path / "other.csv", [cells("good-1"), cells("new")])
    both = read_runs([path, other], {})
    assert [each.id for each in both.rows] == ["good-1", "good-2", "new"]
    assert f"good-1 ({other}, line 2)" in both.refused
    assert both.rows[0].value == 10.0


def test_every_reason_of_a_row_is_told(tmp_path: Path) -> None:
    found = beside_good(tmp_path / "rows.csv", cells("bad", value="x", tp="y", pp=0))
    assert all(f"{column} is " in found["bad"] for column in ("value", "tp", "pp"))


def test_a_row_that_is_left_out_says_only_that(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{','.join(REQUIRED)},use\na,m,h,x,y,z,tpot_ms,?,ms,not_decode\n")
    assert read_runs([path], {}).refused == {"a": ("use is not_decode",)}


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("value", ["1.5", "abc"], "no number"),
        ("value", [1.5, None], "blank"),
        ("batch_or_concurrency", [8.0, 8.5], "no whole number"),
        ("batch_or_concurrency", [8, 99_999_999_999], "or less"),
        ("batch_or_concurrency", [8.0, float("inf")], "no whole number"),
        ("output_tokens", [5, 0], "1 or more"),
    ],
)
def test_rows_of_parquet_too(tmp_path: Path, column: str, values: list[Any], told: str) -> None:
    columns = {name: [cells_of(row(each))[name] for each in ("a", "b")] for name in REQUIRED} | {column: values}
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    found = read_runs([tmp_path / "rows.parquet"], {})
    assert [each.id for each in found.rows] == ["a"]
    assert told in " ".join(found.refused["b"])


def _header_only(text: str) -> bytes:
    return text.splitlines()[0].encode()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("value", "speed").encode(), "column value is missing"),
        (lambda text: text.replace("unit", "value").encode(), "column value is there 2 times"),
        (lambda text: text.split("\n", 1)[1].encode(), "format is not known"),
        (lambda text: text.encode("utf-16"), "no UTF-8 text"),
        (_header_only, "no lines"),
    ],
)
def test_faults_of_the_whole_file(tmp_path: Path, change: Callable[[str], bytes], told: str) -> None:
    path = table(tmp_path / "rows.csv", [cells("a"), cells("b", value="x")])
    path.write_bytes(change(path.read_text()))
    with pytest.raises(InputError, match=told):
        read_runs([path], {})


def test_rows_read_for_the_catalogue_must_all_be_right(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_rows(table(tmp_path / "rows.csv", [cells("a", value="x"), cells("b", tp="y"), cells("c")]))
    assert ["row a" in error.value.faults[0], "row b" in error.value.faults[1]] == [True, True]


def test_the_command_uses_the_others(tmp_path: Path, record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = [cells("abc", value="abc"), cells("zero", tp=0), cells("many", n_devices=99_999_999_999), cells("ok")[:4]]
    path = table(tmp_path / "rows.csv", [cells("ok"), *bad])
    assert run(["validate", str(path), "--calibration", str(record), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["id"] for each in found["predictions"]] == ["ok"]
    assert [each["id"] for each in found["refused"]] == ["abc", "zero", "many", f"ok ({path}, line 6)"]
    assert run(["validate", str(path), "--calibration", str(record)]) == 0
    assert "1 row predicted: " in capsys.readouterr().out
    assert run(["validate", str(table(path, bad)), "--calibration", str(record)]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "no row can be used: zero: tp is 0: it must be 1 or more" in err


def test_a_batch_of_which_some_wait_is_extrapolated() -> None:
    found = compared([row("waits", batch_or_concurrency=400, input_tokens=8192, value=50.0), row("fits")])
    because = {each.id: " ".join(each.because) for each in found.predictions}
    assert "of 400 sequences fit at once" in because["waits"]
    assert "fit at once" not in because["fits"]
    waits = next(each for each in found.to_json()["predictions"] if each["id"] == "waits")
    assert waits["extrapolated"]
    assert any(reason.startswith("only ") for reason in waits["extrapolated_because"])
