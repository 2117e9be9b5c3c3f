"""Quality curves narrowed by measured points of one's own: the record that follows, and what it says of the points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.quality import RECORD, QualityCurves, load_quality_curves
from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import known
from kvwall.sweep.curve_evidence import Curve, curve_of
from kvwall.sweep.own_point import SOURCE, UNNAMED, read_points, standard_error
from kvwall.sweep.quality.fit import record_text
from kvwall.sweep.quality.own_points import LEVEL, NarrowedCurve, OwnRecord, narrow
from kvwall.sweep.quality.prediction import Prediction, predict
from kvwall.sweep.quality.rows import Named, Row, row_of, unfit
from kvwall.sweep.quality.scores import scores
from kvwall.sweep.quality_results import QualityCells, Refusal, read_results
from kvwall.sweep.single import attempt
from kvwall.sweep.speed_table import counted
from kvwall.sweep.store.atomic import write_atomically
from kvwall.sweep.validate_speed import nothing_usable
from kvwall.sweep.written_file import check_record, holds

CURVE_OPTIONS: Final = ("evictor", "quantizer")
"""Names whose curves take the points of methods that are not known by name."""


_HARDLY: Final = (0.97, 0.05)
"""Share of the band that is left, and logarithm of the factor, of a curve that is as it was."""


@dataclass(frozen=True)
class Point:
    """A point that counts, before and after."""

    before: Prediction
    after: Prediction

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "id": self.after.row.id,
            "observed": self.after.row.loss,
            "before": self.before.central,
            "after": self.after.central,
            "upper_before": self.before.upper,
            "upper_after": self.after.upper,
        }


@dataclass(frozen=True)
class CalibratedCurve:
    """A curve that points have changed."""

    curve: Curve
    found: NarrowedCurve
    points: tuple[Point, ...]

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        own = self.found.curve
        return {
            "curve": self.curve.text,
            "remedy": own.remedy,
            "name": own.name,
            "task": own.task,
            "question_visible": own.visible if own.scores_by_question else None,
            "points": self.found.change.points,
            "factor": math.exp(self.found.change.log_factor),
            "remaining": self.found.change.remaining,
            "at": [point.to_json() for point in self.points],
        }


@dataclass(frozen=True)
class CalibratedQuality:
    """A record, the curves that are new in it, and what its user should know."""

    record: QualityCurves
    curves: tuple[CalibratedCurve, ...]
    refused: Mapping[str, Sequence[str]]
    notices: tuple[str, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All that count."""
        return tuple(point for curve in self.curves for point in curve.points)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "version": self.record.version,
            "used": len(self.points),
            "before": errors_of([each.before for each in self.points]),
            "after": errors_of([each.after for each in self.points]),
            "refused": [{"id": name, "reason": "; ".join(reasons)} for name, reasons in self.refused.items()],
            "curves": [each.to_json() for each in self.curves],
            "notices": list(self.notices),
        }


def errors_of(found: Sequence[Prediction]) -> dict[str, Any]:
    """Mean errors of predictions; perplexity, which has another unit, apart."""

    def scored(some: Sequence[Prediction]) -> dict[str, Any]:
        columns = ([each.row.loss for each in some], [each.central for each in some], [each.upper for each in some])
        return scores(*columns, LEVEL).to_json()

    accuracy, perplexity = ([each for each in found if each.row.log_ratio == is_ratio] for is_ratio in (False, True))
    return scored(accuracy) | {"perplexity": scored(perplexity)}


def calibrate_quality(
    paths: Sequence[Path],
    points: Sequence[str],
    stated: Mapping[str, str],
    start: Path | None = None,
    unnamed: Mapping[str, str] | None = None,
) -> CalibratedQuality:
    """Narrow the shipped curves, or those in `start`, by measured points.

    Args:
        paths: files that `kvwall.sweep.quality_results.read_results` reads.
        points: stated one by one, in the form of `kvwall.sweep.own_point`.
        stated: what the files leave open, by the names of `kvwall.sweep.quality_results.OPTIONS`.
        start: a record of an earlier call.
        unnamed: "evictor" or "quantizer" -> the name whose curve takes points of methods that are not known by name.

    Raises:
        InputError: with every fault of the input; or why no point can be used.
    """
    faults = Faults()
    for remedy, name in (unnamed or {}).items():
        try:
            known(name, load_methods()[remedy].all, remedy)
        except InputError as error:
            faults.absorb(error)
    if not paths and not points:
        faults.add(
            "no points are given: name files of results, or state one, as in "
            '--point "evictor=snapkv,retention=0.5,task=retrieval_easy,baseline=96,score=81,question_visible=false"'
        )
    faults.raise_if_any()
    curves = load_quality_curves(start or RECORD)
    cells, refused = _read(paths, points, stated)
    usable: dict[str, QualityCells] = {}
    for each in cells:
        reason = unfit(each) or ("another row has this id" if each.id in usable else "")
        if reason:
            refused.setdefault(each.id, []).append(reason)
        else:
            usable[each.id] = each
    rows = [_with_names(row_of(each), each, unnamed or {}) for each in usable.values()]
    stated_errors = {name: standard_error(each) for name, each in usable.items()}
    errors = {name: each for name, each in stated_errors.items() if each is not None}
    own = narrow(rows, curves, errors)
    every = refused | {name: list(reasons) for name, reasons in own.refused.items()}
    if not own.narrowed:
        raise nothing_usable(every)
    record = replace(own.curves, version=f"{curves.version} + {_provenance(own, usable, paths)}")
    return CalibratedQuality(record, _curves(own, curves, record), every, tuple(_notices(own, usable, unnamed or {})))


