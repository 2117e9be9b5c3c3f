"""The best admissible design of each chip at every context: what the whole study comes to, need by need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from kvwall.spaces.axes import Value
from kvwall.sweep.report.best import BestDesigns
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.laws import Computed, nearest_to, study_values
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section, Table
from kvwall.sweep.report.style import chip_colour, frame, metric_axis, tokens_axis
from kvwall.sweep.report.wording import (
    REGIME_WORDS,
    axis_label,
    axis_text,
    design_text,
    listed,
    metric_label,
    metric_value,
    short_name,
    varying,
)

_WANTED_CONTEXTS = (4096, 32_768, 131_072, 524_288)


def context_section(choices: Choices) -> Section:
    """The section."""
    title = "The best design at every context"
    best, study = choices.best, choices.study
    first = metric_label(choices.results.first)
    if best is None:
        reason = f"The grid has {study.space.size:,} points, too many to search again for this page."
        return Section("contexts", title, (f"{reason} The front says what is best overall.",))
    if not (best.index >= 0).any():
        return Section("contexts", title, ("No design is admissible at any context.",))
    lead = (
        f"Context is a need, not a remedy: most objectives favour the shortest. So this is the exact best {first} "
        "among admissible designs at each context, per chip, with every other axis free.",
    )
    blocks: list[Panel | Table] = []
    if len(best.values["context"]) > 1:
        legend = tuple(
            LegendEntry(chip_colour(study, chip), short_name(str(chip)), "line", "chip", str(chip))
            for chip in choices.chips
        )
        plot = Plot("contexts", f"best {first} against context", _figure(choices, best), height=420)
        blocks.append(Panel((plot,), choices.model_selector(), legend, wide=True))
    blocks += [_table(choices, best, model) for model in choices.models]
    missing = [*_without(choices, best)]
    return Section("contexts", title, lead, tuple(blocks), (*missing, *choices.cut))


def _figure(choices: Choices, best: BestDesigns) -> go.Figure:
    study = choices.study
    contexts = sorted(int(value) for value in best.values["context"])
    shown = best.value[np.isfinite(best.value)]
    figure = go.Figure(
        layout=frame(
            tokens_axis("context (tokens)", contexts),
            metric_axis(study, choices.results.first, shown.tolist()),
            showlegend=False,
            hovermode="closest",
        )
    )
    for model in choices.models:
        for chip in choices.chips:
            rows = [*_rows(choices, best, model, chip, contexts)]
            figure.add_scatter(
                x=contexts, y=[value for value, _ in rows], mode="lines+markers" if len(contexts) < 12 else "lines",
                line={"color": chip_colour(study, chip), "width": 2.5}, connectgaps=False,
                text=[text for _, text in rows], hovertemplate="%{text}<extra></extra>",
                meta={"model": str(model), "chip": str(chip)},
            )  # fmt: skip
    return figure


def _rows(
    choices: Choices, best: BestDesigns, model: Value, chip: Value, contexts: list[int]
) -> Iterator[tuple[float | None, str]]:
    study, first = choices.study, choices.results.first
    for context in contexts:
        index = best.of(model, chip)[best.values["context"].index(context)]
        if index < 0:
            yield None, ""
            continue
        value = float(best.at(model, chip, context))
        design = design_text(study, study.space.point(int(index)), ("model", "hardware", "context"))
        told = f"{short_name(str(chip))}, context {context:,}: {metric_value(study, first, value)}"
        yield value, f"{told}<br>{design.replace(', ', '<br>')}"


def _table(choices: Choices, best: BestDesigns, model: Value) -> Table:
    study = choices.study
    values = study_values(study, "context")
    contexts = sorted({int(nearest_to(values, wanted)) for wanted in _WANTED_CONTEXTS})
    axes = [name for name in varying(study) if name not in {"model", "hardware", "context"}]
    metrics = list(dict.fromkeys([objective.metric for objective in study.objectives]))
    head = ("chip", "context", *map(metric_label, metrics), *map(axis_label, axes), "limited by")
    rows = []
    for chip in choices.chips:
        for context in contexts:
            index = int(best.of(model, chip)[best.values["context"].index(context)])
            told = ("nothing is admissible", *[""] * (len(head) - 3))
            if index >= 0:
                told = tuple(_cells(choices, index, axes, metrics))
            rows.append((short_name(str(chip)), f"{context:,}", *told))
    return Table(head, tuple(rows), 2, short_name(str(model)) if len(choices.models) > 1 else "")


def _cells(choices: Choices, index: int, axes: list[str], metrics: list[str]) -> Iterator[str]:
    study = choices.study
    found: Computed = choices.laws.points(np.array([index]))
    design = study.space.point(index)
    yield from (metric_value(study, name, float(found[name][0])) for name in metrics)
    yield from (axis_text(name, design[name]) for name in axes)
    word = str(found.words("regime")[0])
    yield REGIME_WORDS.get(word, word)


def _unsourced(choices: Choices, model: Value, chip: Value) -> str:
    """Which objectives or constraints cannot be told because a figure has no source."""
    found = choices.laws.grid(model=[model], hardware=chip)
    asked = [one.metric for one in choices.study.objectives] + [one.metric for one in choices.study.constraints]
    missing = [metric_label(name) for name in dict.fromkeys(asked) if np.isnan(found[name][0])]
    return f", as no source states what {listed(missing)} needs" if missing else ""


def _without(choices: Choices, best: BestDesigns) -> Iterator[str]:
    """Chips on which nothing is admissible, or not at the longest contexts."""
    for model in choices.models:
        for chip in choices.chips:
            there = best.of(model, chip) >= 0
            contexts = [int(value) for value, one in zip(best.values["context"], there, strict=True) if one]
            whose = f"{short_name(str(model))} on {short_name(str(chip))}"
            if not contexts:
                yield f"{whose}: no design is admissible{_unsourced(choices, model, chip)}."
            elif max(contexts) < max(int(value) for value in best.values["context"]):
                yield f"{whose}: no design is admissible beyond a context of {max(contexts):,}."
