"""The whole grid in margins: the best value along each axis, and shares of what limits a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray

from kvwall.objectives.tiers import TIERS
from kvwall.spaces.axes import AXES, Value
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section
from kvwall.sweep.report.style import REGIME_COLOURS, TOP, axis, frame, metric_axis, tokens_axis
from kvwall.sweep.report.wording import REGIME_WORDS, SHARES, axis_label, axis_text, metric_label
from kvwall.sweep.study import Study

_SHARED = ("context", "batch")
_LABELS = (("regime", "what limits a step"), ("phase", "phase"))
_BAR = "#3b6ea5"
_FEASIBLE = "#c3d2e2"
_NOT_COUNTED = {"layout": "that cannot be laid out", "unsourced_input": "that lack a figure"}


def marginal_section(choices: Choices) -> Section:
    """The section."""
    title = "Margins of the whole grid"
    summary = choices.results.summary
    if summary is None:
        return Section("margins", title, ("The folder holds no summary.nc, so the margins are not known.",))
    if not choices.study.space.dims:
        return Section("margins", title, ("The study is one design: it has no axis to look along.",))
    best = tuple(_best_plots(choices, summary))
    shares = tuple(_share_plots(choices, summary))
    blocks = [Panel(best, legend=_best_legend(choices))] if best else []
    lead = _lead(choices) if best else "No feasible design has a value of the first objective along any axis."
    if shares:
        words = dict.fromkeys(word for plot in shares for word in plot.figure.layout.meta)
        legend = tuple(LegendEntry(REGIME_COLOURS[word], REGIME_WORDS[word]) for word in words)
        blocks.append(Panel(shares, legend=legend))
    return Section("margins", title, (lead,), tuple(blocks), tuple(_notes(choices)) if shares else ())


def _lead(choices: Choices) -> str:
    objective = choices.study.objectives[0]
    kind = "highest" if objective.sense == "maximize" else "lowest"
    told = f"The {kind} {metric_label(objective.metric)} at each value of an axis, whatever the others are"
    if _constrained(choices):
        told += ": of admissible designs and, paler, of all feasible ones, the study's constraints ignored"
    elif choices.best is None:
        told += (
            ", of any feasible design: one that fits and can be laid out. The study's constraints are ignored here, as "
            "the grid is too large to search again for this page"
        )
    else:
        told += ", of any feasible design: one that fits and can be laid out. The study has no constraints"
    return f"{told}. A flat line: the axis does not limit the best."


def _constrained(choices: Choices) -> bool:
    """Whether the best admissible designs are known and may differ from the best feasible ones."""
    return choices.best is not None and bool(choices.study.constraints)


def _best_legend(choices: Choices) -> tuple[LegendEntry, ...]:
    if not _constrained(choices):
        return ()
    return (
        LegendEntry(_BAR, "best admissible design"),
        LegendEntry(_FEASIBLE, "best feasible design, constraints ignored"),
    )


def _notes(choices: Choices) -> Iterator[str]:
    """What shares count."""
    yield "Shares count every design of the grid once, also those that do not fit in memory."
    for tier in TIERS:
        values = choices.study.space.values(f"placement_{tier}")
        away = sum(float(value) > 0 for value in values)
        if away and len(values) > 1:
            yield (
                f"{away} of the {len(values)} values of placement_{tier} move KV out of device memory: shares say how "
                "the grid is laid out, not how often a deployment would meet a limit."
            )
    left = [(sum(one.statuses.get(name, 0) for one in choices.chip_counts), why) for name, why in _NOT_COUNTED.items()]
    for count, why in left:
        if count:
            yield f"Not counted, as nothing limits a step that cannot be computed: {count:,} designs {why}."


def _best_plots(choices: Choices, summary: xr.Dataset) -> Iterator[Plot]:
    study = choices.study
    objective = study.objectives[0]
    kind = "highest" if objective.sense == "maximize" else "lowest"
    found = {dim: summary.get(f"{objective.metric}_{kind}_by_{dim}") for dim in study.space.dims}
    series = {dim: [("feasible", array.values)] for dim, array in found.items() if array is not None}
    if choices.best is not None and _constrained(choices):
        for dim, values in choices.best.margins.items():
            series.setdefault(dim, []).append(("admissible", values))
    known = {dim: drawn for dim, drawn in series.items() if any(np.isfinite(values).any() for _, values in drawn)}
    finite = [values[np.isfinite(values)] for drawn in known.values() for _, values in drawn]
    every = np.concatenate(finite or [np.ones(1)])
    y = {**metric_axis(study, objective.metric, every.tolist()), "type": "linear", "dtick": None, "rangemode": "tozero"}
    for dim, drawn in sorted(known.items(), key=lambda item: study.space.dims.index(item[0])):
        figure = go.Figure(layout=frame({}, y, showlegend=False, margin={"l": 56, "r": 12, "t": TOP, "b": 44}))
        for what, values in drawn:
            pale = what == "feasible" and _constrained(choices)
            _add_series(figure, study, dim, values, _FEASIBLE if pale else _BAR, what)
        figure.update_layout(barmode="overlay")
        yield Plot(f"margin-{dim}", f"along {axis_label(dim)}", figure, height=250)


def _add_series(
    figure: go.Figure, study: Study, dim: str, values: NDArray[np.floating], colour: str, what: str
) -> None:  # fmt: skip
    own = study.space.values(dim)
    names = [axis_text(dim, value) for value in own]
    shown = [float(value) if np.isfinite(value) else None for value in values]
    hover = f"%{{text}}, best {what}: %{{y:.4~s}}<extra></extra>"
    if _stands_as_words(dim, own):
        figure.add_bar(x=names, y=shown, text=names, textposition="none", marker={"color": colour}, hovertemplate=hover)
        figure.update_xaxes(type="category", title={"text": axis_label(dim)})
        return
    order = np.argsort([float(value) for value in own])
    figure.add_scatter(
        x=[float(own[place]) for place in order], y=[shown[place] for place in order], mode="lines+markers",
        text=[names[place] for place in order], line={"color": colour, "width": 2}, marker={"size": 5},
        hovertemplate=hover, cliponaxis=False,
    )  # fmt: skip
    figure.update_xaxes(_number_axis(dim, own))


def _stands_as_words(dim: str, values: Sequence[Value]) -> bool:
    return AXES[dim].kind in {"name", "flag"} or any(isinstance(value, str) for value in values) or len(values) < 8


def _number_axis(dim: str, values: Sequence[Value]) -> dict[str, object]:
    numbers = [float(value) for value in values]
    if AXES[dim].kind == "int" and min(numbers) > 0 and max(numbers) > 30 * min(numbers):
        return tokens_axis(axis_label(dim), [int(number) for number in numbers])
    return axis(axis_label(dim), tickformat="~%" if dim in SHARES else "~g")


def _share_plots(choices: Choices, summary: xr.Dataset) -> Iterator[Plot]:
    for label, meaning in _LABELS:
        for dim in _SHARED:
            counts = summary.get(f"{label}_count_by_{dim}")
            if counts is None or dim not in choices.study.space.dims:
                continue
            figure = _shares(choices, dim, label, counts)
            yield Plot(f"share-{label}-{dim}", f"{meaning} along {dim}", figure, height=300)


def _shares(choices: Choices, dim: str, label: str, counts: xr.DataArray) -> go.Figure:
    own = [int(value) for value in choices.study.space.values(dim)]
    order = np.argsort(own)
    by_value = counts.transpose(dim, label).values[order].astype(np.float64)
    shares = by_value / np.maximum(by_value.sum(axis=1, keepdims=True), 1)
    words = [str(word) for word in counts[label].values]
    kept = [place for place in range(len(words)) if by_value[:, place].any()]
    figure = go.Figure(
        layout=frame(
            tokens_axis("context (tokens)" if dim == "context" else dim, sorted(own)),
            axis("share of designs", tickformat="~%", range=[0, 1]),
            showlegend=False,
            meta=[words[place] for place in kept],
        )
    )
    for place in kept:
        figure.add_scatter(
            x=[own[k] for k in order], y=shares[:, place].tolist(), stackgroup="all", mode="lines",
            line={"width": 0.5, "color": "#ffffff"}, fillcolor=REGIME_COLOURS[words[place]],
            hovertemplate=f"{REGIME_WORDS[words[place]]}: %{{y:.1%}}<extra></extra>",
        )  # fmt: skip
    return figure
