"""Keeps the usable rows of a collection of kernel measurements: `python -m kvwall.sweep.calibration.kernel_import DIR`.

What is left out, and why:

- attention with KV between 1 MiB and 256 MB: the caches of the chip take part, in the measurement and not in a model;
- SGLang's flashinfer attention on Blackwell: not the kernel that runs there by default;
- matrices that fit the 96 to 128 MB cache of Ada and of Blackwell for desktops, and products faster than the memory;
- vLLM's block-wise FP8 products: each waits 60 to 550 us for the host, whatever its size, which a graph hides;
- all-reduces launched one by one where the same was captured in a graph, whole-node profiles of 2023, several nodes.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kvwall.spaces.hardware import hardware_names
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.gemm import moved_bytes, weight_bytes
from kvwall.sweep.calibration.kernel_rows import (
    AllReduceRow,
    AttentionRow,
    GemmRow,
    KVSpeedRow,
    write_kernel_rows,
)

HARDWARE: Final[Mapping[str, str]] = {
    "A100-SXM4-80GB": "a100-sxm-80",
    "H100-SXM5-80GB": "h100-sxm",
    "H200-SXM-141GB": "h200-sxm",
    "B200-SXM-180GB": "b200-sxm",
    "GB200": "gb200-nvl72",
    "L40S": "l40s",
    "RTX-PRO-6000-BW-Server": "rtx-pro-6000-server",
    "Arc-Pro-B60": "arc-pro-b60",
}
SMALL: Final = 2**20
"""Bytes of KV up to which a call costs nothing but its launch."""
LARGE: Final = 2.56e8
"""Bytes of KV from which a call speaks about memory bandwidth."""
_FORMATS = {"bfloat16": "w16", "fp16": "w16", "int8_wo": "w8a16", "int4_wo": "w4a16"}
_CACHE: Final[Mapping[str, float]] = {"ada": 96 * 2**20, "blackwell_consumer": 128 * 2**20}
"""Bytes of the second-level cache where rows show hits; on other chips the collector flushes enough."""
_MICRO = 1e-6

Cells = Mapping[str, str]


def _rows(path: Path) -> Iterator[Cells]:
    with path.open(encoding="utf-8", newline="") as lines:
        yield from (cells for cells in csv.DictReader(lines) if cells["hardware"] in HARDWARE)


def attention_rows(path: Path) -> list[AttentionRow]:
    """The usable rows of attention."""
    read = (_attention(cells) for cells in _rows(path))
    return [row for row in read if not SMALL < row.kv_bytes < LARGE and not _unusual(row.hardware, row.kernel)]


def _attention(cells: Cells) -> AttentionRow:
    kind = "latent" if cells["op"] == "decode_mla" else "kv"
    return AttentionRow(
        id=cells["id"],
        hardware=HARDWARE[cells["hardware"]],
        engine=cells["framework"],
        engine_version=cells["framework_version"],
        kernel=cells["kernel"],
        kv_format=kind + {"bf16": "16", "fp8": "8"}[cells["kv_dtype"]],
        batch=int(cells["batch"]),
        context=int(cells["context"]),
        query_heads=int(cells["heads"]),
        kv_heads=int(cells["kv_heads"]),
        head_dim=int(cells["head_dim"]),
        seconds=float(cells["latency_us"]) * _MICRO,
        source=cells["source"],
    )


def _unusual(hardware: str, kernel: str) -> bool:
    return kernel == "flashinfer" and chip_of(hardware).architecture == "blackwell"


def gemm_rows(path: Path) -> list[GemmRow]:
    """The usable rows of matrix products."""
    return [row for row in map(_gemm, _rows(path)) if _reads_memory(row)]


def _gemm(cells: Cells) -> GemmRow:
    profiler = cells["framework"].startswith("vidur")
    return GemmRow(
        id=cells["id"],
        hardware=HARDWARE[cells["hardware"]],
        engine="torch" if profiler else cells["framework"],
        engine_version=cells["framework_version"],
        kernel="matmul" if profiler else cells["kernel"],
        weight_format=_FORMATS.get(cells["dtype"], cells["dtype"]),
        tokens=int(cells["m"]),
        outputs=int(cells["n"]),
        inputs=int(cells["k"]),
        seconds=float(cells["latency_us"]) * _MICRO,
        source=cells["source"],
    )


def _reads_memory(row: GemmRow) -> bool:
    chip = chip_of(row.hardware)
    if row.engine == "vllm" and row.weight_format == "fp8_block":
        return False
    if weight_bytes(row) < _CACHE.get(chip.architecture, 0):
        return False
    return moved_bytes(row) < chip.memory_bandwidth * row.seconds


def all_reduce_rows(path: Path) -> list[AllReduceRow]:
    """The usable rows of all-reduces."""
    found = []
    for cells in _rows(path):
        name = HARDWARE[cells["hardware"]]
        if cells["implementation"].endswith("eager") and name in hardware_names():
            continue
        found.append(
            AllReduceRow(
                id=cells["id"],
                hardware=name,
                engine=cells["implementation"].split()[0].lower(),
                devices=int(cells["n_gpus"]),
                message_bytes=int(cells["bytes"]),
                seconds=float(cells["latency_us"]) * _MICRO,
                source=cells["source"],
            )
        )
    return found


def kv_speed_rows(path: Path) -> list[KVSpeedRow]:
    """Pairs of the same call with 16-bit and with FP8 KV, which follow each other in the file."""
    found = []
    sixteen: Cells | None = None
    for cells in _rows(path):
        if cells["kind"] != "kernel":
            continue
        if cells["kv_precision"] == "bf16":
            sixteen = cells
            continue
        if sixteen is None or sixteen["notes"] != cells["notes"]:
            continue
        shape = {key: value for key, value in re.findall(r"(\w+)=(\S+)", cells["notes"])}
        name = HARDWARE[cells["hardware"]]
        if _unusual(name, shape["kernel"]):
            continue
        found.append(
            KVSpeedRow(
                id=cells["id"],
                hardware=name,
                engine=cells["framework"],
                kernel=shape["kernel"],
                batch=int(cells["batch_or_concurrency"]),
                context=int(cells["input_tokens"]),
                query_heads=int(shape["heads"]),
                kv_heads=int(shape["kv_heads"]),
                head_dim=int(shape["head_dim"]),
                seconds_16=float(sixteen["value"]) * _MICRO,
                seconds_8=float(cells["value"]) * _MICRO,
                source=cells["source"],
            )
        )
    return found


def keep_kernel_rows(folder: Path) -> None:
    """Rewrite the shipped rows from the files of a collection."""
    write_kernel_rows(AttentionRow, attention_rows(folder / "attention_decode_kernel.csv"))
    write_kernel_rows(GemmRow, gemm_rows(folder / "gemm_kernel.csv"))
    write_kernel_rows(AllReduceRow, all_reduce_rows(folder / "allreduce.csv"))
    write_kernel_rows(KVSpeedRow, kv_speed_rows(folder / "kv_quant_speed.csv"))


def main() -> None:
    """Rewrite the shipped rows from a folder of CSV files."""
    parser = argparse.ArgumentParser(description="Keep the usable rows of kernel measurements.")
    parser.add_argument("folder", type=Path, help="folder with the CSV files of the collection")
    keep_kernel_rows(parser.parse_args().folder)


if __name__ == "__main__":
    main()
