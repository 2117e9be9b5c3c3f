"""Observed quality losses against the quality curves: predictions, errors for all and by group, the rows left out.

Accuracy losses and ln-ratios of perplexity are in different units, so no number here is of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.quality import RECORD, QualityCurves, load_quality_curves
from kvwall.spaces.quality_record_columns import check_confidence
from kvwall.sweep.quality.prediction import Prediction, predict
from kvwall.sweep.quality.rows import FULL, Row, read_rows, row_of, unfit
from kvwall.sweep.quality.scores import Scores, scores
from kvwall.sweep.quality_results import QualityCells, Refusal, read_results

ACCURACY: Final = "relative loss of accuracy"
PERPLEXITY: Final = "ln(PPL/PPL0)"
GROUPINGS: Final = (("task",), ("task", "source"), ("source",), ("family",), ("method",), ("model",), ("veto",))
"""Labels of groups; each group is of one unit."""
NO_VETO: Final = "none"


@dataclass(frozen=True)
class Compared:
    """One row and its prediction."""

    cells: QualityCells
    prediction: Prediction
    in_fit: bool
    """Whether the shipped curves were fitted to rows of its source."""

    @property
    def unit(self) -> str:
        """Of its losses."""
        return PERPLEXITY if self.prediction.row.log_ratio else ACCURACY

    @property
    def beyond(self) -> tuple[str, ...]:
        """In which respects it is outside of what was measured."""
        return self.prediction.beyond

    @property
    def unnamed(self) -> bool:
        """Whether one of its methods is not known by name, so that its family's curve speaks for it."""
        row = self.prediction.row
        return any(each is not None and each.name == each.family for each in (row.quantizer, row.evictor))

    @cached_property
    def labels(self) -> dict[str, str]:
        """What it is grouped by."""
        row = self.prediction.row
        return {
            "task": row.task,
            "source": row.source,
            "family": _families(row),
            "method": self.cells.method,
            "model": row.model,
            "veto": self.prediction.vetoed or NO_VETO,
        }

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        found = self.prediction
        return {
            "id": self.cells.id,
            "task": found.row.task,
            "observed": found.row.loss,
            "predicted": found.central,
            "upper": found.upper,
            "unit": self.unit,
            "vetoed": bool(found.vetoed),
            "veto": found.vetoed or None,
            "beyond": list(found.beyond),
            "source": found.row.source,
            "in_fit": self.in_fit,
            "family": self.labels["family"],
            "method": self.cells.method,
            "model": found.row.model,
        }


@dataclass(frozen=True)
class QualityReport:
    """The comparison of all files."""

    compared: tuple[Compared, ...]
    refused: Mapping[str, Sequence[str]]
    """Row id, or file and place -> reasons."""
    curves: QualityCurves
    confidence: float

    @cached_property
    def overall(self) -> Scores:
        """Of all accuracy rows."""
        return self.scores([each for each in self.compared if each.unit == ACCURACY])

    @cached_property
    def perplexity(self) -> Scores:
        """Of all perplexity rows."""
        return self.scores([each for each in self.compared if each.unit == PERPLEXITY])

    @cached_property
    def groups(self) -> list[tuple[dict[str, str], str, Scores]]:
        """Labels, unit and scores of every group, in the order of `GROUPINGS`, most rows first."""
        return [found for by in GROUPINGS for found in self._grouped(by)]

    @property
    def sources(self) -> dict[str, bool]:
        """Source -> whether the curves were fitted to rows of it."""
        return {each.prediction.row.source: each.in_fit for each in self.compared}

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        known = self.sources
        return {
            "confidence": self.confidence,
            "overall": {"unit": ACCURACY} | self.overall.to_json(),
            "perplexity": {"unit": PERPLEXITY} | self.perplexity.to_json(),
            "groups": [{"by": by, "unit": unit} | found.to_json() for by, unit, found in self.groups],
            "refused": [{"id": name, "reason": "; ".join(reasons)} for name, reasons in self.refused.items()],
            "predictions": [each.to_json() for each in self.compared],
            "curves": {
                "version": self.curves.version,
                "fitted": self.curves.fitted,
                "rows": self.curves.rows,
                "sources": self.curves.sources,
                "own_points": sum(each.points for each in self.curves.narrowed.values()),
            },
            "sources": {"n": len(known), "in_fit": sum(known.values())},
        }

    def scores(self, some: Sequence[Compared]) -> Scores:
        """Of rows of one unit, each counting the same."""
        found = [each.prediction for each in some]
        observed, central, upper = ([], [], []) if not found else zip(*map(_numbers, found), strict=True)
        return scores(observed, central, upper, self.confidence)

    def _grouped(self, names: Sequence[str]) -> Iterator[tuple[dict[str, str], str, Scores]]:
        members: dict[tuple[str, tuple[str, ...]], list[Compared]] = {}
        for each in self.compared:
            members.setdefault((each.unit, tuple(each.labels[name] for name in names)), []).append(each)
        for (unit, values), some in sorted(members.items(), key=lambda one: (-len(one[1]), one[0])):
            yield dict(zip(names, values, strict=True)), unit, self.scores(some)


def validate_quality(
    paths: Sequence[Path], stated: Mapping[str, str], curves: Path | None = None, confidence: float = 0.9
) -> QualityReport:
    """Compare the rows of files with the shipped curves, or with others.

    Args:
        paths: files that `kvwall.sweep.quality_results.read_results` reads.
        stated: what they leave open, by the names of `kvwall.sweep.quality_results.OPTIONS`.
        curves: a record of `kvwall calibrate --quality`.
        confidence: of the upper curve.

    Raises:
        InputError: with every fault of the files, for a record that cannot be read, or a confidence beyond its levels.
    """
    record = load_quality_curves(curves or RECORD)
    check_confidence(record, confidence)
    return compare(*read_results(paths, stated), record, confidence)


def compare(
    cells: Sequence[QualityCells], refusals: Sequence[Refusal], curves: QualityCurves, confidence: float
) -> QualityReport:
    """Compare rows with curves; those marked as unfit to be used are refused."""
    refused: dict[str, list[str]] = {}
    for each in refusals:
        refused.setdefault(each.name, []).extend(each.reasons)
    usable: list[tuple[QualityCells, Row]] = []
    for own in cells:
        row = row_of(own)
        reason = unfit(own) or _uncompressed(own, row)
        if reason:
            refused.setdefault(own.id, []).append(reason)
        else:
            usable.append((own, row))
    fitted = {row.source for row in read_rows()[0]}
    found = predict([row for _, row in usable], curves, confidence)
    compared = (Compared(own, each, each.row.source in fitted) for (own, _), each in zip(usable, found, strict=True))
    return QualityReport(tuple(compared), refused, curves, confidence)


def _uncompressed(cells: QualityCells, row: Row) -> str:
    """Why a row is of no curve; "" where it is of one."""
    if row.kept < 1 or min(row.key_bits, row.value_bits, row.weight_bits, row.activation_bits) < FULL:
        return ""
    return f"its table is {cells.table}, but nothing of that kind is compressed: state its bits or its retention"


def _numbers(each: Prediction) -> tuple[float, float, float]:
    return each.row.loss, each.central, each.upper


def _families(row: Row) -> str:
    named = {"evictor": row.evictor, "quantizer": row.quantizer, "weights": row.weight_quantizer}
    some = [f"{remedy} {each.family}" for remedy, each in named.items() if each is not None]
    return " + ".join([*some, *(["activations"] if row.activation_bits < FULL else [])])
