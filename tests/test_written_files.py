"""What a command writes takes the place of nothing that a user needs: inputs, devices, files of other kinds."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.calibrate_runs import check_out
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.cli import run
from kvwall.sweep.store.atomic import write_atomically
from kvwall.sweep.written_file import check_page
from tests.made_rows import cells_of, row, written
from tests.stand_in_record import stand_in


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return written(tmp_path / "rows.csv", [cells_of(row("a"))])


def other_things(folder: Path, suffix: str) -> list[Path]:
    """A folder, a pipe, and links to a device, to a folder, to itself; all of one suffix."""
    there, pipe, device, loop = (folder / f"{name}{suffix}" for name in ("folder", "pipe", "device", "loop"))
    there.mkdir()
    os.mkfifo(pipe)
    device.symlink_to("/dev/null")
    loop.symlink_to(loop)
    return [there, pipe, device]


def test_no_writer_replaces_what_is_no_file(tmp_path: Path) -> None:
    for each in other_things(tmp_path, ".html"):
        before = each.lstat()
        with pytest.raises(InputError, match="give"):
            write_atomically(each, b"page")
        with pytest.raises(InputError, match="--plot"):
            write_atomically(each, b"page", "--plot")
        with pytest.raises(InputError, match="--map"):
            check_page("--map", each)
        assert each.lstat().st_ino == before.st_ino
    assert not list(tmp_path.glob(".*.part"))
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / ("x" * 300), b"page")


def test_a_page_is_named_as_one(tmp_path: Path) -> None:
    for good in ("page.html", "PAGE.HTM"):
        check_page("--plot", tmp_path / good)
    for bad in ("p.txt", "p", "p.csv", "html"):
        with pytest.raises(InputError, match=r"ends in \.html"):
            check_page("--plot", tmp_path / bad)
    with pytest.raises(InputError, match="there is no folder"):
        check_page("--plot", tmp_path / "no" / "p.html")
    with pytest.raises(InputError, match="name"):
        check_page("--plot", tmp_path / f"{'x' * 300}.html")


def test_a_page_takes_no_inputs_place(tmp_path: Path) -> None:
    source, link = tmp_path / "rows.html", tmp_path / "link.html"
    source.write_text("rows")
    link.symlink_to(source)
    for each in (source, link, tmp_path / ".." / tmp_path.name / "rows.html"):
        with pytest.raises(InputError, match="would overwrite .*rows.html, which is read"):
            check_page("--plot", each, [tmp_path / "nowhere", source])


@pytest.mark.parametrize("target", ["rows.csv", "record.json", "record.parquet", "/dev/full", "p.txt", "."])
def test_validate_keeps_what_is_there(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_record(stand_in(), Path("record.json"))
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert run(["validate", rows.name, "--calibration", "record.json", "--plot", target]) == 2
    caught = capsys.readouterr()
    assert "--plot" in caught.err
    assert "Traceback" not in caught.err
    assert not caught.out
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert Path("/dev/full").is_char_device() or not Path("/dev/full").exists()


def test_remedies_and_export_keep_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("page.html").symlink_to("/dev/null")
    design = ["--model", "Qwen/Qwen3-8B", "--hardware", "h100-sxm", "--context", "8192", "--mode", "ceiling"]
    assert run(["remedies", *design, "--quality-budget", "0.02", "--map", "page.html"]) == 2
    assert "--map page.html is a device" in " ".join(capsys.readouterr().err.split())
    assert run(["export", "nowhere", "--to", "csv", "--out", "page.html", "--force"]) == 2
    assert "--out page.html is a device" in " ".join(capsys.readouterr().err.split())
    assert Path("page.html").is_symlink()


# --- records ------------------------------------------------------------------------------------


def test_a_record_takes_the_place_of_a_record_only(tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    check_out(out)
    write_record(stand_in(), out)
    check_out(out)
    for text in ("{}", "[1]", "not JSON", "", '{"terms": {}}', "[" * 100_000):
        out.write_text(text)
        with pytest.raises(InputError, match="no calibration record"):
            check_out(out)


@pytest.mark.parametrize("name", ["r.json", "r.parquet"])
def test_a_record_takes_no_inputs_place(tmp_path: Path, name: str) -> None:
    write_record(stand_in(), tmp_path / "r.json")  # even where the input looks like a record
    source, link = tmp_path / name, tmp_path / "link"
    link.symlink_to(source)
    for given in (source, link):
        with pytest.raises(InputError, match="would overwrite .*, which is read"):
            check_out(tmp_path / "r.json", [tmp_path / "nowhere.csv", given])


def test_files_beside_a_record_that_are_not_its_own_stay(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    pa.parquet.write_table(pa.table({"value": [1.0]}), tmp_path / "r.parquet")
    with pytest.raises(InputError, match=r"r\.parquet, which is no part of a record"):
        check_out(out)
    (tmp_path / "r.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="no part of a record"):
        check_out(out)


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_record_takes_no_devices_place(tmp_path: Path, suffix: str) -> None:
    for each in other_things(tmp_path, suffix):
        with pytest.raises(InputError, match="give"):
            check_out(each.with_suffix(".json"))
    with pytest.raises(InputError, match=r"ends in \.json"):
        check_out(Path("/dev/full"))


def test_calibrate_keeps_the_rows(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_record(stand_in(), Path("start.json"))
    table = {name: [cells_of(row("a"))[name]] for name in cells_of(row("a"))}
    pa.parquet.write_table(pa.table(table), "x.parquet")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for runs, out in (("x.parquet", "x.json"), ("rows.csv", "rows.csv"), ("start.json", "start.json")):
        assert run(["calibrate", runs, "--calibration", "start.json", "--out", out]) == 2
        assert "which is read" in " ".join(capsys.readouterr().err.split())
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert run(["calibrate", "x.parquet", "--calibration", "start.json", "--out", "mine.json"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Adapted to 1 row; 0 not used." in text
    assert "kvwall evaluate ... --calibration mine.json" in text
    assert run(["calibrate", "x.parquet", "--calibration", "start.json", "--out", "mine.json"]) == 0
