"""Fits the quality curves to the published rows; `python -m kvwall.sweep.quality.fit` rewrites the record.

Central curves (`central`) first, then upper ones (`upper`) on hazards of curves that have not seen a row's source.
The same rows and date give the same record to the digits it keeps.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from kvwall.spaces.quality import RECORD, QualityCurves, load_quality_curves
from kvwall.sweep.quality.central import CentralFit
from kvwall.sweep.quality.held_out import blind_hazards, known_rows
from kvwall.sweep.quality.record import record_of, upper_tables
from kvwall.sweep.quality.rows import ROWS, read_rows
from kvwall.sweep.quality.stamp import stamp
from kvwall.sweep.quality.upper import CONFIDENCES, UpperFit

_DIGITS = 4


def fit_quality(path: Path, fitted: str) -> QualityCurves:
    """The record fitted to the rows of a file; `fitted` is the date it carries."""
    rows, excluded = read_rows(path)
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        upper = UpperFit(rows, fit.hierarchy.terms)
        blind = blind_hazards(fit)
        known = known_rows(fit, blind)
        uppers = {confidence: upper.fit(known, blind, confidence) for confidence in CONFIDENCES}
        effects = fit.effects(fit.fit(np.ones(len(rows), bool)))
        return record_of(rows, excluded, effects, fit.hierarchy.subtasks, upper_tables(uppers), fitted, stamp())


def record_text(record: QualityCurves) -> str:
    """The record as the file holds it: numbers to four significant digits, so that libraries' last bits stay out."""

    def rounded(value: object) -> object:
        if isinstance(value, dict):
            return {key: rounded(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [rounded(inner) for inner in value]
        return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value

    return _lines(rounded(asdict(record)), 0) + "\n"


def _lines(value: object, depth: int) -> str:
    """JSON whose innermost tables take one line each."""
    if not isinstance(value, dict) or not value or all(not isinstance(each, dict) for each in value.values()):
        return json.dumps(value)
    if all(not isinstance(leaf, dict) for each in value.values() if isinstance(each, dict) for leaf in each.values()):
        inner = {key: json.dumps(each) for key, each in value.items()}
    else:
        inner = {key: _lines(each, depth + 1) for key, each in value.items()}
    pad = " " * (depth + 1)
    body = ",\n".join(f"{pad}{json.dumps(key)}: {text}" for key, text in inner.items())
    return f"{{\n{body}\n{' ' * depth}}}"


def main() -> None:
    """Rewrite the shipped record from the shipped rows; keeps the record's date unless another is given."""
    parser = argparse.ArgumentParser(description="Refit the quality curves and rewrite their record.")
    parser.add_argument("--date", help="date of the fit, YYYY-MM-DD (default: the date of the present record)")
    fitted = parser.parse_args().date or load_quality_curves().fitted
    RECORD.write_text(record_text(fit_quality(ROWS, fitted)), encoding="utf-8")


if __name__ == "__main__":
    main()
