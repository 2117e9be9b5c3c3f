"""Bad model files: a message after little work, whatever the file holds."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwall.spaces.errors import InputError
from kvwall.spaces.models import load_model, model_names, read_model
from kvwall.spaces.models.load import CATALOGUE, LARGEST_FILE
from tests.counted_work import lines_run

SHAPES = sorted(file for file in CATALOGUE.glob("*.json") if not file.name.endswith("hf_quant_config.json"))


LITTLE = 100_000
"""Lines of Python, a hundred times what refuses a small file; the longest of the catalogue takes five times that."""


@pytest.fixture(autouse=True)
def _catalogue_is_read() -> None:
    """Sources and names are read once a process, which is not the work of the file that is read first."""
    load_model("Qwen/Qwen3-8B")


def refused(path: Path) -> str:
    length = path.stat().st_size if path.is_file() else 0
    with lines_run(LITTLE + 10 * min(length, LARGEST_FILE)), pytest.raises(InputError) as caught:
        load_model(str(path))
    return str(caught.value)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(2**30)  # a gigabyte of zeros that takes no room on disk
    tracemalloc.start()
    assert f"larger than {LARGEST_FILE} bytes" in refused(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * LARGEST_FILE


def test_a_folder_a_pipe_and_a_device(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert "no regular file" in refused(tmp_path)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "no regular file" in refused(pipe)
    assert "no regular file" in refused(Path("/dev/zero"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"model_type": "llama", "hidden_size": 40',
        "[" * 2_000_000,
        '{"a":' * 500_000,
        '{"model_type": "llama", "hidden_size": ' + "9" * 100_000 + "}",
        '{"model_type": "llama", "hidden_size": ' + "[" * 900 + "]" * 900 + "}",
        json.dumps({"model_type": "x" * 100_000}),
    ],
)
def test_text_that_describes_no_model(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    assert len(refused(file)) < 20_000


@pytest.mark.parametrize("file", SHAPES, ids=lambda file: file.stem)
def test_no_truncated_file_loads(file: Path) -> None:
    text = file.read_text(encoding="utf-8").rstrip()
    with pytest.raises(InputError):
        read_model(text[: len(text) * 2 // 3], "tiny", "test")


def _counts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _counts(inner, (*path, key))
        elif type(inner) is int:
            yield (*path, key)


def _with(config: dict[str, Any], path: tuple[str, ...], value: object) -> str:
    changed = json.loads(json.dumps(config))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(changed)


WRONG = st.sampled_from([0, -1, 1, 2, 3, 7, 2**31, 10**30, 1.5, float("nan"), "8", True, None, [], [0], {}, {"a": 1}])


@given(data=st.data(), name=st.sampled_from(SHAPES), value=WRONG)
@settings(max_examples=150, deadline=None)
def test_a_wrong_value_is_refused_or_counted(data: st.DataObject, name: Path, value: object) -> None:
    config = json.loads(name.read_text(encoding="utf-8"))
    path = data.draw(st.sampled_from(sorted(_counts(config))))
    try:
        with lines_run(20 * LITTLE):
            model = read_model(_with(config, path, value), "tiny", "test")
    except InputError:
        return
    assert 0 < model.parameters_active <= model.parameters_total
    assert model.kv_bytes_per_token_growing <= model.kv_bytes_per_token_all_layers


@pytest.mark.parametrize("name", model_names())
def test_zero_layers_are_refused(name: str) -> None:
    config = json.loads((CATALOGUE / f"{name.replace('/', '--', 1)}.json").read_text(encoding="utf-8"))
    holder = config.get("text_config", config)
    key = next(key for key in ("num_hidden_layers", "n_layer", "n_layers") if key in holder)
    holder[key] = 0
    with pytest.raises(InputError, match=f"{key} = 0 must be a whole number from 1"):
        read_model(json.dumps(config), "tiny", "test")


def test_a_list_of_endless_patterns_is_refused() -> None:
    config = json.loads((CATALOGUE / "Qwen--Qwen3-8B.json").read_text(encoding="utf-8"))
    kept = [f"re:.*layer{number}" for number in range(1001)]
    config["quantization_config"] = {"quant_method": "fp8", "modules_to_not_convert": kept}
    with pytest.raises(InputError, match="more than 1000 patterns"):
        read_model(json.dumps(config), "tiny", "test")
