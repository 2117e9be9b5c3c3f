"""Predicted against measured as figures: one for times, one for rates of a sequence, one for rates of a device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import plotly.graph_objects as go

from kvwall.sweep.report.parts import LegendEntry, Panel, Plot
from kvwall.sweep.report.style import INK, MUTED, TOP, axis, frame
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.speed_groups import DENSE, ENGINE_UNSTATED, EXPERTS
from kvwall.sweep.speed_prediction import Predicted
from kvwall.sweep.validate_speed import SpeedReport

COLOURS: Final[Mapping[str, str]] = {
    "vllm": "#0072b2", "vllm-2024": "#56b4e9", "vllm-2023": "#a9cfe8", "trtllm": "#117733", "trtllm-2024": "#7fbf7b",
    "sglang": "#e69f00", "llamacpp": "#aa4499", "nim": "#44aa99", "gpt-fast": "#882255", "tgi": "#cc6677",
    "deepspeed-mii": "#332288", "mlc-llm": "#999933", "exllamav2": "#661100", "lmdeploy": "#dda0c8",
}  # fmt: skip
"""Of generations of engines; relatives look alike, a generation looks the same on every page."""
OTHER: Final = "#6b7580"
SYMBOLS: Final = {DENSE: "circle", EXPERTS: "diamond"}
MOST_MARKERS: Final = 6000
"""Of a figure: more make a page slow."""
_TOLERANCE: Final = 0.2
_ROOM: Final = 1.3
"""Factor beyond the first and last number."""
_FEW_DECADES: Final = 1.8
_TICKS: Final = 5
"""Of an axis of less than a decade."""
_FEW: Final = 300
"""Markers up to which they are large; then small."""
_SMALL, _LARGE = 6, 9


@dataclass(frozen=True)
class _Family:
    """Metrics that one figure shows, in one unit."""

    title: str
    unit: str
    factors: Mapping[str, Callable[[Predicted], float]]
    """Metric -> what its number is multiplied by."""


_FAMILIES: Final[Mapping[str, _Family]] = {
    "time": _Family(
        "Time per token",
        "ms per token",
        {
            "tpot_ms": lambda _: 1.0,
            "itl_ms": lambda _: 1.0,
            "e2e_latency_ms": lambda each: 1.0 / (each.usable.row.output_tokens or 1),
        },
    ),
    "sequence": _Family("Rate per sequence", "tok/s", {"decode_tokens_per_s_per_user": lambda _: 1.0}),
    "device": _Family(
        "Rate per device",
        "tok/s per device",
        {
            "output_tokens_per_s_per_gpu": lambda _: 1.0,
            "output_tokens_per_s_total": lambda each: 1.0 / (each.usable.replicas * each.usable.replica_devices),
        },
    ),
}


def plot_panel(report: SpeedReport) -> Panel:
    """The figures, with a legend that hides engines and kinds of model."""
    by_family = {
        name: [each for each in report.predictions if each.usable.row.metric in family.factors]
        for name, family in _FAMILIES.items()
    }
    plots = tuple(_plot(name, members) for name, members in by_family.items() if members)
    return Panel(plots, legend=tuple(_legend(report.predictions)))


def _plot(name: str, members: Sequence[Predicted]) -> Plot:
    family = _FAMILIES[name]
    step = -(-len(members) // MOST_MARKERS)
    drawn = members[::step]
    factors = [family.factors[each.usable.row.metric](each) for each in drawn]
    numbers = [factor * value for each, factor in zip(drawn, factors, strict=True) for value in _ends(each)]
    low, high = min(numbers) / _ROOM, max(numbers) * _ROOM
    figure = go.Figure(layout=_layout(family, low, high))
    _draw_lines(figure, low, high)
    size = _SMALL if len(drawn) > _FEW else _LARGE
    for engine in _engines(drawn):
        for kind, symbol in SYMBOLS.items():
            places = [place for place, each in enumerate(drawn) if (_engine(each), _kind(each)) == (engine, kind)]
            if places:
                trace = _trace([drawn[place] for place in places], [factors[place] for place in places], family.unit)
                marker = {
                    "symbol": symbol,
                    "color": _colour(engine),
                    "size": size,
                    "opacity": 0.75,
                    "line": {"width": 0},
                }
                figure.add_scatter(**trace, marker=marker, meta={"engine": engine, "kind": kind})
    note = f"{len(members):,} {'row' if len(members) == 1 else 'rows'}" + (f", every {step}th is drawn" * (step > 1))
    return Plot(f"predicted-{name}", family.title, figure, note, 430)


def _ends(each: Predicted) -> tuple[float, float]:
    return each.measured, each.predicted


def _layout(family: _Family, low: float, high: float) -> go.Layout:
    span = [math.log10(low), math.log10(high)]
    both: dict[str, Any] = {"range": span, **_ticks(low, high)}
    return frame(
        axis(f"measured, {family.unit}", log=True, **both),
        axis(f"predicted, {family.unit}", log=True, **both),
        showlegend=False,
        hovermode="closest",
        margin={"l": 64, "r": 16, "t": TOP, "b": 52},
    )


def _ticks(low: float, high: float) -> dict[str, Any]:
    """Decades have a tick each; a short axis more of them.

    >>> _ticks(1.0, 1000.0), _ticks(7.1, 19.0)["tickvals"]
    ({}, [8.0, 10.0, 12.0, 14.0, 16.0, 18.0])
    """
    decades = math.log10(high / low)
    if decades > _FEW_DECADES:
        return {}
    if decades > 1:
        return {"dtick": "D2"}
    rough = (high - low) / (_TICKS + 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return {"tickmode": "array", "tickvals": [_digits(place * step) for place in range(first, last + 1)]}


def _draw_lines(figure: go.Figure, low: float, high: float) -> None:
    for factor, dash, colour in ((1.0, "solid", INK), (1 + _TOLERANCE, "dot", MUTED), (1 - _TOLERANCE, "dot", MUTED)):
        line = {"color": colour, "width": 1, "dash": dash}
        figure.add_scatter(
            x=[low, high], y=[factor * low, factor * high], mode="lines", line=line, hoverinfo="skip",
        )  # fmt: skip


def _trace(members: Sequence[Predicted], factors: Sequence[float], unit: str) -> dict[str, Any]:
    pairs = list(zip(members, factors, strict=True))
    return {
        "x": [_digits(factor * each.measured) for each, factor in pairs],
        "y": [_digits(factor * each.predicted) for each, factor in pairs],
        "text": [_hover(each, factor, unit) for each, factor in pairs],
        "mode": "markers",
        "hovertemplate": "%{text}<extra></extra>",
    }


def _digits(value: float) -> float:
    """Five digits: a page of thousands of rows is mailed."""
    return float(f"{value:.5g}")


def _hover(each: Predicted, factor: float, unit: str) -> str:
    axes, row = each.usable.axes, each.usable.row
    ends = [f"{factor * value:.4g}" for value in (each.measured, each.predicted, each.low, each.high)]
    lines = [
        f"<b>{escape(each.id)}</b>",
        escape(f"{short_name(each.usable.model)} on {row.n_devices or 1} x {short_name(str(axes['hardware']))}"),
        f"{escape(_engine(each))}, batch {axes['batch']}, {axes['context']} in, {row.output_tokens or '?'} out",
        f"measured {ends[0]}, predicted {ends[1]} ({ends[2]} to {ends[3]}) {unit}",
    ]
    lines += [f"{each.repeats} repeats"] * (each.repeats > 1)
    lines += [f"extrapolated: {escape(reason)}" for reason in each.because]
    return "<br>".join(lines)


def _legend(predictions: Sequence[Predicted]) -> Iterator[LegendEntry]:
    for engine in _engines(predictions):
        yield LegendEntry(_colour(engine), engine, "dot", "engine", engine)
    kinds = {_kind(each) for each in predictions}
    words = {DENSE: ("dense models", "dot"), EXPERTS: ("models with routed experts", "diamond")}
    for kind, (text, mark) in words.items():
        if kind in kinds:
            yield LegendEntry("#4a5560", text, mark, "kind", kind)
    yield LegendEntry(INK, "as measured", "line")
    yield LegendEntry(MUTED, f"off by {100 * _TOLERANCE:.0f} %", "dotted")


def _engines(predictions: Sequence[Predicted]) -> list[str]:
    """Those present: known ones in the order of their colours, then others by name."""
    present = {_engine(each) for each in predictions}
    return [*(name for name in COLOURS if name in present), *sorted(present - COLOURS.keys())]


def _engine(each: Predicted) -> str:
    return each.engine or ENGINE_UNSTATED


def _kind(each: Predicted) -> str:
    return EXPERTS if each.routed else DENSE


def _colour(engine: str) -> str:
    return COLOURS.get(engine, OTHER)
