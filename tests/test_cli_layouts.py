"""The command line on models of every layout: what stops growing, what is flagged, what a bad file gets."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvwall.sweep import single
from kvwall.sweep.cli import run
from tests.ceiling_mode import in_ceiling_mode
from tests.counted_work import lines_run

ROOT = Path(__file__).parent.parent
MAMBA = "mistralai/Mamba-Codestral-7B-v0.1"
SHAPE: dict[str, Any] = {
    "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768,
    "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def reject_constant(text: str) -> float:
    raise AssertionError(f"{text} is no JSON number")


@pytest.fixture
def answer(capsys):
    """Run with --json and parse strictly."""

    def call(*arguments: str, code: int = 0) -> dict[str, Any]:
        ended = run(in_ceiling_mode([*arguments, "--json"]))
        printed = capsys.readouterr()
        assert ended == code, printed.err
        found: dict[str, Any] = json.loads(printed.out, parse_constant=reject_constant)
        return found

    return call


@pytest.fixture
def config(tmp_path):
    """A model file of one's own with these changes."""

    def write(**changes: Any) -> str:
        file = tmp_path / "config.json"
        file.write_text(json.dumps({key: value for key, value in (SHAPE | changes).items() if value != "absent"}))
        return str(file)

    return write


def test_a_recurrent_model_has_no_crossover_and_no_longest_context(answer):
    rows = answer("crossover", "--model", MAMBA, "--hardware", "h100-sxm", "--batch", "1,1000")["rows"]
    assert rows[0]["crossover_context_bytes"] is None
    assert rows[0]["reason"] == "never: only a fixed recurrent state"
    assert rows[1]["crossover_context_bytes"] == 0  # a thousand states are more than the weights
    found = answer("evaluate", "--model", MAMBA, "--hardware", "h100-sxm", "--context", "9000")
    assert found["metrics"]["max_context"] is None
    assert found["reasons"]["max_context"] == "no limit: only a fixed recurrent state"
    assert found["metrics"]["crossover_context_bytes"] is None
    assert found["reasons"]["crossover_context_bytes"] == "never: only a fixed recurrent state"
    assert "crossover never: only a fixed recurrent state" in found["why"]
    assert found["metrics"]["kv_bytes_read"] > 0


def test_windows_everywhere_end_the_growth(answer, config):
    file = config()
    rows = answer("crossover", "--model", file, "--hardware", "h100-sxm", "--batch", "1,64")["rows"]
    assert rows[0]["crossover_context_bytes"] is None
    assert rows[0]["reason"] == f"never: KV of {file} stops growing at its windows"
    assert 0 < rows[1]["crossover_context_bytes"] < 4096  # reached before the windows are full
    found = answer("evaluate", "--model", file, "--hardware", "h100-sxm", "--context", "9000")
    assert found["reasons"]["max_context"] == f"no limit: KV of {file} stops growing at its windows"
    full = answer("crossover", "--model", config(sliding_window=None), "--hardware", "h100-sxm")["rows"][0]
    assert full["crossover_context_bytes"] == pytest.approx(14.2e9 / 131_072, rel=0.01)


def test_flags_of_a_model_are_shown_wherever_it_is_asked_about(answer, config, capsys):
    file = config(model_type="brand_new", sliding_window=None)
    flags = answer("evaluate", "--model", file, "--hardware", "h100-sxm", "--context", "9000")["flags"]
    row = answer("crossover", "--model", file, "--hardware", "h100-sxm")["rows"][0]
    entry = answer("catalog", "models", file)
    for found in (flags, row["flags"], entry["flags"]):
        assert any(flag.startswith("unverified_architecture") for flag in found)
    for command in (("evaluate", "--hardware", "h100-sxm", "--context", "9000", "--model"), ("catalog", "models")):
        run([*command, file])
        assert "unverified_architecture" in capsys.readouterr().out


