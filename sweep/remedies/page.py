"""The answer as one page that asks nothing of any network: the map over context and batch, and the table with why."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvwall.spaces.axes import AXES
from kvwall.sweep.readable import bytes_text, number_text
from kvwall.sweep.remedies.answer import RemediesReport
from kvwall.sweep.remedies.budget import limits_text
from kvwall.sweep.remedies.map import ANSWERS, WORTH, Best, RemedyMap, context_text
from kvwall.sweep.remedies.outcome import SPARE
from kvwall.sweep.remedies.register import FAMILIES
from kvwall.sweep.remedies.rows import Row
from kvwall.sweep.remedies.sentences import count_text, times_text
from kvwall.sweep.remedies.table import UNSET, losses_shown
from kvwall.sweep.report.header import BADGES, SPEEDS
from kvwall.sweep.report.page import document, tiles_html
from kvwall.sweep.report.parts import Items, LegendEntry, Panel, Plot, Section, Selector, Table, table_html
from kvwall.sweep.report.style import INK, frame
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.store.atomic import write_atomically

_VIEWS: Final = {"remedies": "remedies of the KV cache", "levers": "remedies and the levers next to them"}
_COLOURS: Final = {"none_pays": "#ffffff", "does_not_fit": "#d3d7dc", "not_computed": "#8d96a0"}
_WORDS: Final = {
    "none_pays": f"none pays {times_text(WORTH)}",
    "does_not_fit": "does not fit, and none makes it fit",
    "not_computed": "the step's time is not known",
}
_SCALE: Final = ((0.0, "#b2182b"), (0.5, "#f7f7f7"), (1.0, "#2166ac"))
"""Slower, as fast, faster: of the logarithm of a speedup, from a quarter to four times."""
_SPAN: Final = 2.0


def write_map(report: RemediesReport, path: Path) -> None:
    """Write the page. Raises InputError where the file cannot be written."""
    write_atomically(path, page(report).encode(), "--map")


def page(report: RemediesReport) -> str:
    """The page as HTML."""
    inputs = report.baseline.inputs
    name = f"{short_name(str(inputs['model']))} on {short_name(str(inputs['hardware']))}: which remedy pays where"
    sections = [_map_section(report), _table_section(report)]
    return document(name, _header(report, name), sections)


def _header(report: RemediesReport, name: str) -> str:
    base, best = report.baseline, report.best
    told = [base.why, f"Best combination: {best.why}" if best else "No combination tried is admissible."]
    answer = "".join(f"<p>{escape(text)}</p>" for text in told)
    asked = [(axis, number_text(value)) for axis, value in base.inputs.items() if value != AXES[axis].neutral]
    limit = f"{limits_text(report.budgets, base.task)} at most, with {100 * base.confidence:g} % confidence"
    asked += [("task", base.task), ("quality budget", limit)]
    table = table_html(Table(("axis", "value"), tuple(asked), left=2))
    return f"""<p class="badge">{BADGES[report.baseline.mode]}</p>
