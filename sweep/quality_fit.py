"""Fits the quality curves to the rows of published results; `python -m kvwall.sweep.quality_fit` rewrites the record.

Each curve (`quality_curve`) is drawn to a parent where its rows are few and equal to the parent where there are next
to none. The upper curves are set on sources left out of the fit (`quality_held_out`). The same rows and date give the
same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from kvwall.spaces.quality import (
    EVICTORS,
    QUANTIZERS,
    RECORD,
    TASKS,
    Evidence,
    FittedBits,
    FittedEviction,
    QualityCurves,
    load_quality_curves,
)
from kvwall.sweep.quality_curve import FEWEST_ROWS, Floats, bits_hazard, eviction_hazard, fit_bits, fit_eviction
from kvwall.sweep.quality_held_out import CONFIDENCES, Hazard, held_out_margins, upper_curves
from kvwall.sweep.quality_rows import ROWS, Row, read_rows

VERSION = "1"


def fit_quantizer(rows: Sequence[Row], key_share: float) -> dict[str, dict[str, FittedBits]]:
    """Curves by quantizer and task. A less careful family starts from the one before, raised as its perplexity is."""
    shares = (key_share, 1 - key_share)
    nothing = Evidence(0, 0, None)
    families: dict[str, dict[str, FittedBits]] = {}
    for position, family in enumerate(QUANTIZERS):
        own = [row for row in rows if row.family == family]
        accuracy = [row for row in own if row.task != "perplexity"]
        perplexity = fit_bits(_of(own, "perplexity"), shares, FittedBits(0.02, 1.8, 0.0005, nothing), "a generic curve")
        pooled = fit_bits(accuracy, shares, FittedBits(0.01, 1.5, 0.001, nothing), "a generic curve")
        curves = {"perplexity": perplexity}
        for task in TASKS[:-1]:
            parent, name = pooled, f"{family} over all accuracy tasks"
            if task == "retrieval_hard":
                parent, name = curves["retrieval_easy"], f"{family} retrieval_easy"
            if position:
                before = families[QUANTIZERS[position - 1]]
                parent = _raised(before[task], perplexity, before["perplexity"])
                name = f"{QUANTIZERS[position - 1]} {task}, raised as in perplexity"
            curves[task] = fit_bits(_of(own, task), shares, parent, name)
        families[family] = curves
    return families


def _raised(curve: FittedBits, worse: FittedBits, better: FittedBits) -> FittedBits:
    return replace(
        curve,
        scale=curve.scale * max(1.0, worse.scale / better.scale),
        slope=min(4.0, curve.slope + max(0.0, worse.slope - better.slope)),
        floor=curve.floor * max(1.0, worse.floor / better.floor),
    )


def _of(rows: Iterable[Row], task: str) -> list[Row]:
    return [row for row in rows if row.task == task]


def fit_weight(rows: Sequence[Row]) -> dict[str, FittedBits]:
    """Weight curves by task."""
    nothing = Evidence(0, 0, None)
    accuracy = [row for row in rows if row.task != "perplexity"]
    pooled = fit_bits(accuracy, (1.0,), FittedBits(0.01, 1.8, 0.002, nothing), "a generic curve")
    perplexity = fit_bits(_of(rows, "perplexity"), (1.0,), FittedBits(0.03, 1.8, 0.005, nothing), "a generic curve")
    curves = {task: fit_bits(_of(rows, task), (1.0,), pooled, "weights over all accuracy tasks") for task in TASKS[:-1]}
    return curves | {"perplexity": perplexity}


def fit_evictor(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, FittedEviction]]]:
    """Curves by evictor, visible or hidden question, and task.

    A condition without rows is drawn to the family's other condition for the same task, then to the family over
    its ordinary accuracy tasks; hard retrieval without rows to the law of random eviction, loss = 1 - r.
    """
    nothing = Evidence(0, 0, None)
    random = FittedEviction(1.0, 0.0, 1.0, nothing)
    perplexity = fit_eviction(_of(rows, "perplexity"), replace(random, log_half=2.0), "a generic curve")
    families: dict[str, dict[str, dict[str, FittedEviction]]] = {}
    for family in EVICTORS:
        of_family = [row for row in rows if row.family == family]
        families[family] = {}
        for seen in ("hidden", "visible"):
            own = [row for row in of_family if row.seen in (seen, "either")]
            ordinary = [row for row in own or of_family if row.task != "perplexity" and row.task[:9] != "retrieval"]
            pooled = fit_eviction(ordinary, FittedEviction(1.0, 2.0, 0.8, nothing), "a generic curve")
            curves = {}
            for task in TASKS:
                parent, name = pooled, f"{family} {seen} over ordinary accuracy tasks"
                if task == "perplexity":
                    parent, name = perplexity, "perplexity over all evictors"
                elif task[:9] == "retrieval":
                    parent, name = random, "random eviction, 1 - r"
                both = _of(of_family, task)
                if len(both) >= FEWEST_ROWS and task != "perplexity":
                    parent, name = fit_eviction(both, parent, name), f"{family} {task}, question visible or not"
                curves[task] = fit_eviction(_of(own, task), parent, name)
            families[family][seen] = curves
    return families


def fit_key_share(rows: Sequence[Row], slope: float) -> float:
    """Share of the hazard that keys carry at equal bits, from models measured with K and V at different bits.

    Each source and model has a level of its own; only differences within one speak.
    """
    of_model: dict[tuple[str, str], list[Row]] = {}
    for row in _of(rows, "perplexity"):
        if row.family == "structure_aware":
            of_model.setdefault((row.source, row.model), []).append(row)
    groups = [own for own in of_model.values() if len({row.settings[0] - row.settings[1] for row in own}) > 1]
    unit = 0.003

    def residual(point: Floats) -> Floats:
        parts = []
        for own in groups:
            settings = np.array([row.settings for row in own])
            curve = FittedBits(1.0, slope, 1e-6, Evidence(0, 0, None))
            shape = np.log(bits_hazard(settings, (point[0], 1 - point[0]), curve))
            level = np.log(np.maximum([row.loss for row in own], unit / 3)) - shape
            parts.append(level - np.median(level))
        return np.concatenate(parts)

    return float(least_squares(residual, [0.6], bounds=([0.5], [0.95]), loss="soft_l1", f_scale=0.5).x[0])


def fit_quality(path: Path, fitted: str) -> QualityCurves:
    """The record fitted to the rows of a parquet file; `fitted` is the date it carries."""
    rows, excluded = read_rows(path)
    of = {remedy: [row for row in rows if row.remedy == remedy] for remedy in ("quantizer", "evictor", "weight")}
    slope = fit_quantizer(of["quantizer"], 0.65)["structure_aware"]["perplexity"].slope
    key_share = fit_key_share(of["quantizer"], slope)
    held_out = {
        "quantizer": held_out_margins(of["quantizer"], lambda rest: _quantizer_hazard(rest, key_share)),
        "evictor": held_out_margins(of["evictor"], _evictor_hazard),
        "weight": held_out_margins(of["weight"], _weight_hazard),
    }
    return QualityCurves(
        version=VERSION,
        fitted=fitted,
        rows=len(rows),
        sources=len({row.source for row in rows}),
        excluded=excluded,
        smallest_bits=2.0,
        smallest_retention=0.016,
        key_share=key_share,
        confidences=CONFIDENCES,
        quantizer=fit_quantizer(of["quantizer"], key_share),
        evictor=fit_evictor(of["evictor"]),
        weight=fit_weight(of["weight"]),
        held_out={remedy: upper_curves(margins) for remedy, margins in held_out.items()},
    )


def _quantizer_hazard(rows: Sequence[Row], key_share: float) -> Hazard:
    families = fit_quantizer(rows, key_share)

    def hazard(row: Row) -> float | None:
        curve = families[row.family][row.task]
        found = bits_hazard(np.array([row.settings]), (key_share, 1 - key_share), curve)
        return None if curve.evidence.borrowed_from else float(found[0])

    return hazard


def _evictor_hazard(rows: Sequence[Row]) -> Hazard:
    families = fit_evictor(rows)

    def hazard(row: Row) -> float | None:
        if row.family not in families:
            return None
        curve = families[row.family]["hidden" if row.seen == "hidden" else "visible"][row.task]
        return None if curve.evidence.borrowed_from else float(eviction_hazard(np.array([row.settings]), curve)[0])

    return hazard


def _weight_hazard(rows: Sequence[Row]) -> Hazard:
    curves = fit_weight(rows)

    def hazard(row: Row) -> float | None:
        curve = curves[row.task]
        found = bits_hazard(np.array([row.settings]), (1.0,), curve)
        return None if curve.evidence.borrowed_from else float(found[0])

    return hazard


def record_text(record: QualityCurves) -> str:
    """The record as the file holds it: numbers to four significant digits, so that libraries' last bits stay out."""

    def rounded(value: object) -> object:
        if isinstance(value, dict):
            return {key: rounded(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(inner) for inner in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return json.dumps(rounded(asdict(record)), indent=1) + "\n"


def main() -> None:
    """Rewrite the shipped record from the shipped rows; keeps the record's date unless another is given."""
    parser = argparse.ArgumentParser(description="Refit the quality curves and rewrite their record.")
    parser.add_argument("--date", help="date of the fit, YYYY-MM-DD (default: the date of the present record)")
    fitted = parser.parse_args().date or load_quality_curves().fitted
    RECORD.write_text(record_text(fit_quality(ROWS, fitted)), encoding="utf-8")


if __name__ == "__main__":
    main()
