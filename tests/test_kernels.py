"""What kernels reach: the laws by hand, the record refitted from its rows, who borrows from whom, wrong records."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvwall.objectives.kernels import all_reduce_time, attention_time, gemm_time, overlapped
from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.errors import InputError
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.kernel_record import RECORD, EffectTable, load_kernel_record
from kvwall.sweep.calibration.kernels import FittedCells, fit_kernels, fitted_cells, record_text

FOUND = load_kernel_record()
TABLES = {
    f"{kind}.{name}": getattr(getattr(FOUND, kind), name)
    for kind in ("attention", "gemm", "all_reduce", "all_reduce_pcie")
    for name in ("bandwidth", "fixed", "compute")
    if getattr(getattr(FOUND, kind), name) is not None
}


@pytest.fixture(scope="module")
def cells() -> FittedCells:
    return fitted_cells()


def changed(tmp_path: Path, *faults: tuple[tuple[str, ...], Any]) -> Path:
    """The record with entries replaced, in a file of its own."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    for (*place, last), value in faults:
        part = record
        for key in place:
            part = part[key]
        part[last] = value
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def numbers(value: Any) -> list[float]:
    """Every number of a JSON value, in order."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


# --- the laws -----------------------------------------------------------------------------------


def test_the_laws_by_hand() -> None:
    assert overlapped(1.0, 1.0) == pytest.approx(2 ** (1 / 3))
    slow = attention_time(1e9, 1e12, 1e12, 1e15, 1e-5, 1e-3)
    assert slow == pytest.approx(1e-5 + 1e-3 * 3 ** (1 / 3))
    assert gemm_time(3e9, 0.0, 1e12, 1e15, 2e-6) == pytest.approx(3e-3 + 2e-6)
    assert all_reduce_time(1e6, 8.0, 1e12, 3e-6) == pytest.approx(1.75e-6 + 3e-6)


def test_no_kernel_is_faster_than_its_roofline_and_none_slower_than_both_parts() -> None:
    size, work = np.geomspace(1e3, 1e10, 15), np.geomspace(1e6, 1e15, 15)[:, None]
    time: Any = gemm_time(size, work, 3e12, 9e14, 4e-6)
    assert np.all(time >= 4e-6 + np.maximum(size / 3e12, work / 9e14) * (1 - 1e-12))
    assert np.all(time <= 4e-6 + size / 3e12 + work / 9e14)
    assert np.all(np.diff(time, axis=0) >= 0)
    assert np.all(np.diff(time, axis=1) >= 0)


# --- the record ---------------------------------------------------------------------------------


def test_the_record_is_what_its_rows_give(cells: FittedCells) -> None:
    given = record_text(fit_kernels(cells, FOUND.fitted))
    stored, again = json.loads(RECORD.read_text(encoding="utf-8")), json.loads(given)
    assert numbers(again) == pytest.approx(numbers(stored), rel=2e-3, abs=2e-4)  # last digit of another processor
    assert [line.split(":")[0] for line in given.splitlines()] == [
        line.split(":")[0] for line in RECORD.read_text(encoding="utf-8").splitlines()
    ]


def test_fewer_rows_give_another_record(cells: FittedCells) -> None:
    fewer = fit_kernels(FittedCells(cells.attention[5:], cells.gemm, cells.all_reduce), FOUND.fitted)
    assert fewer.attention.bandwidth != fit_kernels(cells, FOUND.fitted).attention.bandwidth


@pytest.mark.parametrize("name", TABLES)
def test_every_number_is_plausible(name: str) -> None:
    table: EffectTable = TABLES[name]
    for cell in table.cell:
        reached = table.reached(*cell.split("/"))
        assert reached.measured
        assert 0.01 < reached.value <= 1 if table.unit == "1" else 1e-7 < reached.value < 1e-4
        assert 0 < reached.sd < 1.2


def test_every_measured_chip_is_known() -> None:
    assert {cell.split("/")[0] for table in TABLES.values() for cell in table.cell} <= set(hardware_names())


def test_every_listed_chip_is_in_the_catalogue() -> None:
    listed = {chip for chips in load_architectures().architecture.values() for chip in chips}
    assert listed <= set(hardware_names())


def test_a_chip_without_rows_borrows_from_its_architecture_and_says_how_little_it_knows() -> None:
    table = FOUND.attention.bandwidth
    relative, stranger = table.reached("h20", "vllm", "kv8"), table.reached("wse-3", "vllm", "kv8")
    measured = table.reached("h200-sxm", "vllm", "kv8")
    assert not relative.measured
    assert measured.sd < relative.sd < stranger.sd
    assert relative.value < table.reached("b300-sxm", "vllm", "kv8").value  # 8-bit KV costs Hopper more
    assert stranger.value == pytest.approx(math.exp(table.mean["kv8"].value + table.engine["vllm"].value))


def test_an_engine_without_rows_borrows_too() -> None:
    table = FOUND.gemm.bandwidth
    unknown, known = table.reached("h100-sxm", "lmdeploy", "w16"), table.reached("h100-sxm", "vllm", "w16")
    assert unknown.value == pytest.approx(known.value, rel=0.15)
    assert unknown.sd > 2 * known.sd


def test_a_share_is_never_more_than_all() -> None:
    table = FOUND.attention.bandwidth
    generous = {**table.mean, "kv16": type(table.mean["kv16"])(1.0, 0.1, 1, ())}
    assert EffectTable(**{**vars(table), "mean": generous}).reached("h100-sxm", "vllm", "kv16").value == 1.0


# --- wrong records ------------------------------------------------------------------------------


def test_a_format_without_rows_is_refused() -> None:
    with pytest.raises(InputError, match='format "kv4" has no measured rows; use one of kv16, kv8'):
        FOUND.attention.bandwidth.reached("h100-sxm", "vllm", "kv4")


def test_a_record_of_the_wrong_types_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    path = changed(
        tmp_path, (("version",), 7), (("gemm", "fixed", "mean", "w16"), "fast"), (("attention", "surprise"), 1)
    )
    with pytest.raises(InputError) as refused:
        load_kernel_record(path)
    assert len(refused.value.faults) == 3
    assert all("regenerate the file" in fault for fault in refused.value.faults)


def test_a_record_of_impossible_numbers_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    effect = {"value": 0.0, "sd": 0.1, "rows": 1, "sources": []}
    path = changed(
        tmp_path,
        (("attention", "bandwidth", "cell", "h100-sxm"), effect),
        (("attention", "fixed", "unit"), "ms"),
        (("gemm", "bandwidth", "spread", "cell"), -1.0),
        (("all_reduce", "fixed", "engine", "nccl", "sd"), 0.0),
    )
    with pytest.raises(InputError) as refused:
        load_kernel_record(path)
    assert len(refused.value.faults) == 4
    assert "a cell is chip/engine/format" in refused.value.faults[0]


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="regenerate the file"):
        load_kernel_record(path)


def test_a_missing_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a record of kernels"):
        load_kernel_record(tmp_path / "none.json")


def test_wrong_architectures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "architectures.toml"
    path.write_text('[architecture]\na = ["l4", "h20"]\nb = ["l4", "h20"]\n', encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_architectures(path)
    assert len(refused.value.faults) == 2
    path.write_text('[architecture]\na = "l4"\n', encoding="utf-8")
    with pytest.raises(InputError, match="architecture"):
        load_architectures(path)
    path.write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match="no TOML file"):
        load_architectures(path)
