"""Rows of published results on quality, read into what a prediction needs: settings, names of methods, task, loss.

A row may take several remedies at once. What cannot be fitted is told with its reason; predictions need no loss.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet

from kvwall.spaces.quality_methods import METHODS, READERS, load_methods
from kvwall.spaces.quality_tasks import RULER
from kvwall.spaces.vetoes import load_traits
from kvwall.sweep.quality_results.cells import QualityCells

ROWS: Final = METHODS.with_name("rows.parquet")
FULL: Final = 16.0
"""Bits at which nothing is lost."""
_TIERS: Final = {"retrieval_easy": "easy", "retrieval_hard": "hard", "aggregate": "other"}
"""What the parts of RULER's average are called as subtasks."""
_ONE_STUDY: Final = {
    "kvpress": "NVIDIA/kvpress", "SqueezeAILab/KVQuant": "arXiv:2401.18079", "llama.cpp": "ggml-org/llama.cpp",
}  # fmt: skip
"""Sources that are parts of another: a paper and its repository are one study."""

_SUBFAMILY: Final = {
    "query_aware_score": "query_aware", "query_agnostic_score": "query_agnostic",
}  # fmt: skip
_FALLBACK: Final = {"structure_aware": "query_aware", "naive": "query_agnostic", "read_sparse": "read_sparse"}
"""The evictor family of a row that says no more than the first column of the tables."""
_FLOATS: Final = {"float8": "fp8", "float4": "fp4"}
_WEIGHTS: Final = {"float8": "fp8", "float4": "fp4", "int8_wa": "int8", "w4a4": "structure_aware"}


@dataclass(frozen=True)
class Part:
    """A curve that a row's score is of, with its weight in the score."""

    weight: float
    task: str
    subtask: str


@dataclass(frozen=True)
class Named:
    """A method's name and its family; the name is the family's where no method is known."""

    family: str
    name: str


@dataclass(frozen=True)
class Row:
    """One published number, ready to fit or to predict."""

    id: str
    source: str
    model: str
    task: str
    """The class that it is scored in."""
    parts: tuple[Part, ...]
    loss: float
    """ln(PPL/PPL0) in perplexity, else the relative accuracy loss."""
    key_bits: float = FULL
    value_bits: float = FULL
    kept: float = 1.0
    """Fraction of the tokens that is kept, or read by a reader."""
    context: float | None = None
    """Tokens; None where the row does not state them."""
    weight_bits: float = FULL
    activation_bits: float = FULL
    quantizer: Named | None = None
    evictor: Named | None = None
    visible: bool = True
    weight_quantizer: Named | None = None
    per_channel: bool = False
    """Weights with one scale a channel, not a group."""
    llama_3: bool = False
    k_outliers: bool = False

    @property
    def reads(self) -> bool:
        """Whether tokens are left unread rather than dropped."""
        return self.evictor is not None and self.evictor.family in READERS

    @property
    def log_ratio(self) -> bool:
        """Whether the loss is a perplexity's."""
        return self.task == "perplexity"


@cache
def read_rows(path: Path = ROWS) -> tuple[tuple[Row, ...], dict[str, int]]:
    """The rows of a file that can be fitted, and how many were left out for which reason."""
    kept: list[Row] = []
    excluded: Counter[str] = Counter()
    for cells in read_cells(path):
        reason = unfit(cells)
        if reason:
            excluded[reason] += 1
        else:
            kept.append(row_of(cells))
    return tuple(kept), dict(sorted(excluded.items()))


@cache
def read_cells(path: Path = ROWS) -> tuple[QualityCells, ...]:
    """Every row of a file as its columns."""
    return tuple(QualityCells(**cells) for cells in pyarrow.parquet.read_table(path).to_pylist())


def write_cells(cells: Iterable[QualityCells], path: Path) -> None:
    """Write rows to a file that `read_cells` reads."""
    columns = {field.name: [getattr(each, field.name) for each in cells] for field in fields(QualityCells)}
    pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")


def unfit(cells: QualityCells) -> str:
    """Why a row must not be fitted; "" where it may."""
    return "marked unfit by its collector" if re.search(r"exclude_fit|no baseline", cells.notes) else ""


