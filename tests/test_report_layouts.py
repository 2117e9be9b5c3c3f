"""Results and page of a study over unlike models: KV that stops growing, experts, latents."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvwall.sweep.cli import run
from kvwall.sweep.evaluate import evaluate
from kvwall.sweep.export import export
from kvwall.sweep.report import write_report
from kvwall.sweep.report.best import best_designs
from kvwall.sweep.store import open_front, open_results
from kvwall.sweep.study import Study
from tests.finished_sweeps import swept
from tests.page import Elements, numbers, read, text_of

MAMBA = "mistralai/Mamba-Codestral-7B-v0.1"
SCOUT = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
SPARSE = "deepseek-ai/DeepSeek-V3.2"
LAYOUTS = f"""
[study]
name = "layouts"
mode = "ceiling"
[space]
model = ["{MAMBA}", "{SCOUT}", "{SPARSE}"]
hardware = "h200-sxm"
batch = [1, 16, 128]
context = [4096, 65536, 1048576]
tensor_parallel = 8
[objectives]
maximize = ["tokens_per_second_per_device", "max_context"]
[sweep]
keep = ["tokens_per_second_per_device", "max_context", "crossover_context_bytes"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(LAYOUTS, tmp_path_factory.mktemp("layouts") / "results")


@pytest.fixture(scope="module")
def elements(folder: Path) -> Elements:
    return read(write_report(folder))


def lines_of(elements: Elements, model: str, dash: str) -> dict[int, float]:
    """Batch -> context of the crossover (solid) or capacity (dash) line of a phase map at 16-bit KV."""
    (found,) = (
        trace
        for trace in elements.figures["phase-0"]["data"]
        if trace["type"] == "scatter" and trace["line"]["dash"] == dash
        and trace["meta"]["model"] == model and trace["meta"]["format"] == "16-1"
    )  # fmt: skip
    return dict(zip(map(int, numbers(found["y"])), numbers(found["x"]), strict=True))


@pytest.mark.parametrize("model", [SCOUT, SPARSE])
def test_crossover_lines_are_those_of_evaluate(elements: Elements, model: str) -> None:
    line = lines_of(elements, model, "solid")
    for batch in (1, 16, 128):
        axes: dict[str, Any] = {"model": model, "hardware": "h200-sxm", "tensor_parallel": 8, "batch": batch}
        known = evaluate(mode="ceiling", **axes, context=4096).metrics["crossover_context_bytes"]
        assert known is not None
        shown = line[min(line, key=lambda each: abs(each - batch))]
        assert batch in line
        assert np.isnan(shown) or shown == pytest.approx(known, rel=1e-4)
    assert np.isfinite(list(line.values())).any()


def test_a_model_that_stops_growing_has_no_lines_and_the_page_says_why(elements: Elements) -> None:
    for dash in ("solid", "dash"):
        assert np.isnan(list(lines_of(elements, MAMBA, dash).values())).all()
    said = "Mamba-Codestral-7B-v0.1 has no crossover at some batches: only a fixed recurrent state."
    assert said in text_of(elements)
    assert "Llama-4-Scout-17B-16E-Instruct has no crossover" not in text_of(elements)


def test_every_model_is_on_rooflines_and_speedups(elements: Elements) -> None:
    for kind in ("roofline-0", "speedup-0"):
        drawn = {trace.get("meta", {}).get("model") for trace in elements.figures[kind]["data"]}
        assert {MAMBA, SCOUT, SPARSE} <= drawn


def test_no_limit_is_infinite_in_files_and_null_in_json(folder: Path, tmp_path: Path, capsys: Any) -> None:
    with open_results(folder) as stored:
        mamba = stored["max_context"].sel(model=MAMBA)
        assert np.isinf(mamba.values).all()
        assert np.isfinite(stored["max_context"].sel(model=SPARSE).values).all()
        assert np.isinf(stored["crossover_context_bytes"].sel(model=MAMBA, batch=1).values).all()
    with open_front(folder) as front:
        assert np.isinf(front["max_context"].values).any()
    rows = export(folder, to="csv", what="grid", out=tmp_path / "grid.csv").read_text().splitlines()
    table = list(csv.DictReader(row for row in rows if not row.startswith("#")))
    assert {row["max_context"] for row in table if row["model"] == MAMBA} == {"inf"}
    capsys.readouterr()
    run(["pareto", str(folder), "--json"])
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON number"))
    assert any(row["max_context"] is None for row in printed["front"])


def test_the_best_design_may_be_without_a_limit() -> None:
    study = Study.from_text(LAYOUTS.replace('["tokens_per_second_per_device", "max_context"]', '["max_context"]'))
    found = best_designs(study)
    assert found is not None
    index = found.best_of(MAMBA, "h200-sxm")
    assert index is not None
    assert study.space.point(index)["model"] == MAMBA
    assert found.at(MAMBA, "h200-sxm", 4096) == np.inf
