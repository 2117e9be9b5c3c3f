"""Files of evaluation results in the shapes that the programs write, with made-up numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvwall.sweep.quality_results import COLUMNS

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CONFIG = """dataset: {dataset}
data_dir: '{data_dir}'
model: {model}
device: null
press_name: {press}
compression_ratio: {ratio}
key_channel_compression_ratio: {channels}
fraction: {fraction}
max_new_tokens: null
max_context_length: null
query_aware: {query_aware}
needle_depth: null
output_dir: ./results
log_level: INFO
model_kwargs:
  attn_implementation: null
press_init_command: SnapKVPress(compression_ratio=0.5, window_size=64,
  kernel_size=5)
seed: 42
fp8: {fp8}
"""
RULER = {"niah_single_1": {"string_match": 100.0}, "niah_single_3": {"string_match": 98.0}, "vt": {"string_match": 80}}


def write_json(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def kvpress(folder: Path, metrics: object, press: str = "no_press", ratio: float = 0.0, **changed: Any) -> Path:
    """A folder of one run."""
    settings = {
        "dataset": "ruler", "data_dir": "4096", "model": MODEL, "press": press, "ratio": ratio, "channels": "null",
        "fraction": 1.0, "query_aware": "false", "fp8": "false", **changed,
    }  # fmt: skip
    parts = (settings["dataset"], settings["data_dir"], settings["model"].replace("/", "--"), press, f"{ratio:.2f}")
    path = folder / "__".join(filter(None, parts))
    while path.exists():
        path = path / "1"
    write_json(path / "metrics.json", metrics)
    (path / "config.yaml").write_text(CONFIG.format(**settings).replace("''", "null"))
    (path / "predictions.csv").write_text(f"question,predicted_answer,compression_ratio\nq,a,{ratio}\n")
    return path


def harness(path: Path, results: Mapping[str, object], arguments: object = f"pretrained={MODEL}", **more: Any) -> Path:
    """A file of one run of lm-evaluation-harness."""
    tasks = list(results)
    value = {
        "results": results,
        "group_subtasks": {task: [] for task in tasks},
        "configs": {task: {"task": task, "num_fewshot": 5} for task in tasks},
        "versions": dict.fromkeys(tasks, 3.0),
        "n-shot": dict.fromkeys(tasks, 5),
        "higher_is_better": {},
        "n-samples": {task: {"original": 1319, "effective": 1319} for task in tasks},
        "config": {"model": "vllm", "model_args": arguments, "limit": None},
        "git_hash": "abc",
        "model_name": MODEL,
        "chat_template_sha": None,
        **more,
    }
    return write_json(path, value)


ROW = {
    "id": "A1", "method": "our int4", "family": "naive_grouped", "model": "Our-8B", "model_size_b": "8",
    "benchmark": "RULER", "subtask": "niah_single_3", "task_class": "retrieval", "context_tokens": "4096",
    "bits_k": "4", "bits_v": "4", "bits_effective": "4.5", "group_size": "32", "residual_tokens": "128",
    "retention_ratio": "", "baseline": "98", "score": "73.5", "higher_is_better": "1", "relative_loss": "0.25",
    "source": "our lab", "notes": "seed 1",
}  # fmt: skip


def table(path: Path, *rows: Mapping[str, str], columns: tuple[str, ...] = COLUMNS) -> Path:
    """A CSV file of rows that differ from `ROW`."""
    lines = [",".join(columns)]
    lines += [",".join({**ROW, **row}[name] for name in columns) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path
