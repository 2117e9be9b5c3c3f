"""One quality row: a score of a compressed model beside the score of the same model at 16 bits with its whole cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Question = Literal["", "visible", "hidden"]
"""Whether the question was known when tokens were scored; '' where nothing says so."""


@dataclass(frozen=True)
class QualityCells:
    """The columns of the published quality tables, and what a fit needs beside them."""

    id: str
    method: str
    """The label as its file or its user writes it; what it stands for is decided elsewhere."""
    family: str
    model: str
    model_size_b: float | None
    benchmark: str
    subtask: str
    task_class: str
    """Any of `spaces.quality.TASKS`: retrieval is parted into easy and hard."""
    context_tokens: float | None
    bits_k: float | None
    bits_v: float | None
    bits_effective: float | None
    group_size: float | None
    residual_tokens: float | None
    retention_ratio: float | None
    """Fraction of the tokens that is kept."""
    baseline: float
    score: float
    higher_is_better: bool
    relative_loss: float
    """Fraction of the baseline that is lost; of a perplexity, the fraction by which it rises."""
    source: str
    notes: str
    question: Question = ""
    tier: str = ""
    """`spaces.benchmarks.tier` of the subtask: `average_of_tiers` is predicted by its parts."""
    metric: str = ""
    """What the score is, where the file says it."""
    table: str = ""
    """Any of `TABLES`: what was compressed."""

    def columns(self) -> dict[str, str | float | None]:
        """The row with the columns of the published tables, in their order."""
        return {name: getattr(self, name) for name in COLUMNS} | {"higher_is_better": int(self.higher_is_better)}


COLUMNS: Final = (
    "id", "method", "family", "model", "model_size_b", "benchmark", "subtask", "task_class", "context_tokens",
    "bits_k", "bits_v", "bits_effective", "group_size", "residual_tokens", "retention_ratio", "baseline", "score",
    "higher_is_better", "relative_loss", "source", "notes",
)  # fmt: skip

NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "model_size_b": (1e-3, 1e5),
    "context_tokens": (1, 1e9),
    "bits_k": (1, 32),
    "bits_v": (1, 32),
    "bits_effective": (0.5, 32),
    "group_size": (1, 1e9),
    "residual_tokens": (0, 1e9),
    "retention_ratio": (1e-6, 1),
}
"""Columns that hold numbers beside scores, with the least and the largest that they can be."""

SETTINGS: Final = ("bits_k", "bits_v", "bits_effective", "retention_ratio")
"""Columns that say how much was compressed."""


TABLES: Final = ("kv_quant", "kv_evict", "kv_combined", "weight_quant")
"""The published tables, by what was compressed."""


def table_of(bits: tuple[float | None, float | None], kept: float | None) -> str:
    """The table that a row belongs to, by its K and V bits and its kept tokens; bits of neither are the weights'.

    >>> table_of((4, 4), None), table_of((16, 16), 0.5), table_of((2, 16), 0.5), table_of((None, None), None)
    ('kv_quant', 'kv_evict', 'kv_combined', 'weight_quant')
    """
    quantized = any(each not in (None, 16) for each in bits)
    if kept not in (None, 1):
        return "kv_combined" if quantized else "kv_evict"
    return "kv_quant" if quantized else "weight_quant"


@dataclass(frozen=True)
class Refusal:
    """A result of which no row is made."""

    name: str
    """Its file, and its place in it."""
    reasons: tuple[str, ...]


def relative_loss(baseline: float, score: float, higher_is_better: bool) -> float:
    """(baseline - score)/baseline, or its opposite where lower is better; baseline is not zero.

    >>> relative_loss(80.0, 60.0, True), relative_loss(5.0, 6.0, False)
    (0.25, 0.2)
    """
    return (baseline - score) / baseline if higher_is_better else (score - baseline) / baseline
