"""Made-up measured rows, as objects and as tables, and their comparison with a stand-in record."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvwall.spaces.calibration import Calibration
from kvwall.sweep.measured_rows import MeasuredRow
from kvwall.sweep.runs import Runs
from kvwall.sweep.validate_speed import SpeedReport, compare
from tests.stand_in_record import stand_in

COLUMNS = (
    "id", "model", "hardware", "n_devices", "tp", "batch_or_concurrency", "input_tokens", "output_tokens", "metric",
    "value", "unit", "framework", "framework_version", "batch_kind", "weight_precision", "kv_precision",
)  # fmt: skip
UNITS = {"tpot_ms": "ms", "e2e_latency_ms": "ms", "itl_ms": "ms", "output_tokens_per_s_per_gpu": "tok/s/gpu"}
BASE = MeasuredRow(
    id="", model="Llama-3.1-8B", hardware="h100-sxm", n_devices=1, tp=1, pp=None, ep=None, weight_precision="bf16",
    kv_precision="", framework="vLLM", framework_version="0.11.0", batch_or_concurrency=16, batch_kind="static_batch",
    input_tokens=1024, output_tokens=256, metric="tpot_ms", value=10.0, unit="ms", source="made up", notes="",
)  # fmt: skip


def row(name: str, **changes: Any) -> MeasuredRow:
    metric = changes.get("metric", "tpot_ms")
    return replace(BASE, id=name, unit=UNITS.get(metric, "tok/s"), **changes)


def compared(rows: Sequence[MeasuredRow], record: Calibration | None = None, *, collapse: bool = False) -> SpeedReport:
    return compare(Runs(tuple(rows), {}), record or stand_in(), collapse=collapse)


def written(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def cells_of(each: MeasuredRow) -> dict[str, object]:
    return {name: getattr(each, name) for name in COLUMNS}