def row_of(cells: QualityCells) -> Row:
    """The row that the columns stand for."""
    loss = cells.relative_loss
    if cells.task_class == "perplexity":
        loss = float(np.log1p(max(loss, -0.99)))
    quantized = cells.table in ("kv_quant", "kv_combined")
    key_bits, value_bits = _kv_bits(cells) if quantized else (FULL, FULL)
    weight_bits, activation_bits = _weight_bits(cells)
    kept = 1.0 if cells.retention_ratio is None else cells.retention_ratio
    evictor, visible = _evictor(cells) if kept < 1 else (None, True)
    return Row(
        id=cells.id,
        source=source_of(cells),
        model=cells.model,
        task=cells.task_class,
        parts=_parts(cells),
        loss=min(loss, 1.0) if cells.task_class != "perplexity" else loss,
        key_bits=key_bits,
        value_bits=value_bits,
        kept=kept,
        context=cells.context_tokens,
        weight_bits=weight_bits,
        activation_bits=activation_bits,
        quantizer=_quantizer(cells) if quantized else None,
        evictor=evictor,
        visible=visible,
        weight_quantizer=_weight_quantizer(cells) if weight_bits < FULL else None,
        per_channel="per-channel" in cells.method,
        llama_3=_has(cells.model, "llama_3"),
        k_outliers=_has(cells.model, "k_outliers"),
    )


def source_of(cells: QualityCells) -> str:
    """Short name of a row's source: the repository or the paper, without the table. Its rows are not independent."""
    first = re.split(r"[ ,]", cells.source.strip())[0] or "unnamed"
    return _ONE_STUDY.get(first, first)


def _parts(cells: QualityCells) -> tuple[Part, ...]:
    if cells.tier == "average_of_tiers":
        return tuple(Part(weight, task, f"RULER/{_TIERS[task]}") for task, weight in RULER.items())
    needle = cells.task_class == "code" and cells.tier == "hard"
    return (Part(1.0, "retrieval_hard" if needle else cells.task_class, f"{cells.benchmark}/{cells.subtask}"),)


def _kv_bits(cells: QualityCells) -> tuple[float, float]:
    """Payload bits; formats of llama.cpp state theirs with the scales."""
    found = [cells.bits_effective if bits is None else bits for bits in (cells.bits_k, cells.bits_v)]
    key, value = (FULL if bits is None else float(bits) for bits in found)
    if re.match(r"q\d|turbo|f16", cells.method):
        key, value = float(np.floor(key)), float(np.floor(value))
    return min(key, FULL), min(value, FULL)


def _weight_bits(cells: QualityCells) -> tuple[float, float]:
    """Bits of weights and activations; 16 of what the row's baseline has quantized too."""
    stated = re.search(r"weights ([\d.]+) bit, activations (\d+) bit", cells.notes)
    if stated:
        return float(stated[1]), float(stated[2])
    if cells.table != "weight_quant":
        return FULL, FULL
    bits = FULL if cells.bits_effective is None else min(float(cells.bits_effective), FULL)
    text = f"{cells.method} {cells.notes}"
    if re.search(r"W\d+A4|4-bit activations", text):
        return bits, 4.0
    if re.search(r"W\d+A8|FP8 block|MXFP8|FP8 \(attention\)", text):
        return bits, 8.0
    return bits, FULL


def _quantizer(cells: QualityCells) -> Named:
    names = load_methods()["quantizer"]
    label = cells.method.split("+")[-1] if cells.table == "kv_combined" else cells.method
    name = names.method(label, cells.notes)
    stated = _FLOATS.get(cells.family, cells.family)
    if cells.table == "kv_combined" and not name:
        stated = "structure_aware" if "QoQ" in cells.method else "naive_grouped"
    family = names.family(name) if name else stated if stated in names.families else "structure_aware"
    return Named(family, name or family)


def _evictor(cells: QualityCells) -> tuple[Named, bool]:
    names = load_methods()["evictor"]
    label = cells.method.split("+")[0] if cells.table == "kv_combined" else cells.method
    name = names.method(label, cells.notes)
    stated = re.search(r"subfamily=([^;]*)", cells.notes)
    subfamily = _SUBFAMILY.get(stated[1], stated[1]) if stated else ""
    visible = cells.question != "hidden"
    if subfamily in names.families:
        own = [names.family(name, question_visible=seen) for seen in (True, False)] if name else []
        hidden = subfamily in own and subfamily != own[0]
        return Named(subfamily, name if subfamily in own else subfamily), not hidden
    family = names.family(name, question_visible=visible) if name else _FALLBACK.get(cells.family, "query_agnostic")
    return Named(family, name or family), visible


def _weight_quantizer(cells: QualityCells) -> Named:
    names = load_methods()["weight_quantizer"]
    stated = _WEIGHTS.get(cells.family, cells.family)
    family = stated if cells.table == "weight_quant" and stated in names.families else "structure_aware"
    return Named(family, family)


@cache
def _has(model: str, trait: str) -> bool:
    """Whether a published model's label is of a trait's models."""
    return bool(re.search(load_traits()[trait].labels, model, re.IGNORECASE))
