"""Rows of kernels: which are kept of a collection, and that the kept ones are sound."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from kvwall.spaces.errors import InputError
from kvwall.sweep.calibration import kernel_import
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.gemm import moved_bytes
from kvwall.sweep.calibration.kernel_rows import FILES, AllReduceRow, AttentionRow, GemmRow, read_kernel_rows


@pytest.mark.parametrize("kind", FILES)
def test_stored_rows_have_names_of_their_own_and_a_source(kind: Any) -> None:
    rows = read_kernel_rows(kind)
    assert len({row.id for row in rows}) == len(rows)
    assert all(chip_of(row.hardware).memory_bandwidth > 0 and "@" in row.source for row in rows)


def test_no_stored_row_is_faster_than_memory() -> None:
    large = [row for row in read_kernel_rows(AttentionRow) if row.kv_bytes > kernel_import.SMALL]
    assert all(row.kv_bytes < row.seconds * chip_of(row.hardware).memory_bandwidth for row in large)
    products = read_kernel_rows(GemmRow)
    assert all(moved_bytes(row) < row.seconds * chip_of(row.hardware).memory_bandwidth for row in products)


def test_a_file_without_the_columns_is_refused_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pa.table({"id": ["a"], "hardware": ["l4"], "engine": ["vllm"], "source": ["s"]}), path)
    with pytest.raises(InputError) as refused:
        read_kernel_rows(AllReduceRow, path)
    assert len(refused.value.faults) == 3
    with pytest.raises(InputError, match="no Parquet file"):
        read_kernel_rows(AllReduceRow, tmp_path / "none.parquet")


ATTENTION: Mapping[str, str] = {
    "id": "a",
    "op": "decode_gqa",
    "batch": "64",
    "context": "4096",
    "heads": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "kv_dtype": "bf16",
    "hardware": "H100-SXM5-80GB",
    "latency_us": "400",
    "framework": "vllm",
    "framework_version": "1",
    "kernel": "fa3",
    "source": "someone/rows@1 file",
}
GEMM: Mapping[str, str] = {
    "id": "g",
    "m": "8",
    "n": "8192",
    "k": "8192",
    "dtype": "bfloat16",
    "hardware": "L40S",
    "latency_us": "200",
    "framework": "vllm",
    "framework_version": "1",
    "kernel": "linear",
    "source": "someone/rows@1 file",
}
REDUCE: Mapping[str, str] = {
    "id": "r",
    "hardware": "B200-SXM-180GB",
    "n_gpus": "8",
    "bytes": "65536",
    "implementation": "vllm 0.24.0 vLLM_custom_graph",
    "latency_us": "8",
    "source": "someone/rows@1 file",
}


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as lines:
        table = csv.DictWriter(lines, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, True),
        ({"batch": "1", "context": "512", "kv_heads": "1"}, True),  # costs nothing but its launch
        ({"batch": "4"}, False),  # fits the cache
        ({"kernel": "flashinfer"}, True),
        ({"kernel": "flashinfer", "hardware": "B200-SXM-180GB"}, False),
        ({"hardware": "MI300X"}, False),
    ],
)
def test_rows_of_attention_are_kept_where_they_speak_about_memory(
    tmp_path: Path, change: dict[str, str], kept: bool
) -> None:
    rows = kernel_import.attention_rows(written(tmp_path / "rows.csv", [{**ATTENTION, **change}]))
    assert len(rows) == kept
    if kept and not change:
        assert rows[0].kv_bytes == 64 * 4096 * 2 * 8 * 128 * 2
        assert rows[0].flop == 4 * 64 * 4096 * 32 * 128


def test_the_latent_is_read_once_and_multiplied_twice(tmp_path: Path) -> None:
    latent = {**ATTENTION, "op": "decode_mla", "kv_dtype": "fp8", "heads": "128", "kv_heads": "1", "head_dim": "576"}
    latent["batch"] = "256"
    (row,) = kernel_import.attention_rows(written(tmp_path / "rows.csv", [latent]))
    assert row.kv_format == "latent8"
    assert row.kv_bytes == 256 * 4096 * 576
    assert row.flop == 2 * 256 * 4096 * 128 * (576 + 512)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, True),
        ({"n": "4096"}, False),  # 67 MB: fits the 96 MiB of the cache
        ({"n": "4096", "hardware": "H100-SXM5-80GB"}, True),
        ({"latency_us": "150"}, False),  # faster than memory
        ({"dtype": "fp8_block", "hardware": "H100-SXM5-80GB"}, False),  # waits for the host
        ({"dtype": "fp8_block", "hardware": "H100-SXM5-80GB", "framework": "sglang"}, True),
    ],
)
def test_products_are_kept_where_they_speak_about_memory(tmp_path: Path, change: dict[str, str], kept: bool) -> None:
    assert len(kernel_import.gemm_rows(written(tmp_path / "rows.csv", [{**GEMM, **change}]))) == kept


def test_all_reduces_are_kept_as_captured_in_a_graph(tmp_path: Path) -> None:
    eager = {**REDUCE, "id": "e", "implementation": "vllm 0.24.0 vLLM_custom_eager"}
    (row,) = kernel_import.all_reduce_rows(written(tmp_path / "rows.csv", [dict(REDUCE), eager]))
    assert (row.id, row.engine, row.devices, row.message_bytes) == ("r", "vllm", 8, 65536)
    assert row.seconds == pytest.approx(8e-6)