def _read(
    paths: Sequence[Path], points: Sequence[str], stated: Mapping[str, str]
) -> tuple[list[QualityCells], dict[str, list[str]]]:
    faults = Faults()
    rows: list[QualityCells] = []
    refusals: list[Refusal] = []
    of_points = attempt(faults, lambda: read_points(points, stated)) if points else None
    of_files = attempt(faults, lambda: read_results(paths, stated)) if paths else None
    faults.raise_if_any()
    for found, refused in filter(None, (of_points, of_files)):
        rows += found
        refusals += refused
    reasons: dict[str, list[str]] = {}
    for each in refusals:
        reasons.setdefault(each.name, []).extend(each.reasons)
    return rows, reasons


def _with_names(row: Row, cells: QualityCells, unnamed: Mapping[str, str]) -> Row:
    """The row as one of the method asked for, where its own label is not known."""
    for remedy in CURVE_OPTIONS:
        names, name = load_methods()[remedy], unnamed.get(remedy)
        if name and getattr(row, remedy) is not None and not names.method(cells.method, cells.notes):
            family = names.family(name, question_visible=row.visible)
            row = replace(row, **{remedy: Named(family, name)})  # type: ignore[arg-type]
    return row


def _provenance(own: OwnRecord, cells: Mapping[str, QualityCells], paths: Sequence[Path]) -> str:
    """As in `3 points of a.csv and the command line`."""
    sources = [path.name or str(path) for path in paths]
    if any(cells[row.id].source == SOURCE for row in own.used):
        sources.append(SOURCE)
    return f"{counted(len(own.used), 'point')} of {' and '.join(sources)}"


def _curves(own: OwnRecord, before: QualityCurves, after: QualityCurves) -> tuple[CalibratedCurve, ...]:
    found = []
    for each in own.narrowed:
        curve = each.curve
        words = curve_of(after, curve.remedy, curve.name, curve.task, curve.visible)
        pairs = zip(predict(each.rows, before), predict(each.rows, after), strict=True)
        found.append(CalibratedCurve(words, each, tuple(Point(*pair) for pair in pairs)))
    return tuple(found)


def _notices(own: OwnRecord, cells: Mapping[str, QualityCells], unnamed: Mapping[str, str]) -> Iterator[str]:
    """What a user should know of the record."""
    models = sorted({row.model for row in own.used} - {UNNAMED})
    whose = f"{', '.join(models[:3])}{' and others' * (len(models) > 3)}" if models else "the model measured"
    yield f"the record is of {whose}: curves of other models are not in it"
    if len(models) > 1:
        yield "points of several models move a curve to what they have in common: make one record for each"
    for each in own.narrowed:
        words = f"{each.curve.remedy} {each.curve.name}, task {each.curve.task}"
        silent = [row.id for row in each.rows if not cells[row.id].question]
        if silent and each.curve.scores_by_question:
            yield (
                f"{words}: {counted(len(silent), 'point')} without a word on the question, taken as "
                "visible when tokens are scored: state question_visible where it was not"
            )
        labels = sorted({cells[row.id].method for row in each.rows if _is_unknown(cells[row.id], each.curve.remedy)})
        if labels:
            hint = "" if unnamed.get(each.curve.remedy) or each.curve.remedy not in CURVE_OPTIONS else _HINT
            remedy = each.curve.remedy
            yield f"{words}: it takes the points of {', '.join(labels)}, no known name{hint.format(remedy=remedy)}"
        if each.change.remaining > _HARDLY[0] and abs(each.change.log_factor) < _HARDLY[1]:
            yield f"{words}: its points say next to nothing of it: measure where something is lost"
        if each.replaced:
            yield (
                f"{words}: what the record it started from had of it, {counted(each.replaced, 'point')}, counts no "
                "longer, so that nothing counts twice: give all points of a curve in one call"
            )


_HINT: Final = "; name another curve with --{remedy}"


def _is_unknown(cells: QualityCells, remedy: str) -> bool:
    return remedy in CURVE_OPTIONS and not load_methods()[remedy].method(cells.method, cells.notes)


def check_out(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a name that no record can have, or that is of something else, before anything is computed.

    Args:
        path: the record's file.
        inputs: files that are read, which must stay.

    Raises:
        InputError: with every fault.
    """
    check_record(path, inputs, RECORD)
    if path.exists() and not holds(path, {"version", "quantizer", "evictor"}):
        raise InputError(f"--out {path} is there and is no quality record: give another name, or remove it")


def write_curves(record: QualityCurves, path: Path) -> None:
    """Write the record; its name only ever holds a whole one. Raises InputError where it cannot be written."""
    write_atomically(path, record_text(record).encode())
