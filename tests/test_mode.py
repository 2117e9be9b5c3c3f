"""Both modes through the whole program: commands, studies, sweeps, searches, pages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kvwall as kv
from kvwall.objectives.register import BANDED, band_of, metric_register
from kvwall.spaces.errors import InputError
from kvwall.spaces.modes import DEFAULT_MODE
from kvwall.sweep.cli import run
from kvwall.sweep.report import write_report
from kvwall.sweep.run import run_sweep
from kvwall.sweep.store import open_results
from kvwall.sweep.study import Study

DESIGN = {"model": "meta-llama/Meta-Llama-3-70B", "hardware": "h100-sxm", "tensor_parallel": 4, "batch": 16,
          "context": 8192, "engine": "vllm"}  # fmt: skip
LINE = [word for name, value in DESIGN.items() for word in (f"--{name.replace('_', '-')}", str(value))]
STUDY = """
[study]
name = "estimates"
mode = "estimate"

[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["h100-sxm", "mi300x"]
engine = ["vllm", "sglang"]
tensor_parallel = [4, 8]
batch = [1, 8, 64]
context = [4096, 32768]
key_bits = [16, 8]
value_bits = "key_bits"

[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["time_per_output_token"]

[constraints]
time_per_output_token_high = { max = "60 ms" }

[sweep]
keep = ["tokens_per_second_per_device", "time_per_output_token", "time_per_output_token_high", "extrapolated", "regime"]
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints."""
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def test_estimates_are_the_default() -> None:
    assert DEFAULT_MODE == "estimate"
    assert kv.evaluate(**DESIGN).mode == "estimate"
    assert Study.from_text(STUDY.replace('mode = "estimate"\n', "")).mode == "estimate"
    assert Study.load("memory-wall").mode == Study.load("paper").mode == "ceiling"


def test_evaluate_in_both_modes(capsys: pytest.CaptureFixture[str]) -> None:
    estimate, ceiling = (kv.evaluate(mode=mode, **DESIGN) for mode in ("estimate", "ceiling"))
    for name in BANDED:
        low, high = (estimate.metrics[bound] for bound in band_of(name))
        assert low < estimate.metrics[name] < high
        assert estimate.evidence[name] == "calibrated"
        assert ceiling.evidence[name] == "derived"
        assert band_of(name)[0] not in ceiling.metrics
    assert set(estimate.metrics) == set(metric_register("aggregate", "estimate"))
    assert estimate.metrics["crossover_context_time"] > ceiling.metrics["crossover_context_bytes"]
    assert ceiling.metrics["crossover_context_time"] is None
    assert estimate.labels["extrapolated"] == "no"
    assert "extrapolated" not in ceiling.labels
    assert estimate.boundaries["overhead"] is not None
    found = json.loads(printed(capsys, "evaluate", *LINE, "--json"))
    assert found["mode"] == "estimate"
    assert found["metrics"]["time_per_output_token_low"] < found["metrics"]["time_per_output_token"]


def test_the_terminal_says_what_a_number_is(capsys: pytest.CaptureFixture[str]) -> None:
    estimate, ceiling = (printed(capsys, "evaluate", *LINE, "--mode", mode) for mode in ("estimate", "ceiling"))
    (line,) = [each for each in estimate.splitlines() if "time_per_output_token" in each]
    assert " ms (" in line
    assert " to " in line
    assert "Estimate, calibrated" in " ".join(estimate.split())
    assert "Ceiling, derived" in " ".join(ceiling.split())
    assert "time_per_output_token_low" not in estimate


def test_flags_say_what_is_extrapolated() -> None:
    report = kv.evaluate(**(DESIGN | {"hardware": "gb300-nvl72", "context": 1_000_000, "key_bits": 3, "batch": 5000}))
    assert report.labels["extrapolated"] == "chip"
    flags = [flag for flag in report.flags if flag.startswith("extrapolated: ")]
    assert [flag.split()[1] for flag in flags] == ["no", "KV", "context", "batch"]
    assert "context 1,000,000 is beyond the longest measured" in flags[2]
    ideal = kv.evaluate(**(DESIGN | {"engine": "ideal"}))
    assert any("mean of vllm, sglang, trtllm" in flag for flag in ideal.flags)


def test_a_chip_of_ones_own_borrows_and_gets_a_wider_band(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[memory_capacity]\nvalue = "80 GB"\nsource = "own"\n[memory_bandwidth]\nvalue = "3.35 TB/s"\nsource = "own"\n'
        '[bf16_flops]\nvalue = "989 TFLOP/s"\nsource = "own"\n'
        '[scale_up_bandwidth]\nvalue = "450 GB/s"\nsource = "own"\n'
    )
    own, known = (kv.evaluate(**(DESIGN | {"hardware": chip})) for chip in (str(path), "h100-sxm"))
    assert own.labels["extrapolated"] == "chip"

    def width(report: kv.DesignReport) -> float:
        low, high = (report.metrics[bound] for bound in band_of("time_per_output_token"))
        return float(np.log(high / low))

    assert width(own) > width(known)
    assert own.metrics["time_per_output_token"] == pytest.approx(known.metrics["time_per_output_token"], rel=0.3)


def test_an_unknown_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("evaluate", "crossover", "remedies"):
        assert run([command, *LINE[:4], "--mode", "celing"]) == 2
        assert "did you mean ceiling" in capsys.readouterr().err
    with pytest.raises(InputError, match="use estimate"):
        kv.crossover(mode="fast", model="paper/llama-3-70b", hardware="paper/h100")


def test_crossover_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    rows = kv.crossover(model=[DESIGN["model"], "mistralai/Mamba-Codestral-7B-v0.1"], hardware="h100-sxm", batch=16)
    dense, state = rows
    assert dense.crossover_context_time > dense.crossover_context_bytes
    assert dense.reason is None
    assert state.crossover_context_time is None
    single = kv.evaluate(model=DESIGN["model"], hardware="h100-sxm", batch=16, context=1)
    assert dense.crossover_context_time == pytest.approx(single.metrics["crossover_context_time"], rel=1e-9)
    ceiling = kv.crossover(mode="ceiling", model=DESIGN["model"], hardware="h100-sxm", batch=16)[0]
    assert ceiling.crossover_context_bytes == dense.crossover_context_bytes
    assert "only an estimate" in str(ceiling.reason)
    out = printed(capsys, "crossover", "--model", str(DESIGN["model"]), "--hardware", "h100-sxm")
    assert "In time: at which attention takes as long" in out


def test_remedies_in_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    base = {name: value for name, value in DESIGN.items() if name != "context"} | {"context": 65_536}
    reports = {mode: kv.remedies(mode=mode, quality_budget=0.02, **base) for mode in ("estimate", "ceiling")}
    speedups = {
        mode: {row.family: row.speedup for row in report.rows if row.after is not None}
        for mode, report in reports.items()
    }
    assert 1 < speedups["estimate"]["quantization"] < speedups["ceiling"]["quantization"]
    found = reports["estimate"].to_json()
    assert found["baseline"]["mode"] == "estimate"
    json.dumps(found, allow_nan=False)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A finished sweep of estimates."""
    study, out = Study.from_text(STUDY), tmp_path_factory.mktemp("out") / "estimates"
    run_sweep(study, out)
    return study, out


def test_a_sweep_of_estimates_holds_what_evaluate_says(swept: tuple[Study, Path]) -> None:
    study, out = swept
    with open_results(out) as grid:
        assert grid.attrs["mode"] == "estimate"
        assert grid["time_per_output_token"].attrs["evidence"] == "calibrated"
        for index in (0, 17, 40, study.space.size - 1):
            chosen = study.space.point(index)
            report = kv.evaluate(**chosen)
            place = dict(zip(study.space.dims, np.unravel_index(index, study.space.shape), strict=True))
            stored = grid.isel(place)
            for name in ("time_per_output_token", "time_per_output_token_high", "tokens_per_second_per_device"):
                assert float(stored[name]) == pytest.approx(report.metrics[name], rel=1e-3), name
            meanings = grid["extrapolated"].attrs["flag_meanings"].split()
            codes = list(grid["extrapolated"].attrs["flag_values"])
            assert meanings[codes.index(int(stored["extrapolated"]))] == report.labels["extrapolated"]


def test_a_band_is_a_constraint_of_sweep_pareto_and_optimize(swept: tuple[Study, Path]) -> None:
    study, out = swept
    front = kv.pareto(out)
    assert front.sizes["point"] > 0
    assert np.all(front["time_per_output_token_high"] <= 0.06 * (1 + 1e-5))
    with open_results(out) as grid:
        slower = (grid["time_per_output_token"] <= 0.06) & (grid["time_per_output_token_high"] > 0.06)
        assert slower.any(), "or the band would not matter"
    best = kv.optimize(study, trials=60).best
    assert best is not None
    assert best["time_per_output_token_high"] <= 0.06 * (1 + 1e-5)
    most = float(front["tokens_per_second_per_device"].max())
    assert best["tokens_per_second_per_device"] == pytest.approx(most, rel=1e-4)


@pytest.mark.slow
def test_the_report_shows_bands_and_says_it_is_an_estimate(swept: tuple[Study, Path]) -> None:
    _, out = swept
    page = write_report(out).read_text(encoding="utf-8")
    assert "Estimates, calibrated against measurement" in page
    assert "Derived ceilings" not in page
    assert " tok/s (" in page


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('mode = "estimate"', 'mode = "ceiling"', '"time_per_output_token_high" is one of estimates'),
        ('mode = "estimate"', 'mode = "ceiling"', '"extrapolated" is one of estimates'),
        ('mode = "estimate"', 'mode = "guess"', "use estimate"),
        ("time_per_output_token_high =", "time_per_output_token_hihg =", "did you mean time_per_output_token_high"),
    ],
)
def test_a_study_names_what_its_mode_has(old: str, new: str, fault: str) -> None:
    with pytest.raises(InputError) as caught:
        Study.from_text(STUDY.replace(old, new))
    assert any(fault in each for each in caught.value.faults)


def test_the_calibration_is_part_of_the_spec_of_estimates_only() -> None:
    estimate, ceiling = Study.from_text(STUDY), Study.load("paper")
    assert "calibration" in estimate.spec()["catalogue"]
    assert "calibration" not in ceiling.spec()["catalogue"]


def test_the_catalogue_lists_the_metrics_of_both_modes(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "catalog", "metrics", "--json"))
    entries = {entry["name"]: entry for entry in (found if isinstance(found, list) else next(iter(found.values())))}
    assert entries["time_per_output_token_high"]["modes"] == ["estimate"]
    assert entries["time_per_output_token"]["evidence"] == "derived"
    assert entries["time_per_output_token"]["evidence_in_estimates"] == "calibrated"
