"""Fits the quality curves to the rows of published results; `python -m kvwall.sweep.quality_fit` rewrites the record.

Each curve is a robust least-squares fit near the median, drawn to a parent where its rows are few and equal to the
parent where there are none. Rows of one source count together as the square root of their number. The upper curves
are set on sources left out of the fit. The same rows and date give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from scipy.optimize import least_squares

from kvwall.spaces.quality import (
    EVICTORS,
    QUANTIZERS,
    RECORD,
    TASKS,
    Evidence,
    FittedBits,
    FittedEviction,
    HeldOut,
    QualityCurves,
    load_quality_curves,
)

ROWS = RECORD.with_name("rows.parquet")
VERSION = "1"
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Levels at which the upper curves are tabulated."""
FEWEST_ROWS = 6
"""A curve with fewer rows is its parent's."""

Floats = NDArray[np.float64]

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


def bits_hazard(settings: Floats, shares: Sequence[float], curve: FittedBits) -> Floats:
    """Hazard at bits of shape (rows, terms) with the terms' shares; the law of `objectives/quality.py` in float64."""
    missing = np.maximum(16 - settings, 0)
    grown = np.exp(curve.slope * (missing - 12)) - np.exp(-12 * curve.slope)
    total: Floats = grown @ np.asarray(shares) * curve.scale + ((missing / 8) ** 4).mean(axis=1) * curve.floor
    return total


def eviction_hazard(settings: Floats, curve: FittedEviction) -> Floats:
    """Hazard at kept fractions of shape (rows, 1); the law of `objectives/quality.py` in float64."""
    kept = np.minimum(settings[:, 0], 1 - 1e-12)
    overload = np.exp(curve.exponent * (np.log((1 - kept) / kept) - curve.log_half))
    hazard: Floats = np.log1p(overload) - np.log1p((1 - curve.ceiling) * overload)
    return hazard


def fit_bits(rows: Sequence[Row], shares: Sequence[float], parent: FittedBits, parent_name: str) -> FittedBits:
    """One curve over bits. The parent's numbers weigh as much as one row of one source."""
    evidence = _evidence(rows)
    if evidence.rows < FEWEST_ROWS:
        return replace(parent, evidence=replace(evidence, borrowed_from=parent_name))

    def curve(point: Floats) -> FittedBits:
        return FittedBits(float(np.exp(point[0])), float(point[1]), float(np.exp(point[2])), evidence)

    def predict(point: Floats, settings: Floats) -> Floats:
        return bits_hazard(settings, shares, curve(point))

    centre = np.array([np.log(parent.scale), parent.slope, np.log(parent.floor)])
    return curve(_solve(rows, predict, centre, np.array([1.0, 0.4, 1.0]), ((-12, 3), (0.3, 4.0), (-12, -2))))


def fit_eviction(rows: Sequence[Row], parent: FittedEviction, parent_name: str) -> FittedEviction:
    """One eviction curve; the ceiling is 1 wherever the parent's is (retrieval and perplexity)."""
    evidence = _evidence(rows)
    if evidence.rows < FEWEST_ROWS:
        return replace(parent, evidence=replace(evidence, borrowed_from=parent_name))
    free = parent.ceiling < 1

    def curve(point: Floats) -> FittedEviction:
        return FittedEviction(float(point[0]), float(point[1]), float(point[2]) if free else 1.0, evidence)

    def predict(point: Floats, settings: Floats) -> Floats:
        return eviction_hazard(settings, curve(point))

    centre = np.array([parent.exponent, parent.log_half, parent.ceiling if free else 0.98])
    return curve(_solve(rows, predict, centre, np.array([0.5, 1.0, 0.2]), ((1.0, 4.0), (-4.0, 9.0), (0.3, 0.99))))


