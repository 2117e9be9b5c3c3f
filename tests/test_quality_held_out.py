"""Sources left out of the quality curves: the record is of this code, does what is asked of it, and the page is its."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import load_quality_curves
from kvwall.sweep.quality import held_out_record
from kvwall.sweep.quality.held_out import large_sources
from kvwall.sweep.quality.held_out_record import HELD_OUT, HeldOutRow, load_held_out, stamp, stamp_of, write_record
from kvwall.sweep.quality.rows import read_rows
from kvwall.sweep.quality.upper import CONFIDENCES

TASKS = ("aggregate", "retrieval_easy", "retrieval_hard", "reasoning", "code")
FEWEST = 15


@pytest.fixture(scope="module")
def held() -> tuple[HeldOutRow, ...]:
    return load_held_out()


def of_task(held: tuple[HeldOutRow, ...], task: str) -> list[HeldOutRow]:
    return [row for row in held if row.task == task]


def weights(rows: list[HeldOutRow]) -> list[float]:
    """Sources count the same."""
    count = Counter(row.source for row in rows)
    return [1 / count[row.source] / len(count) for row in rows]


def quantile(rows: list[HeldOutRow], level: float) -> float:
    reached = 0.0
    for row, share in sorted(zip(rows, weights(rows), strict=True), key=lambda one: one[0].observed):
        reached += share
        if reached >= level - 1e-12:
            return row.observed
    raise AssertionError(level)


def pinball(rows: list[HeldOutRow], constant: float | None = None, level: float = 0.9) -> float:
    total = 0.0
    for row, share in zip(rows, weights(rows), strict=True):
        over = row.observed - (row.upper[level] if constant is None else constant)
        total += share * (level * over if over > 0 else (level - 1) * over)
    return total


def error(rows: list[HeldOutRow], constant: float | None = None) -> float:
    off = [row.observed - (row.central if constant is None else constant) for row in rows]
    return sum(share * abs(each) for share, each in zip(weights(rows), off, strict=True))


def covered(rows: list[HeldOutRow], level: float = 0.9) -> float:
    return fmean(float(row.observed <= row.upper[level]) for row in rows)


# --- what is asked of the curves ----------------------------------------------------------------


def test_the_record_is_of_these_rows_and_this_code() -> None:
    assert stamp_of() == stamp(), "run: python -m kvwall.sweep.quality.held_out_record"


def test_it_holds_every_row_of_every_large_source(held: tuple[HeldOutRow, ...]) -> None:
    rows, _ = read_rows()
    large = {row.id: row for row in rows if row.source in large_sources(rows)}
    assert {row.id for row in held} == set(large)
    assert len(held) == len(large)
    for row in held:
        assert (row.source, row.task) == (large[row.id].source, large[row.id].task)
        assert row.observed == pytest.approx(large[row.id].loss, abs=1e-6)
        assert tuple(row.upper) == CONFIDENCES


def test_upper_losses_are_above_central_ones_and_rise(held: tuple[HeldOutRow, ...]) -> None:
    for row in held:
        values = (row.central, *row.upper.values())
        assert list(values) == sorted(values), row


def test_the_upper_curve_holds_as_often_as_it_says(held: tuple[HeldOutRow, ...]) -> None:
    accuracy = [row for row in held if row.task != "perplexity"]
    assert 0.85 <= covered(accuracy) <= 0.97
    assert 0.85 <= covered(list(held)) <= 0.97


def test_the_upper_curve_holds_in_every_source(held: tuple[HeldOutRow, ...]) -> None:
    count = Counter(row.source for row in held)
    assert min(count.values()) >= FEWEST
    least = {source: covered([row for row in held if row.source == source]) for source in count}
    assert min(least.values()) >= 0.75, least


@pytest.mark.parametrize("task", [*TASKS, "summarisation", "perplexity"])
def test_the_upper_curve_beats_the_best_constant(held: tuple[HeldOutRow, ...], task: str) -> None:
    rows = of_task(held, task)
    assert pinball(rows) < pinball(rows, quantile(rows, 0.9))


def test_the_central_curve_beats_no_loss_and_the_best_constant(held: tuple[HeldOutRow, ...]) -> None:
    some = {task: of_task(held, task) for task in TASKS}
    better = [
        task for task, rows in some.items() if error(rows) < min(error(rows, 0.0), error(rows, quantile(rows, 0.5)))
    ]
    assert len(better) >= 4, better


# --- the record as a file -----------------------------------------------------------------------


def test_a_record_is_read_as_it_was_written(tmp_path: Path, held: tuple[HeldOutRow, ...]) -> None:
    path = tmp_path / "held_out.parquet"
    some = [replace(held[0], id="A", central=0.1234567), held[1]]
    write_record(some, path)
    assert load_held_out(path) == (replace(some[0], central=0.123457), some[1])
    assert stamp_of(path) == stamp()


def test_a_stamp_of_other_code_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: one character more in a file changes it."""
    before = stamp()
    changed = tmp_path / held_out_record._CODE[0].name
    changed.write_text(held_out_record._CODE[0].read_text() + "\n")
    monkeypatch.setattr(held_out_record, "_CODE", (changed, *held_out_record._CODE[1:]))
    assert stamp() != before == stamp_of()


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="held_out_record` again"):
        load_held_out(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(InputError, match="not a record of rows left out"):
        load_held_out(tmp_path / "text.parquet")


# --- the page -----------------------------------------------------------------------------------


def quality_page() -> Any:
    path = Path(__file__).parent.parent / "docs" / "quality.py"
    spec = importlib.util.spec_from_file_location("quality_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_docs_is_up_to_date(held: tuple[HeldOutRow, ...]) -> None:
    module = quality_page()
    found = module.page(held, load_quality_curves())
    assert found == module.PAGE.read_text(encoding="utf-8"), "run: python docs/quality.py"


def test_the_page_tells_what_the_record_holds(held: tuple[HeldOutRow, ...]) -> None:
    text = quality_page().page(held, load_quality_curves())
    for task in (*TASKS, "perplexity"):
        rows = of_task(held, task)
        middle, high = quantile(rows, 0.5), quantile(rows, 0.9)
        bias = sum(share * (row.central - row.observed) for row, share in zip(rows, weights(rows), strict=True))
        sources = len({row.source for row in rows})
        errors = " | ".join(f"{error(rows, constant):.3f}" for constant in (None, 0.0, middle))
        assert f"| {task} | {len(rows):,} | {sources} | {errors} | {bias:+.3f} |" in text
        upper = " | ".join(f"{pinball(rows, constant):.4f}" for constant in (None, high))
        assert f"| {task} | {upper} | {100 * covered(rows):.0f} % |" in text


def test_the_page_changes_with_the_record(held: tuple[HeldOutRow, ...]) -> None:
    """The comparison can fail: one row that is further off changes the page."""
    module = quality_page()
    other = [replace(held[0], observed=held[0].observed + 0.9), *held[1:]]
    assert module.page(other, load_quality_curves()) != module.page(held, load_quality_curves())


def test_the_record_lies_beside_the_curves() -> None:
    assert HELD_OUT.name == "held_out.parquet"
    assert HELD_OUT.with_name("curves.json").exists()
