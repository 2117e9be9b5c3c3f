"""The whole grid in margins: the best value along each axis, and shares of what limits a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from kvwall.spaces.axes import AXES, Value
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section
from kvwall.sweep.report.style import REGIME_COLOURS, TOP, axis, chip_colour, frame, metric_axis, tokens_axis
from kvwall.sweep.report.wording import REGIME_WORDS, axis_label, axis_text, metric_label

_SHARED = ("context", "batch")
_LABELS = (("regime", "what limits a step"), ("phase", "phase"))
_BAR = "#3b6ea5"


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
    objective = choices.study.objectives[0]
    kind = "highest" if objective.sense == "maximize" else "lowest"
    lead = (
        f"First, the {kind} {metric_label(objective.metric)} that any feasible design reaches at each value of an "
        "axis, whatever the others are. Feasible means that it fits and can be laid out; the study's constraints are "
        "not applied here. A flat line: the axis does not limit the best.",
    )
    blocks = [Panel(best)] if best else []
    if not best:
        lead = ("The summary holds no feasible value of the first objective along any axis.",)
    if shares:
        words = dict.fromkeys(word for plot in shares for word in plot.figure.layout.meta)
        legend = tuple(LegendEntry(REGIME_COLOURS[word], REGIME_WORDS[word]) for word in words)
        blocks.append(Panel(shares, legend=legend))
    return Section("margins", title, lead, tuple(blocks), tuple(_notes(summary, bool(shares))))


def _notes(summary: xr.Dataset, shares: bool) -> Iterator[str]:
    if shares:
        yield "Shares count every design of the grid, also those that do not fit."
    if "status_count" in summary:
        counts = dict(zip(map(str, summary["status"].values), map(int, summary["status_count"].values), strict=True))
        unsourced = counts.get("unsourced_input", 0)
        if unsourced:
            yield (
                f"{unsourced:,} designs need a figure that no source states; the shares count them under the resource "
                "whose figure is missing."
            )


def _best_plots(choices: Choices, summary: xr.Dataset) -> Iterator[Plot]:
    study = choices.study
    objective = study.objectives[0]
    kind = "highest" if objective.sense == "maximize" else "lowest"
    found = {dim: summary.get(f"{objective.metric}_{kind}_by_{dim}") for dim in study.space.dims}
    known = {dim: array.values for dim, array in found.items() if array is not None and np.isfinite(array.values).any()}
    every = np.concatenate([values[np.isfinite(values)] for values in known.values()]) if known else np.ones(1)
    y = {**metric_axis(study, objective.metric, every.tolist()), "type": "linear", "dtick": None, "rangemode": "tozero"}
    for dim, values in known.items():
        figure = go.Figure(layout=frame({}, y, showlegend=False, margin={"l": 56, "r": 12, "t": TOP, "b": 44}))
        _add_series(figure, choices, dim, values.tolist())
        yield Plot(f"margin-{dim}", f"along {axis_label(dim)}", figure, height=250)


def _add_series(figure: go.Figure, choices: Choices, dim: str, values: Sequence[float]) -> None:
    own = choices.study.space.values(dim)
    names = [axis_text(dim, value) for value in own]
    shown = [value if np.isfinite(value) else None for value in values]
    hover = "%{text}: %{y:.4~s}<extra></extra>"
    if _stands_as_words(dim, own):
        colours = [chip_colour(choices.study, value) for value in own] if dim == "hardware" else _BAR
        figure.add_bar(
            x=names, y=shown, text=names, textposition="none", marker={"color": colours}, hovertemplate=hover
        )
        figure.update_xaxes(type="category", title={"text": axis_label(dim)})
        return
    order = np.argsort([float(value) for value in own])
    figure.add_scatter(
        x=[float(own[place]) for place in order], y=[shown[place] for place in order], mode="lines+markers",
        text=[names[place] for place in order], line={"color": _BAR, "width": 2}, marker={"size": 5},
        hovertemplate=hover,
    )  # fmt: skip
    figure.update_xaxes(_number_axis(dim, own))


def _stands_as_words(dim: str, values: Sequence[Value]) -> bool:
    return AXES[dim].kind in {"name", "flag"} or any(isinstance(value, str) for value in values) or len(values) < 8


def _number_axis(dim: str, values: Sequence[Value]) -> dict[str, object]:
    numbers = [float(value) for value in values]
    if AXES[dim].kind == "int" and min(numbers) > 0 and max(numbers) > 30 * min(numbers):
        return tokens_axis(axis_label(dim), [int(number) for number in numbers])
    share = dim in {"retention", "placement_host", "utilisation", "outlier_fraction"}
    return axis(axis_label(dim), tickformat="~%" if share else "~g")


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
