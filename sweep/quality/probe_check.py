"""What a user's own points are worth, measured on published rows; `python -m kvwall.sweep.quality.probe_check`.

Prints one JSON object. `probes`: for each model with rows of query-agnostic eviction and easy retrieval, curves fitted
without any row of the model predict its rows, first as they are, then after one row of the same method: the one whose
kept share is nearest one half, each subtask in turn. `scatter`: what `factors.SCATTER` rounds.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from scipy.optimize import minimize

from kvwall.spaces.quality import QualityCurves, load_quality_curves
from kvwall.sweep.quality.central import CentralFit
from kvwall.sweep.quality.factors import GRID, SCATTER, Scatter, blurred, likelihood, losses_at_factors
from kvwall.sweep.quality.own_points import CurveId, curve_of_row, narrow, refusals
from kvwall.sweep.quality.prediction import predict
from kvwall.sweep.quality.record import record_of
from kvwall.sweep.quality.rows import Row, read_rows
from kvwall.sweep.quality.terms import Floats

FAMILY: Final = "query_agnostic"
TASK: Final = "retrieval_easy"
_NEAREST: Final = 0.5
_SEARCH: Final = {
    "initial_simplex": [[0.4, 0.1, -0.3], [0.9, 0.1, -0.3], [0.4, -0.5, -0.3], [0.4, 0.1, -0.8]],
    "xatol": 0.03, "fatol": 0.3, "maxiter": 90,
}  # fmt: skip


@dataclass(frozen=True)
class Predicted:
    """A row before and after a point of its model and method was known."""

    model: str
    same_subtask: bool
    """Whether the point is of the row's subtask."""
    observed: float
    before: tuple[float, float]
    """Central and upper loss."""
    after: tuple[float, float]


def probed() -> list[Predicted]:
    """Every pair of a point and another row of its model and method, by curves that have not seen the model.

    The spread between sources is the shipped record's, which was set on sources left out.
    """
    rows, excluded = read_rows()
    own = [row for row in rows if _is_asked_for(row)]
    shipped = load_quality_curves()
    found: list[Predicted] = []
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        for model in sorted({row.model for row in own}):
            point = fit.fit(np.array([row.model != model for row in rows]))
            effects, subtasks = fit.effects(point), fit.hierarchy.subtasks
            curves = record_of(rows, excluded, effects, subtasks, shipped.upper, shipped.fitted, shipped.stamp)
            found += probes_of([row for row in own if row.model == model], curves)
    return found


def probes_of(rows: Sequence[Row], curves: QualityCurves) -> list[Predicted]:
    """The same for the rows of one model, by curves that are given."""
    of_subtasks: dict[tuple[CurveId, str], list[Row]] = defaultdict(list)
    for row in rows:
        of_subtasks[curve_of_row(row), row.parts[0].subtask].append(row)
    found = []
    for (curve, subtask), same in of_subtasks.items():
        probe = min(same, key=lambda row: abs(row.kept - _NEAREST))
        others = [row for row in rows if curve_of_row(row) == curve and row.id != probe.id]
        own = narrow([probe], curves).curves
        for before, after in zip(predict(others, curves), predict(others, own), strict=True):
            row = before.row
            pairs = ((each.central, each.upper) for each in (before, after))
            found.append(Predicted(row.model, row.parts[0].subtask == subtask, row.loss, *pairs))
    return found


def _is_asked_for(row: Row) -> bool:
    return row.task == TASK and row.evictor is not None and row.evictor.family == FAMILY and not refusals(row)


def summary(found: Iterable[Predicted]) -> dict[str, float]:
    """Mean errors before and after, how many rows the upper curves cover, and how far above none these lie."""
    some = list(found)
    observed = np.array([each.observed for each in some])
    before, after = (np.array([getattr(each, name) for each in some]) for name in ("before", "after"))
    return {
        "n": len(some),
        "mae_before": float(np.abs(before[:, 0] - observed).mean()),
        "mae_after": float(np.abs(after[:, 0] - observed).mean()),
        "coverage_before": float((before[:, 1] >= observed).mean()),
        "coverage_after": float((after[:, 1] >= observed).mean()),
        "upper_before": float(before[:, 1].mean()),
        "upper_after": float(after[:, 1].mean()),
    }


def by_model(found: Sequence[Predicted]) -> dict[str, dict[str, dict[str, float]]]:
    """Rows of the point's subtask, of others, and both; of all models and of each."""
    which = {"same_subtask": (True,), "other_subtasks": (False,), "all_subtasks": (True, False)}
    names = ("all", *sorted({each.model for each in found}))
    return {
        model: {
            what: summary(some)
            for what, chosen in which.items()
            if (some := [e for e in found if e.same_subtask in chosen and model in ("all", e.model)])
        }
        for model in names
    }


def scatter(curves: QualityCurves) -> dict[str, Scatter]:
    """The scatter of greatest likelihood of published rows, for each key of `SCATTER` that has rows enough."""
    rows = [row for row in read_rows()[0] if not refusals(row)]
    curves_of = [curve_of_row(row) for row in rows]
    losses = losses_at_factors(rows, [curve.remedy for curve in curves_of], curves)
    likelihoods = likelihood(rows, losses, [None] * len(rows))
    found = {}
    for key in [key for key in SCATTER if key != "activation"]:
        groups: dict[tuple[object, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, (row, curve) in enumerate(zip(rows, curves_of, strict=True)):
            if key in (curve.remedy, curve.family):
                groups[curve, row.source, row.model][row.parts[0].subtask].append(place)
        found[key] = likeliest(list(groups.values()), likelihoods)
    return found


def likeliest(groups: Sequence[Mapping[str, Sequence[int]]], likelihoods: Floats) -> Scatter:
    """The scatter of greatest likelihood.

    Args:
        groups: for each curve, source and model, subtask -> places of its points.
        likelihoods: of every point, over the grid.
    """

    def lost(point: Floats) -> float:
        return -_log_likelihood(groups, likelihoods, Scatter(*np.exp(point)))

    best = minimize(lost, np.zeros(3), method="Nelder-Mead", options=_SEARCH).x
    return Scatter(*(float(each) for each in np.exp(best)))


def _log_likelihood(groups: Sequence[Mapping[str, Sequence[int]]], likelihoods: Floats, asked: Scatter) -> float:
    """Of points grouped by subtask, and subtasks by curve, source and model."""
    prior = np.exp(-0.5 * (GRID / asked.between) ** 2)
    subtasks = [places for group in groups for places in group.values()]
    of_points = np.log(blurred(likelihoods[np.concatenate(subtasks)], asked.setting))
    ends = np.cumsum([len(places) for places in subtasks])[:-1]
    of_subtasks = np.array([some.sum(axis=0) for some in np.split(of_points, ends)])
    top = of_subtasks.max(axis=1, keepdims=True)
    shared = np.log(blurred(np.exp(of_subtasks - top), asked.subtask)) + top
    total = 0.0
    for some in np.split(shared, np.cumsum([len(group) for group in groups])[:-1]):
        of_group = some.sum(axis=0)
        total += of_group.max() + np.log(np.average(np.exp(of_group - of_group.max()), weights=prior))
    return float(total)


def main() -> None:
    """Print the measurement; minutes."""
    measured = {key: vars(each) for key, each in scatter(load_quality_curves()).items()}
    found: dict[str, Any] = {"probes": by_model(probed()), "scatter": measured}
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