def test_catalog_entry_lists_every_kind_of_layer(answer):
    found = answer("catalog", "models", "google/gemma-3-27b-it")
    assert [(layer["kind"], layer["layers"], layer["window"]) for layer in found["layers"]] == [
        ("window", 52, 1024), ("full", 10, None),
    ]  # fmt: skip
    assert sum(layer["bytes_per_token"] for layer in found["layers"]) == found["kv_bytes_per_token_all_layers"]
    assert found["layers"][1]["bytes_per_token"] == found["kv_bytes_per_token_growing"] == 81_920
    experts = answer("catalog", "models", "openai/gpt-oss-120b")
    assert experts["parameters_active"] < experts["parameters_total"] / 20
    assert experts["weight_bits_stored"]["experts"] == experts["experts"]["bits"] == pytest.approx(4.25, abs=0.01)
    state = answer("catalog", "models", "nvidia/Nemotron-H-56B-Base-8K")
    assert state["state_bytes_per_sequence"] == sum(each["layers"] * each["state_bytes"] for each in state["layers"])


def test_no_model_of_the_catalogue_is_refused(answer, capsys):
    assert all(entry["supported"] for entry in answer("catalog", "models")["models"])
    run(["catalog", "models"])
    assert "not supported" not in capsys.readouterr().out


BAD = {
    "truncated": '{"model_type": "llama", "hidden_size": 40',
    "deep": "[" * 100_000,
    "wrong types": {"hidden_size": "4096", "num_hidden_layers": [32]},
    "zero layers": {"num_hidden_layers": 0},
    "negative": {"num_attention_heads": -32},
    "heads": {"num_attention_heads": 32, "num_key_value_heads": 5},
    "absurd": {"hidden_size": 10**30},
    "infinite": {"hidden_size": math.inf},
    "missing": {"num_hidden_layers": "absent", "vocab_size": "absent"},
    "unknown block": {"model_type": "brand_new", "ssm_state_of_a_kind": 64, "quux_layers": 3},
}


MOST_LINES = 300_000
"""Lines of Python, a few times what the slowest of these refusals takes."""


@pytest.mark.parametrize("kind", [*BAD, "folder", "gigabyte", "device", "gone"])
def test_a_bad_model_file_is_a_message_at_once(config, tmp_path, capsys, monkeypatch, kind):
    """At once: nothing is evaluated, and what runs is the reading of one option and one file."""
    monkeypatch.delattr(single, "evaluate_step")
    file = Path(config())
    if kind in {"folder", "gone"}:
        file.unlink()
    if kind == "folder":
        file.mkdir()
    elif kind == "gigabyte":
        os.truncate(file, 2**30)  # takes no room on disk
    elif kind == "device":
        file = Path("/dev/zero")
    elif kind != "gone":
        change = BAD[kind]
        file.write_text(change) if isinstance(change, str) else config(**change)
    command = ["evaluate", "--hardware", "h100-sxm", "--context", "100", "--model"]
    run([*command, "no model"])  # imports, and the records of chips and curves, are read once a process
    capsys.readouterr()
    with lines_run(MOST_LINES):
        code = run([*command, str(file)])
    printed = capsys.readouterr()
    assert code == 2
    assert str(file) in printed.err
    assert printed.out == ""
    assert len(printed.err) < 2000


REFUSE = """
import sys
import jax
from kvwall.sweep.cli import run
jax.monitoring.register_event_duration_secs_listener(lambda event, seconds, **more: print("jax:", event))
code = run(sys.argv[1:])
print("modules:", *sys.modules)
sys.exit(code)
"""


def test_the_program_itself_refuses_a_bad_file_before_it_compiles_or_imports_what_results_need(config):
    file = config(num_hidden_layers=0)
    command = [sys.executable, "-c", REFUSE, "evaluate", "--hardware", "h100-sxm", "--context", "9", "--model", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()  # and none of an event of JAX
    assert not {"xarray", "netCDF4", "optuna", "matplotlib", "plotly", "distributed"} & set(line.split())
