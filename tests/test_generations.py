"""Which generation of an engine a measured row belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwall.spaces.axes import ENGINES
from kvwall.spaces.errors import InputError
from kvwall.spaces.generations import generation_of, generation_of_engine, load_generations
from kvwall.spaces.kernel_record import load_kernel_record


@pytest.mark.parametrize(
    ("framework", "version", "generation"),
    [
        ("vLLM", "", "vllm"),
        ("vLLM", "0.6.3.dev116", "vllm-2024"),
        ("vLLM", "v0.7.0", "vllm"),
        ("vLLM", "0.21.1", "vllm"),
        ("vLLM", "2023-11", "vllm-2023"),
        ("vLLM", "2024", "vllm-2024"),
        ("vLLM", "0.1.7", "vllm-2023"),
        ("TensorRT-LLM", "0.9.0", "trtllm-2024"),
        ("TensorRT-LLM", "1.2.0rc6.post2", "trtllm"),
        ("SGLang", "v0.5.12-rocm700-mi30x", "sglang"),
        ("TGI", "sha-11d7af7-rocm", "tgi"),
        ("a new engine", "1.0", "a new engine"),
    ],
)
def test_rows_by_version(framework: str, version: str, generation: str) -> None:
    assert generation_of(framework, version) == generation


def test_every_engine_of_the_axis_has_a_generation_or_is_itself() -> None:
    known = load_generations()
    for engine in ENGINES:
        generation = generation_of_engine(engine)
        assert generation in known or generation == "ideal"


def test_generations_name_measured_kernels_and_engines() -> None:
    measured = set(load_kernel_record().gemm.bandwidth.engine)
    for each in load_generations().values():
        assert not each.kernels or each.kernels in measured
        assert not each.engine or each.engine in ENGINES


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "generations.toml"
    path.write_text('[vllm]\nframe = "vLLM"\n', encoding="utf-8")
    with pytest.raises(InputError) as refused:
        load_generations(path)
    assert len(refused.value.faults) == 2
    path.write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match="no TOML file"):
        load_generations(path)
