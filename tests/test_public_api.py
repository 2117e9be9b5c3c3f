"""The Python interface, and the program as a process: what it imports, how fast it answers, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import kvwall as kv
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import COMMANDS, run
from kvwall.sweep.pareto import EXACT
from tests.finished_sweeps import ONE_DESIGN, swept_single

ROOT = Path(__file__).parent.parent
LLAMA = "meta-llama/Meta-Llama-3-70B"
DESIGN = (
    "evaluate",
    "--mode",
    "ceiling",
    "--model",
    LLAMA,
    "--hardware",
    "h100-sxm",
    "--tensor-parallel",
    "8",
    "--context",
    "4096",
)


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvwall.sweep.cli", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_program_answers_help_in_ascii():
    done = program("--help")
    assert done.returncode == 0
    assert "evaluate" in done.stdout
    assert done.stdout.isascii()


def test_help_answers_at_once_for_it_imports_no_model():
    listing = "import sys, kvwall; from kvwall.sweep.cli import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "pydantic", "xarray", "optuna"} & set(done.stdout.splitlines()[-1].split())


def test_help_of_evaluate_names_every_axis(capsys):
    run(["evaluate", "--help"])
    out = capsys.readouterr().out
    for axis in AXES:
        assert f"--{axis.replace('_', '-')} " in out


def test_every_command_is_a_module_with_a_function_of_that_name():
    for name, entry in COMMANDS.items():
        assert entry.module == f"kvwall.sweep.commands.{name}"


def test_report_is_plain_text_of_120_columns_when_piped():
    done = program(*DESIGN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert max(map(len, done.stdout.splitlines())) <= 120
    assert "\x1b" not in done.stdout


def test_a_reader_that_leaves_early_is_no_error():
    command = f"{sys.executable} -m kvwall.sweep.cli catalog hardware | head -1"
    done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_python_evaluate_is_the_command_s_answer(capsys):
    report = kv.evaluate(mode="ceiling", model=LLAMA, hardware="h100-sxm", tensor_parallel=8, context=4096)
    run([*DESIGN, "--json"])
    assert report.to_json() == json.loads(capsys.readouterr().out)


def test_python_crossover_takes_lists():
    rows = kv.crossover(mode="ceiling", model="paper/llama-3-70b", hardware="paper/h100", batch=[1, 32])
    assert [round(row.crossover_context_bytes) for row in rows] == [427_246, 13_351]


@pytest.mark.parametrize(
    "wrong",
    [{"contxt": 1}, {"context": [1, 2]}, {"context": 10**400}, {"context": None}, {"task": 3}, {"mode": None},
     {"confidence": "high"}, {"assume": {"host_link": "1 GB/s"}}, {"model": 3}, {"batch": True}],
)  # fmt: skip
def test_python_evaluate_refuses_with_input_error(wrong):
    with pytest.raises(InputError):
        kv.evaluate(**({"model": LLAMA, "hardware": "h100-sxm", "context": 4096, "mode": "ceiling"} | wrong))


def test_python_pareto_takes_a_folder_and_optimize_a_study(tmp_path):
    study = kv.Study.from_text(ONE_DESIGN)
    front = kv.pareto(swept_single(ONE_DESIGN, tmp_path / "one"))
    assert front.attrs["basis"] == EXACT
    assert front["grid_index"].values.tolist() == [0]
    found = kv.optimize(study, trials=1, exact_optimum=lambda study: None)
    assert found.best["tokens_per_second_per_device"] == pytest.approx(front["tokens_per_second_per_device"].item())


def test_every_name_of_the_package_is_there():
    assert all(callable(getattr(kv, name)) for name in kv.__all__)


def test_the_sweep_folder_and_the_sweep_function_share_one_name():
    import kvwall.sweep.cli

    assert kvwall.sweep.cli.run is run
    assert callable(kv.sweep)


def test_importing_the_package_imports_no_library():
    listing = "import sys, kvwall; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"jax", "numpy", "pydantic", "typer", "xarray"} & set(done.stdout.split())


def test_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="evaluat"):
        _ = kv.evaluat
