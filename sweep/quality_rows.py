"""Rows of published results on quality: read, sorted by what was measured, and left out where they cannot be fitted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet

from kvwall.spaces.quality import RECORD

ROWS = RECORD.with_name("rows.parquet")

_OUTSIDE = r"subfamily=(head_adaptive|learned|read_sparse|block_retrieval|decode_window|decode_redundancy)"
_REASONS: tuple[tuple[str, str, str], ...] = (
    ("notes", r"exclude_fit|no baseline", "marked unfit by its collector"),
    ("table", r"kv_combined", "two remedies at once"),
    ("notes", r"residual window covers", "prompt shorter than the residual window"),
    ("notes", r"MLA|hybrid|few KV layers|interleaved SWA", "cache is not full attention in every layer"),
    ("notes", r"K outliers", "model with K outliers: no low-bit K at all"),
    ("notes", r"W4A4|4-bit activations", "activations below 8 bits"),
    ("subtask", r"^(vt|Retr\.MultiHop|AA-LCR)$", "neither needle class"),
)
_K_OUTLIERS = r"Qwen2\.5-[37]B|Qwen2-7B|Qwen3-0\.6B"
_HARD = r"niah_single_3|niah_multikey_[23]|kv_retrieval|Retr\.(KV|String|Prefix-Suffix)"
_WITHOUT_QUESTION = (  # methods that score with whatever comes last: without the question, a condition of their family
    (r"(?i)snapkv|pyramid|tova", "query_aware"),
    (r"(?i)h2o|observed_attention", "heavy_hitter"),
)


@dataclass(frozen=True)
class Row:
    """One published number, ready to fit."""

    remedy: str
    family: str
    seen: str
    """visible or hidden (the question, when tokens were scored), or either where the method does not use it."""
    task: str
    settings: tuple[float, ...]
    """(key bits, value bits), (kept fraction,) or (weight bits,)."""
    loss: float
    """ln(PPL/PPL0) in perplexity, else the relative accuracy loss, at most 0.99."""
    source: str
    model: str

    @property
    def curves(self) -> tuple[str, ...]:
        """Names of the curves of its task that the row speaks for."""
        seen = ("hidden", "visible") if self.seen == "either" else (self.seen,)
        return tuple(f"{self.family} {each}".strip() for each in seen) if self.family else ()

    @property
    def hazard(self) -> float:
        """The hazard that the loss stands for."""
        return self.loss if self.task == "perplexity" else -float(np.log1p(-self.loss))


def read_rows(path: Path) -> tuple[list[Row], dict[str, int]]:
    """The rows that can be fitted, and how many were left out for which reason."""
    kept: list[Row] = []
    excluded: Counter[str] = Counter()
    for cells in pyarrow.parquet.read_table(path).to_pylist():
        reason = _reason(cells)
        if reason:
            excluded[reason] += 1
        else:
            kept.append(_row(cells))
    return kept, dict(sorted(excluded.items()))


def _reason(cells: Mapping[str, object]) -> str | None:
    for column, pattern, reason in _REASONS:
        if re.search(pattern, str(cells[column] or "")):
            return reason
    if re.match(_OUTSIDE, str(cells["notes"] or "")) and cells["task_class"] != "perplexity":
        return "method outside the evictor families"  # perplexity has too few rows to part the families at all
    if cells["table"] == "kv_quant":
        if str(cells["family"]).startswith("float"):
            return "number format of its own"
        if re.match(_K_OUTLIERS, str(cells["model"])):
            return "model with K outliers: no low-bit K at all"
    return "naive weight rounding" if cells["table"] == "weight_quant" and cells["family"] == "naive" else None


def _row(cells: Mapping[str, object]) -> Row:
    method, table = str(cells["method"]), str(cells["table"])
    task = str(cells["task_class"])
    if task == "retrieval":
        task = "retrieval_hard" if re.search(_HARD, str(cells["subtask"])) else "retrieval_easy"
    number = {name: float(str(cells[name] or 0)) for name in ("bits_k", "bits_v", "bits_effective", "retention_ratio")}
    remedy, family, seen = "weight", "", ""
    settings: tuple[float, ...] = (number["bits_effective"],)
    if table == "kv_quant":
        remedy, family = "quantizer", str(cells["family"])
        whole = re.match(r"q\d|turbo|f16", method)  # these formats state bits with their scales
        settings = tuple(np.floor(number[name]) if whole else number[name] for name in ("bits_k", "bits_v"))
    elif table == "kv_evict":
        remedy, settings = "evictor", (number["retention_ratio"],)
        family, seen = _evictor(str(cells["notes"]), method)
    loss = float(str(cells["relative_loss"]))
    loss = float(np.log1p(loss)) if task == "perplexity" else min(loss, 0.99)
    source = str(cells["source"])
    return Row(remedy, family, seen, task, settings, loss, re.split(r"[ ,]", source)[0], str(cells["model"]))


def _evictor(notes: str, method: str) -> tuple[str, str]:
    subfamily = notes.removeprefix("subfamily=").split(";")[0]
    if subfamily == "query_agnostic_score":
        for pattern, family in _WITHOUT_QUESTION:
            if re.search(pattern, method):
                return family, "hidden"
        return "query_agnostic", "either"
    if subfamily in ("query_aware_score", "heavy_hitter"):
        return subfamily.removesuffix("_score"), "visible"
    return subfamily, "either"
