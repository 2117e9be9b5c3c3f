"""Colours, axes and the frame that all figures share."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from kvwall.objectives.register import metric_named
from kvwall.spaces.axes import Value
from kvwall.sweep.report.wording import metric_label
from kvwall.sweep.study import Study

INK: Final = "#1f2933"
MUTED: Final = "#66727f"
GRID: Final = "#e6e9ed"
# Both sets are readable with the common colour-vision deficiencies (Okabe and Ito; Tol "muted").
REGIME_COLOURS: Final[Mapping[str, str]] = {
    "weight": "#0072b2",
    "kv": "#e69f00",
    "compute": "#009e73",
    "scale_up": "#cc79a7",
    "tier_link": "#56b4e9",
    "overhead": "#f0e442",
    "capacity": "#d3d7dc",
    "layout": "#8d96a0",
    "unsourced": "#f7f7f7",
}
_CHIP_COLOURS: Final = (
    "#117733", "#332288", "#cc6677", "#ddaa33", "#44aa99", "#882255", "#88ccee", "#999933", "#aa4499",
)  # fmt: skip
_PLACES: Final[Mapping[str, int]] = {
    "h100-sxm": 0, "b200-sxm": 1, "mi300x": 2, "h200-sxm": 3, "mi355x": 4, "gb200-nvl72": 5, "mi350x": 6, "b300-sxm": 7,
    "gb300-nvl72": 8, "a100-sxm-80": 5, "mi325x": 8, "tpu-v7": 4, "tpu-v6e": 6, "gaudi3": 3, "trainium2": 7,
    "paper/h100": 0, "paper/b200": 1, "paper/mi300x": 2,
}  # fmt: skip
"""Place in the palette of chips that many studies compare: a chip looks the same in every report."""
CHIP_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star", "x", "pentagon", "hexagon")
TOP: Final = 34
"""Margin above a plot, in pixels: room for the row of buttons."""
_MARGIN: Final = 0.03
"""Room beyond the first and last value, as a share of the range: a marker at 0 is not cut."""
FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
CONFIG: Final[Mapping[str, object]] = {
    "displaylogo": False,
    "showSendToCloud": False,  # results may be confidential: no button uploads them
    "responsive": True,
    "displayModeBar": "hover",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}


def chip_colour(study: Study, chip: Value) -> str:
    """The colour of a chip: the same in every figure, and in every report unless chips would share it."""
    return _CHIP_COLOURS[_place(study, chip)]


def chip_symbol(study: Study, chip: Value) -> str:
    """The marker of a chip."""
    return CHIP_SYMBOLS[_place(study, chip)]


def _place(study: Study, chip: Value) -> int:
    return chip_places(map(str, study.space.values("hardware")))[str(chip)]


def chip_places(names: Iterable[str]) -> dict[str, int]:
    """Place in the palette of each chip, whatever their order: its own where it is free, else the next that is.

    >>> chip_places(["mi300x", "h100-sxm"]), chip_places(["h100-sxm", "paper/h100"])
    ({'h100-sxm': 0, 'mi300x': 2}, {'h100-sxm': 0, 'paper/h100': 1})
    """
    found: dict[str, int] = {}
    count = len(_CHIP_COLOURS)
    for name in sorted(set(names), key=lambda name: (name not in _PLACES, name)):
        own = _PLACES.get(name, zlib.crc32(name.encode()) % count)
        free = (place % count for place in range(own, own + count) if place % count not in found.values())
        found[name] = next(free, own)
    return found


def frame(x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> go.Layout:
    """A figure's layout: light, thin grid, legend below the plot."""
    base = {
        "template": "none",
        "font": {"family": FONT, "size": 13, "color": INK},
        "margin": {"l": 64, "r": 16, "t": TOP, "b": 52},
        "paper_bgcolor": "rgba(0,0,0,0)",  # the plot reaches up to its caption's line, where its buttons are
        "plot_bgcolor": "#ffffff",
        "hoverlabel": {"align": "left", "font": {"family": FONT, "size": 12}},
        "legend": {"orientation": "h", "x": 0, "y": -0.22, "xanchor": "left", "yanchor": "top", "font": {"size": 12}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#b4bcc5", "activecolor": MUTED},
        "xaxis": {**_AXIS, **x},
        "yaxis": {**_AXIS, **y},
    }
    return go.Layout(**{**base, **more})


_AXIS: Final[Mapping[str, Any]] = {
    "gridcolor": GRID,
    "linecolor": "#c5ccd3",
    "zeroline": False,
    "showline": True,
    "ticks": "outside",
    "tickcolor": "#c5ccd3",
    "ticklen": 4,
    "automargin": True,
    "title": {"standoff": 10},
}


def axis(title: str, *, log: bool = False, suffix: str = "", **more: Any) -> dict[str, Any]:
    """A numeric axis with SI prefixes on its ticks."""
    kind = {"type": "log", "dtick": 1} if log else {}
    return {"title": {"text": title, "standoff": 10}, "tickformat": "~s", "ticksuffix": suffix, **kind, **more}


def tokens_axis(title: str, values: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of a count that doubles: ticks at powers of two or four."""
    low, high = min(values), max(values)
    first, last = max(low, 1).bit_length() - 1, max(high, 1).bit_length()
    step = max(1, -(-(last - first) // 6))
    ticks = [2**power for power in range(first, last + 1, step)]
    return {
        "title": {"text": title, "standoff": 10},
        "type": "log",
        "tickvals": ticks,
        "ticktext": [binary_text(tick) for tick in ticks],
        "tickangle": 0,
    }


def binary_text(count: int) -> str:
    """A count in powers of 1024.

    >>> binary_text(512), binary_text(131072), binary_text(1048576)
    ('512', '128k', '1M')
    """
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if count >= size:
            return f"{count / size:g}{letter}"
    return str(count)


def metric_axis(study: Study, name: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis for a metric: logarithmic where its values span much, ticks in its unit."""
    label, unit = metric_label(name), metric_named(name, study.task, study.mode).unit
    positive = [value for value in values if value > 0]
    log = len(positive) == len(values) > 0 and max(positive) > 30 * min(positive)
    if name.startswith("quality_loss") and not name.endswith("perplexity"):
        most = max(values, default=0.0) or 1.0
        return axis(label, tickformat="~%", range=[-_MARGIN * most, (1 + _MARGIN) * most])
    match unit:
        case "s":
            return axis(label, log=log, suffix="s")
        case "byte":
            return axis(label, log=log, suffix="B")
        case "USD":
            return axis(f"{label} (USD)", log=log, tickformat="~g")
        case "J":
            return axis(label, log=log, suffix="J")
        case "FLOP byte-1":
            return axis(f"{label} (FLOP/B)", log=log)
        case _:
            return axis(label, log=log)