<h1>{escape(name)}</h1>
{tiles_html(_tiles(report))}
<div class="answer">{answer}</div>
<p class="note">{SPEEDS[report.baseline.mode]} Losses of quality are calibrated on published results.</p>
<details open><summary>What was asked; every other axis is neutral</summary>{table}</details>"""


def _tiles(report: RemediesReport) -> Iterator[tuple[str, str, str]]:
    searched, best = report.combination, report.best
    yield f"{searched.evaluated:,}", "combinations tried", f"{searched.admissible:,} within the budget and the memory"
    if best is None or best.after is None:
        return
    yield _times(best.speedup), "best combination", best.phrase or "the design as it is"
    yield _times(best.speedup_at_max_batch), "at the largest batch", f"{count_text(best.after['max_batch'])} sequences"
    yield bytes_text(best.after[SPARE] - best.before[SPARE]), "freed on a device", ""
    tasks = ", ".join(budget.task for budget in report.budgets)
    yield ", ".join(losses_shown(report, best.after)), "lost at most", f"task {tasks}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else times_text(ratio)


def _table_section(report: RemediesReport) -> Section:
    best = [report.best] if report.best else []
    rows = (*report.rows, *report.stated, *best)
    head = ("family", "best setting", "speed", "at largest batch", "freed on a device", "largest batch", "loss at most")
    table = Table((*head, "phase"), tuple(_cells(report, row) for row in rows), left=2)
    why = tuple(f"{row.family.replace('_', ' ')}: {row.why}" for row in (*report.rows, *report.stated))
    flags = (*report.remarks, *report.baseline.flags, *(report.best.flags if report.best else ()))
    blocks = (table, Items("Why", why), Items("To know beside the numbers", flags))
    lead = "Each family alone at the design asked about, its best setting within the budget, then the combination."
    return Section("remedies", "Every remedy alone, and the best combination", (lead,), blocks if flags else blocks[:2])


def _cells(report: RemediesReport, row: Row) -> tuple[str, ...]:
    after = row.after
    name = row.family.replace("_", " ")
    if after is None:
        return (name, UNSET[row.status], *["-"] * 6)
    phases = " to ".join(dict.fromkeys(str(one.label("phase") or "-") for one in (row.before, after)))
    return (
        name,
        row.phrase or "as it is",
        _times(row.speedup),
        _times(row.speedup_at_max_batch),
        bytes_text(after[SPARE] - row.before[SPARE]),
        count_text(after["max_batch"]),
        ", ".join(losses_shown(report, after)),
        phases,
    )


def _map_section(report: RemediesReport) -> Section:
    found = report.map
    figure = go.Figure(layout=_layout(found))
    for view, best in (("remedies", found.remedies), ("levers", found.with_levers)):
        _add_best(figure, found, best, view)
    for name, grid in found.by_family.items():
        _add_family(figure, found, name, grid)
    _add_design(figure, report)
    options = (*_VIEWS.items(), *((name, f"{name.replace('_', ' ')} alone") for name in found.by_family))
    plot = Plot("map", "The family that pays most, and its speedup", figure, height=520)
    lead = (
        "Each cell is the design asked about at another context and batch. It names the family whose best setting "
        "within the budget is the fastest there, on the same devices; a star after the speedup means that the design "
        "does not fit without it. Choose a family to see what it is worth by itself everywhere."
    )
    note = "Speedups of designs that do not fit are against the speed they would have if they did."
    panel = Panel((plot,), (Selector("view", "shown", options, "remedies"),), tuple(_legend(found)), wide=True)
    return Section("map", "Which remedy pays where", (lead,), (panel,), (note,))


def _layout(found: RemedyMap) -> go.Layout:
    def category(title: str, names: list[str]) -> dict[str, Any]:
        shown = {"type": "category", "categoryorder": "array", "categoryarray": names, "showgrid": False}
        return {"title": {"text": title, "standoff": 10}, "tickangle": 0, **shown}

    contexts, batches = _names(found)
    return frame(category("context (tokens)", contexts), category("batch", batches), showlegend=False)


def _names(found: RemedyMap) -> tuple[list[str], list[str]]:
    return [context_text(context) for context in found.contexts], [f"{batch:,}" for batch in found.batches]


def _codes() -> list[str]:
    return [*FAMILIES, *_COLOURS]


def _add_best(figure: go.Figure, found: RemedyMap, best: Best, view: str) -> None:
    codes = _codes()
    colours = [*(family.colour for family in FAMILIES.values()), *_COLOURS.values()]
    steps = [[(place + end) / len(codes), colour] for place, colour in enumerate(colours) for end in (0, 1)]
    words = np.array(ANSWERS)[best.answer]
    names = np.array([*found.families, ""])[best.family]
    code = np.vectorize(codes.index)(np.where(names == "", words, names))
    shown = np.vectorize(_cell_text)(best.speedup, words, best.family)
    hover = [[_hover(found, best, i, j) for i in range(len(found.contexts))] for j in range(len(found.batches))]
    _add_heatmap(figure, found, code.T, shown.T, hover, {"view": view}, steps, (-0.5, len(codes) - 0.5))


def _cell_text(speedup: float, word: str, family: int) -> str:
    if family < 0:
        return ""
    return f"{times_text(speedup)}{'*' if word == 'makes_it_fit' else ''}"


def _hover(found: RemedyMap, best: Best, context: int, batch: int) -> str:
    where = f"context {found.contexts[context]:,}, batch {found.batches[batch]:,}"
    word, family = ANSWERS[best.answer[context, batch]], int(best.family[context, batch])
    if family < 0:
        return f"{where}<br>{_WORDS[word]}"
    name = found.families[family]
    phrase = FAMILIES[name].phrase(found.changes[best.setting[context, batch]])
    fits = "makes it fit: " if word == "makes_it_fit" else ""
    return f"{where}<br>{name.replace('_', ' ')}: {phrase}<br>{fits}{times_text(best.speedup[context, batch])}"


def _add_family(figure: go.Figure, found: RemedyMap, name: str, grid: NDArray[np.float64]) -> None:
    """What one family is worth everywhere."""
    shown = [["" if np.isnan(value) else times_text(value) for value in row] for row in grid.T]
    hover = [
        [
            f"context {context:,}, batch {batch:,}<br>{name.replace('_', ' ')}: "
            + ("does not fit, or not within the budget" if np.isnan(grid[i, j]) else times_text(grid[i, j]))
            for i, context in enumerate(found.contexts)
        ]
        for j, batch in enumerate(found.batches)
    ]
    logs = np.clip(np.log2(grid.T), -_SPAN, _SPAN)
    _add_heatmap(figure, found, logs, np.array(shown), hover, {"view": name}, [*map(list, _SCALE)], (-_SPAN, _SPAN))


def _add_heatmap(
    figure: go.Figure, found: RemedyMap, z: NDArray[Any], text: NDArray[Any], hover: list[list[str]],
    meta: dict[str, str], scale: list[Any], span: tuple[float, float],
) -> None:  # fmt: skip
    contexts, batches = _names(found)
    values = [[None if np.isnan(value) else float(value) for value in row] for row in z]
    figure.add_heatmap(
        x=contexts, y=batches, z=values, zmin=span[0], zmax=span[1], colorscale=scale, showscale=False, xgap=1, ygap=1,
        text=text.tolist(), texttemplate="%{text}", textfont={"size": 11}, hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>", meta=meta,
    )  # fmt: skip


def _add_design(figure: go.Figure, report: RemediesReport) -> None:
    """A frame around the cell of the design asked about."""
    found, inputs = report.map, report.baseline.inputs
    column, row = found.contexts.index(int(inputs["context"])), found.batches.index(int(inputs["batch"]))
    figure.add_shape(
        type="rect", x0=column - 0.5, x1=column + 0.5, y0=row - 0.5, y1=row + 0.5, line={"color": INK, "width": 3}
    )


def _legend(found: RemedyMap) -> Iterator[LegendEntry]:
    both = (found.remedies, found.with_levers)
    there = {found.families[at] for best in both for at in np.unique(best.family) if at >= 0}
    for name, family in FAMILIES.items():
        if name in there:
            yield LegendEntry(family.colour, name.replace("_", " "))
    answers = {ANSWERS[at] for best in both for at in np.unique(best.answer)}
    for word, colour in _COLOURS.items():
        if word in answers:
            yield LegendEntry(colour, _WORDS[word])
    yield LegendEntry(INK, "the design asked about", "ring")
