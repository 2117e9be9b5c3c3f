"""The exact front: a scatter of its objectives and a table of designs that stand for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section, Table
from kvwall.sweep.report.style import TOP, chip_colour, chip_symbol, frame, metric_axis
from kvwall.sweep.report.wording import (
    REGIME_WORDS,
    axis_label,
    axis_text,
    design_text,
    metric_label,
    metric_value,
    short_name,
    varying,
)

MOST_ROWS = 30
_MOST_MARKERS = 3000
_WIDE = 5.0
_TICKS = 5
_MORE_METRICS = ("time_per_output_token", "tokens_per_second_per_user", "cost_per_million_tokens", "memory_margin")


def front_section(choices: Choices) -> Section:
    """The section."""
    results = choices.results
    rows = results.order
    if not len(rows):
        return Section("front", "The front", ("No design is admissible, so there is no front.",))
    shown = representative_rows(results)
    blocks: list[Panel | Table] = []
    lead = [
        "Every design on the front is the best there is for some balance of the objectives: no other admissible design "
        "of the whole grid is at least as good in all of them and better in one."
    ]
    if len(results.study.objectives) < 2:
        lead.append("With one objective the front is its best value, so there is nothing to plot.")
    elif not len(_known(results)):
        lead.append("The objectives have no value on the front, so there is nothing to plot.")
    else:
        blocks.append(_scatter(choices))
    blocks.append(_table(results, shown))
    count = len(rows)
    kept = f"The table shows {len(shown)} of {count:,} designs" if len(shown) < count else f"All {count:,} designs"
    note = f"{kept}, best first; all of them are in front.nc."
    return Section("front", "The front", tuple(lead), tuple(blocks), (note,))


def _known(results: Results) -> NDArray[np.int64]:
    """Rows, best first, whose first two objectives have a value."""
    names = [objective.metric for objective in results.study.objectives[:2]]
    finite = np.all([np.isfinite(results.front[name].values) for name in names], axis=0)
    return np.array([row for row in results.order if finite[row]], dtype=np.int64)


def representative_rows(results: Results, most: int = MOST_ROWS) -> list[int]:
    """Rows that stand for the front, best first: the best of each objective, and others evenly along the first."""
    order = [int(row) for row in results.order]
    if len(order) <= most:
        return order
    chosen = {order[0]}
    for objective in results.study.objectives:
        values = np.asarray(results.front[objective.metric].values, dtype=np.float64)
        if np.isfinite(values).any():
            chosen.add(int(np.nanargmin(objective.sign * values)))
    spaced = np.linspace(0, len(order) - 1, most - len(chosen)).round().astype(int)
    chosen |= {order[place] for place in spaced}
    return [row for row in order if row in chosen]


def _scatter(choices: Choices) -> Panel:
    results, study = choices.results, choices.study
    rows = _known(results)
    thinned = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_MARKERS)).round().astype(int)]
    first, second, *more = (objective.metric for objective in study.objectives)
    figure = go.Figure(
        layout=frame(
            metric_axis(study, second, list(results.front[second].values[thinned])),
            metric_axis(study, first, list(results.front[first].values[thinned])),
            showlegend=False,
            margin={"l": 72, "r": 24, "t": TOP, "b": 52},
        )
    )
    chips = results.names("hardware")
    present = [chip for chip in study.space.values("hardware") if str(chip) in set(chips[thinned])]
    third = more[0] if more and np.isfinite(results.front[more[0]].values[thinned]).all() else None
    if third:
        figure.update_layout(coloraxis=_coloraxis(results, third, thinned))
    for chip in present:
        own = [int(row) for row in thinned if chips[row] == str(chip)]
        marker = {"symbol": chip_symbol(study, chip), "size": 7, "line": {"width": 0.5, "color": "#ffffff"}}
        if third:
            marker |= {"color": _hues(results, third, np.array(own)).tolist(), "coloraxis": "coloraxis"}
        else:
            marker["color"] = chip_colour(study, chip)
        figure.add_scatter(
            x=results.front[second].values[own].tolist(), y=results.front[first].values[own].tolist(), mode="markers",
            marker=marker, cliponaxis=False,
            text=[_hover(results, row) for row in own], hovertemplate="%{text}<extra></extra>",
            meta={"chip": str(chip)},
        )  # fmt: skip
    title = f"{metric_label(first)} against {metric_label(second)}"
    title += f", coloured by {metric_label(third)}" if third else ""
    note = f"{len(thinned):,} of {len(rows):,} designs are drawn." if len(thinned) < len(rows) else ""
    marks = {"circle": "dot"}
    legend = tuple(
        LegendEntry("#4a5560" if third else chip_colour(study, chip), short_name(str(chip)),
                    marks.get(chip_symbol(study, chip), chip_symbol(study, chip)), "chip", str(chip))
        for chip in present
    )  # fmt: skip
    if len(present) == 1:
        title, legend = f"{title}; all on {short_name(str(present[0]))}", ()
    return Panel((Plot("front", title, figure, note, 480),), (), legend, wide=True)


def _coloraxis(results: Results, metric: str, rows: NDArray[np.int64]) -> dict[str, object]:
    values = _hues(results, metric, rows)
    told = metric_axis(results.study, metric, list(results.front[metric].values[rows]))
    bar: dict[str, object] = {
        "title": {"text": metric_label(metric), "side": "right", "font": {"size": 12}},
        "thickness": 12,
        "outlinewidth": 0,
    }
    if _spreads(results, metric):
        ticks = np.linspace(np.min(values), np.max(values), _TICKS)
        texts = [metric_value(results.study, metric, float(10**tick)) for tick in ticks]
        bar |= {"tickvals": ticks.tolist(), "ticktext": texts}
    else:
        bar |= {key: told[key] for key in ("tickformat", "ticksuffix") if key in told}
    return {"colorscale": "Viridis", "cmin": float(np.min(values)), "cmax": float(np.max(values)), "colorbar": bar}


def _spreads(results: Results, metric: str) -> bool:
    """Whether a metric spans so much that a linear scale of colours would show two."""
    values = np.asarray(results.front[metric].values, dtype=np.float64)
    return bool((values > 0).all() and values.max() > _WIDE * values.min())


def _hues(results: Results, metric: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """A metric as places on the scale of colours."""
    values = np.asarray(results.front[metric].values[rows], dtype=np.float64)
    return np.log10(values) if _spreads(results, metric) else values


def _hover(results: Results, row: int) -> str:
    study, design = results.study, results.design(row)
    names = dict.fromkeys([*(objective.metric for objective in study.objectives), *_MORE_METRICS])
    lines = [design_text(study, design).replace(", ", "<br>", 2)]
    for name in names:
        lines.append(f"{metric_label(name)}: {metric_value(study, name, float(results.front[name].values[row]))}")
    return "<br>".join(lines)


def _table(results: Results, rows: list[int]) -> Table:
    study = results.study
    axes = varying(study)
    metrics = list(dict.fromkeys([*(objective.metric for objective in study.objectives), *_MORE_METRICS]))
    head = (*(axis_label(name) for name in axes), *(metric_label(name) for name in metrics), "limited by")
    names = sum(name in {"model", "hardware"} for name in axes[:2])
    return Table(head, tuple(tuple(_cells(results, row, axes, metrics)) for row in rows), left=names)


def _cells(results: Results, row: int, axes: list[str], metrics: list[str]) -> Iterator[str]:
    design = results.design(row)
    yield from (axis_text(name, design[name]) for name in axes)
    yield from (metric_value(results.study, name, float(results.front[name].values[row])) for name in metrics)
    words = str(results.front["regime"].attrs["flag_meanings"]).split()
    codes = np.atleast_1d(results.front["regime"].attrs["flag_values"]).tolist()
    word = words[codes.index(int(results.front["regime"].values[row]))]
    yield REGIME_WORDS.get(word, word)
