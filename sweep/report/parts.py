"""The pieces of the page and their HTML: sections, panels of figures with selectors and legend, tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import plotly.io

from kvwall.sweep.report.style import CONFIG

_HINT = "The table is wider than the page: scroll it sideways &rarr;"


@dataclass(frozen=True)
class Plot:
    """A figure. Traces may carry `meta`: the selector values under which they are shown, as text."""

    name: str
    """Unique on the page; letters, digits and dashes."""
    title: str
    figure: Any
    note: str = ""
    height: int = 400


@dataclass(frozen=True)
class Selector:
    """A choice above a panel: only traces whose `meta[key]` is the chosen value, or that have none, are shown."""

    key: str
    label: str
    options: tuple[tuple[str, str], ...]
    """(value, text)."""
    chosen: str


@dataclass(frozen=True)
class LegendEntry:
    """A colour and its meaning; with a `key` a click on it hides the traces whose `meta[key]` is `value`."""

    colour: str
    text: str
    mark: str = "box"
    """box, line, dashed, dotted, ring or star."""
    key: str = ""
    value: str = ""


@dataclass(frozen=True)
class Panel:
    """Figures that share selectors and a legend."""

    plots: tuple[Plot, ...]
    selectors: tuple[Selector, ...] = ()
    legend: tuple[LegendEntry, ...] = ()
    wide: bool = False
    """Whether each figure takes the whole width."""


@dataclass(frozen=True)
class Table:
    """A table; cells are text. Columns named in `numbers` are set to the right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """Leading columns set to the left."""
    caption: str = ""


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    caption: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A part of the page: sentences, then panels, tables and lists; a section without any says why."""

    name: str
    title: str
    lead: tuple[str, ...]
    """Paragraphs of plain text."""
    blocks: tuple[Panel | Table | Items, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Small print below."""


def section_html(section: Section) -> str:
    """HTML of a section."""
    parts = [f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>']
    parts += [f"<p>{escape(text)}</p>" for text in section.lead]
    parts += [_block_html(block) for block in section.blocks]
    parts += [f'<p class="note">{escape(text)}</p>' for text in section.notes]
    return "\n".join([*parts, "</section>"])


def _block_html(block: Panel | Table | Items) -> str:
    match block:
        case Panel():
            return panel_html(block)
        case Table():
            return table_html(block)
        case Items():
            texts = "".join(f"<li>{escape(text)}</li>" for text in block.texts)
            return f"<h3>{escape(block.caption)}</h3><ul>{texts}</ul>"


def panel_html(panel: Panel) -> str:
    """HTML of a panel with the data of its figures."""
    controls = "".join(_selector_html(selector) for selector in panel.selectors)
    legend = "".join(_legend_html(entry) for entry in panel.legend)
    plots = "\n".join(_plot_html(plot) for plot in panel.plots)
    columns = "wide" if panel.wide or len(panel.plots) == 1 else "two" if len(panel.plots) in {2, 4} else ""
    kind = f"plots {columns}".strip()
    return (
        '<div class="panel">'
        + (f'<div class="controls">{controls}</div>' if controls else "")
        + (f'<div class="legend">{legend}</div>' if legend else "")
        + f'<div class="{kind}">{plots}</div></div>'
    )


def _selector_html(selector: Selector) -> str:
    options = "".join(
        f'<option value="{escape(value)}"{" selected" if value == selector.chosen else ""}>{escape(text)}</option>'
        for value, text in selector.options
    )
    return f'<label>{escape(selector.label)} <select data-key="{escape(selector.key)}">{options}</select></label>'


def _legend_html(entry: LegendEntry) -> str:
    swatch = f'<span class="mark {entry.mark}" style="--c:{entry.colour}"></span>{escape(entry.text)}'
    if not entry.key:
        return f'<span class="entry">{swatch}</span>'
    data = f'data-key="{escape(entry.key)}" data-value="{escape(entry.value)}"'
    return f'<button type="button" class="entry" aria-pressed="true" title="show or hide" {data}>{swatch}</button>'


def _plot_html(plot: Plot) -> str:
    note = f'<p class="note">{escape(plot.note)}</p>' if plot.note else ""
    return (
        f"<figure><figcaption>{escape(plot.title)}</figcaption>"
        f'<div class="plot" id="{plot.name}" style="height:{plot.height}px"></div>{note}'
        f'<script type="application/json" id="{plot.name}-data">{figure_json(plot)}</script></figure>'
    )


def figure_json(plot: Plot) -> str:
    """Data, layout and configuration of a figure, safe inside a script element."""
    figure = json.loads(plotly.io.to_json(plot.figure, validate=False))
    whole = {"data": figure["data"], "layout": figure["layout"], "config": dict(CONFIG)}
    return json.dumps(whole, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def table_html(table: Table) -> str:
    """HTML of a table, which scrolls sideways where it is too wide."""
    head = "".join(f"<th{_left(place, table)}>{escape(name)}</th>" for place, name in enumerate(table.head))
    rows = "".join(f"<tr>{_cells(row, table)}</tr>" for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    return (
        f'<p class="hint">{_HINT}</p><div class="scroll" tabindex="0">'
        f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cells(row: Sequence[str], table: Table) -> str:
    return "".join(f"<td{_left(place, table)}>{escape(cell)}</td>" for place, cell in enumerate(row))


def _left(place: int, table: Table) -> str:
    return ' class="left"' if place < table.left else ""