def _solve(
    rows: Sequence[Row],
    predict: Callable[[Floats, Floats], Floats],
    centre: Floats,
    spread: Floats,
    bounds: Sequence[tuple[float, float]],
) -> Floats:
    log_ratio = rows[0].task == "perplexity"
    settings = np.array([row.settings for row in rows])
    per_source = Counter(row.source for row in rows)
    weight = np.array([per_source[row.source] ** -0.25 for row in rows])  # squared by the cost
    unit = 0.003 if log_ratio else 0.01  # near the reading error: above it residuals are relative, below absolute
    target = np.arcsinh(np.array([_hazard(row) for row in rows]) / unit)

    def residual(point: Floats) -> Floats:
        return np.concatenate(
            [weight * (np.arcsinh(predict(point, settings) / unit) - target), (point - centre) / spread]
        )

    low, high = np.array(bounds, dtype=float).T
    start = np.clip(centre, low + 1e-3, high - 1e-3)
    point: Floats = least_squares(residual, start, bounds=(low, high), loss="soft_l1", f_scale=0.5).x
    return point


def _hazard(row: Row) -> float:
    return row.loss if row.task == "perplexity" else -float(np.log1p(-row.loss))


def _evidence(rows: Sequence[Row]) -> Evidence:
    return Evidence(len(rows), len({row.source for row in rows}), None)


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


@dataclass(frozen=True)
class Margin:
    """How far above its left-out-source curve a row lies: ln(observed hazard / curve), -inf where nothing was lost."""

    task: str
    curves: tuple[str, ...]
    source: str
    value: float


Hazard = Callable[[Row], float | None]
"""Hazard at a row's settings under fitted curves; None where its curve has too few rows and is borrowed."""


def held_out_margins(rows: Sequence[Row], fit: Callable[[Sequence[Row]], Hazard]) -> list[Margin]:
    """Margins of the rows under curves fitted without their source, where another source measured the same curve."""
    margins = []
    for source in sorted({row.source for row in rows}):
        hazard = fit([row for row in rows if row.source != source])
        for row in rows:
            predicted = hazard(row) if row.source == source else None
            if predicted is not None:
                observed = _hazard(row)
                value = float(np.log(observed / predicted)) if observed > 0 else -np.inf
                margins.append(Margin(row.task, row.curves, source, value))
    return margins


def upper_curve(margins: Sequence[Margin], borrowed_from: str | None) -> HeldOut:
    """Shifts that cover each confidence's share of left-out rows when the shift, too, has not seen their source.

    The plain quantile covers less than it says on a new source, so its level is raised until it does not, though
    by no more than half of what is missing to 1: a lone outlier must not set the curve.
    """
    levels = {confidence: _raised_level(margins, confidence) for confidence in CONFIDENCES}
    return HeldOut(
        shifts=tuple(np.maximum.accumulate([_shift(margins, level) for level in levels.values()]).tolist()),
        rows=len(margins),
        sources=len({margin.source for margin in margins}),
        coverage_unraised=_coverage(margins, 0.9),
        coverage=_coverage(margins, levels[0.9]),
        borrowed_from=borrowed_from,
    )


def _raised_level(margins: Sequence[Margin], confidence: float) -> float:
    most = (1 + confidence) / 2
    levels = np.linspace(confidence, most, 11)
    return min((float(level) for level in levels if _coverage(margins, float(level)) >= confidence), default=most)


def _shift(margins: Sequence[Margin], level: float) -> float:
    return max(0.0, float(np.quantile([margin.value for margin in margins], level, method="higher")))


def _coverage(margins: Sequence[Margin], level: float) -> float:
    """Share of rows at or below the shift that the other sources' rows give at this quantile."""
    covered = 0
    for source in {margin.source for margin in margins}:
        shift = _shift([margin for margin in margins if margin.source != source], level)
        covered += sum(margin.value <= shift for margin in margins if margin.source == source)
    return float(covered / len(margins))


def upper_curves(margins: Sequence[Margin]) -> dict[str, HeldOut]:
    """Upper curve per task, and per curve and task; what fewer than three sources measured has the wider group's."""
    pooled = [margin for margin in margins if margin.task != "perplexity"]
    upper = {}
    for task in TASKS:
        own = [margin for margin in margins if margin.task == task]
        upper[task] = upper_curve(own, None) if _enough(own) else upper_curve(pooled, "all accuracy tasks")
        for name in sorted({name for margin in own for name in margin.curves}):
            of_curve = [margin for margin in own if name in margin.curves]
            if _enough(of_curve):
                upper[f"{name} {task}"] = upper_curve(of_curve, None)
    return upper


def _enough(margins: Sequence[Margin]) -> bool:
    return len({margin.source for margin in margins}) >= 3


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
