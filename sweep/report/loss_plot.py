"""A figure of what one remedy loses: its curves by method and task, and the published results they are fitted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvwall.spaces.axes import AXES, Value
from kvwall.sweep.report.laws import Laws
from kvwall.sweep.report.loss_asked import LOG_RATIO, Limit, Remedy
from kvwall.sweep.report.loss_points import Point, Points, points_of
from kvwall.sweep.report.loss_scale import LOWEST, across, layout, scaled
from kvwall.sweep.report.parts import Plot
from kvwall.sweep.report.style import INK, MUTED

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#882255", "#5e3c99")
"""Of methods; readable with the common colour-vision deficiencies (Okabe and Ito)."""
_STEPS: Final = 40
_ASIDE: Final = (0, 1, -1, 2, -2)
"""Steps by which points of one setting are moved aside, so that they do not hide each other."""
WORSE: Final = "retrieval"
EASIER: Final = "retrieval_easy"
"""Of the two classes of `WORSE`."""
_NEUTRAL: Final = (
    "key_bits", "value_bits", "retention", "sink_tokens", "recent_tokens", "read_fraction", "weight_bits",
    "activation_bits",
)  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How the figures of a panel look."""

    colours: Mapping[tuple[str, str], str]
    """(Axis, method) -> colour."""
    suffix: str = ""
    """Of the figures' names."""

    def colour(self, remedy: Remedy, name: str) -> str:
        """The colour of a method."""
        return self.colours[remedy.methods, name]


@dataclass(frozen=True)
class Kind:
    """Models that lose alike."""

    traits: frozenset[str]
    models: tuple[Value, ...]

    @property
    def key(self) -> str:
        """What tells it from others."""
        return " ".join(sorted(self.traits)) or "other"


@dataclass(frozen=True)
class Curve:
    """What a method loses on a task over the settings of a figure."""

    x: NDArray[np.float64]
    central: NDArray[np.float64]
    upper: NDArray[np.float64]
    imposed: NDArray[np.bool_]
    """Where a veto that is not allowed applies."""


def curves_of(
    laws: Laws, remedy: Remedy, kind: Kind, x: Sequence[float], tasks: Sequence[str]
) -> dict[tuple[str, str], Curve]:
    """(Task, method) -> its curve at these settings, by the laws, every other remedy neutral."""
    neutral = {name: AXES[name].neutral for name in _NEUTRAL}
    tied: dict[str, Any] = {"value_bits": "key_bits"} if remedy.remedy == "quantizer" else {}
    asked: dict[str, Any] = {
        **neutral, "model": kind.models[0], "question_visible": remedy.visible,
        remedy.methods: list(remedy.names), remedy.axis: list(x), **tied,
    }  # fmt: skip
    lists = {name: asked.pop(name) for name in (remedy.methods, remedy.axis)}
    found = laws.grid(**lists, **asked)
    vetoes = found.words("veto")
    imposed = (vetoes != "none") & ~np.isin(vetoes, list(laws.study.allow_veto))
    return {
        (task, name): Curve(
            np.asarray(x, np.float64),
            found[f"quality_loss_{task}"][place],
            found[f"quality_loss_upper_{task}"][place],
            imposed[place],
        )
        for task in tasks
        for place, name in enumerate(remedy.names)
    }


def loss_plot(
    laws: Laws, remedy: Remedy, kinds: Sequence[Kind], tasks: Sequence[str], limits: Sequence[Limit], look: Look
) -> tuple[Plot, list[Points]]:
    """The figure of these tasks, and the points in it."""
    record = laws.study.catalogue.curves
    points = {(kind.key, task): points_of(remedy, task, kind.traits, record) for kind in kinds for task in tasks}
    drawn = [point for each in points.values() for point in each.drawn]
    low, high = _span(remedy, [point.x for point in drawn])
    figure = go.Figure(layout=layout(remedy, (low, high), tasks))
    floor = float(scaled(LOWEST)) - 0.5
    for kind in kinds:
        every = curves_of(laws, remedy, kind, _settings(remedy, low, high), tasks)
        for task in tasks:
            meta = {"task": task, "kind": kind.key} if len(kinds) > 1 else {"task": task}
            for name in remedy.names:
                _lines(figure, every[task, name], name, look.colour(remedy, name), meta, remedy)
            _points(figure, points[kind.key, task].drawn, remedy, look, meta)
    for limit in limits:
        if limit.task in tasks:
            _limit(figure, limit, across(remedy, [low, high]))
    figure.add_scatter(
        x=across(remedy, remedy.settings), y=[floor + 0.14] * len(remedy.settings), mode="markers", name="settings",
        marker={"symbol": "triangle-up", "size": 9, "color": INK},
        hovertemplate=[f"{_setting(remedy, each)}: a setting of the study<extra></extra>" for each in remedy.settings],
    )  # fmt: skip
    figure.layout.yaxis.range = [floor, _top(figure, tasks)]
    title = remedy.title if len(tasks) > 1 else f"{remedy.title}: {tasks[0].replace('_', ' ')}"
    return Plot(f"{remedy.plot}{look.suffix}", title, figure, height=430), list(points.values())


def _span(remedy: Remedy, shown: Sequence[float]) -> tuple[float, float]:
    """The settings that the figure runs over: the study's, and those of the points."""
    if remedy.in_bits:
        return min([2.0, *remedy.settings, *shown]), 16.0
    return min([0.05, *remedy.settings, *shown]), 1.0


def _settings(remedy: Remedy, low: float, high: float) -> list[float]:
    spaced = np.geomspace(low, high, _STEPS).round(6).tolist()
    near_all = [] if remedy.in_bits else [0.9, 0.95, 0.98, 0.99]
    return sorted({low, *spaced[1:-1], *near_all, *remedy.settings, high})


def _lines(
    figure: go.Figure, curve: Curve, name: str, colour: str, meta: Mapping[str, str], remedy: Remedy
) -> None:  # fmt: skip
    """Central and upper curve; dotted and without the upper one where a veto says that no curve holds."""
    whole = {**meta, "method": f"{remedy.methods} {name}"}
    numbers = np.stack([curve.central, curve.upper, curve.x], axis=-1)
    for kind, y, shown, line in (
        ("central", curve.central, ~curve.imposed, {"width": 2.5}),
        ("upper", curve.upper, ~curve.imposed, {"width": 1.5, "dash": "dash"}),
        ("vetoed", curve.central, _widened(curve.imposed), {"width": 1.5, "dash": "dot"}),
    ):
        if not shown.any() or (kind == "vetoed" and not curve.imposed.any()):
            continue
        figure.add_scatter(
            x=across(remedy, curve.x), y=scaled(np.where(shown, y, np.nan)), customdata=numbers, mode="lines",
            name=f"{kind} {name}", meta=whole, line={"color": colour, **line},
            hovertemplate=_curve_hover(name, kind, meta["task"], remedy),
        )  # fmt: skip
    own = np.isin(curve.x, remedy.settings) & ~curve.imposed
    if own.any():
        figure.add_scatter(
            x=across(remedy, curve.x[own]), y=scaled(curve.central[own]), customdata=numbers[own], mode="markers",
            name=f"study {name}", meta=whole,
            marker={"color": "#ffffff", "size": 8, "line": {"color": colour, "width": 2}},
            hovertemplate=_curve_hover(name, "central", meta["task"], remedy),
        )  # fmt: skip


def _widened(where: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """With a neighbour on both sides, so that a dotted line reaches the solid one."""
    found: NDArray[np.bool_] = where | np.append(where[1:], False) | np.insert(where[:-1], 0, False)
    return found


def _curve_hover(name: str, kind: str, task: str, remedy: Remedy) -> str:
    number = ".3~g" if task == LOG_RATIO else ".3~p"
    setting = "%{customdata[2]:.3~g} bits" if remedy.in_bits else "%{customdata[2]:.3~p} of the tokens"
    told = f"expected %{{customdata[0]:{number}}}, at most %{{customdata[1]:{number}}}"
    if kind == "vetoed":
        told = "vetoed: known to collapse, whatever the curve says"
    return f"{name}, {setting}: {told}<extra></extra>"


def _points(
    figure: go.Figure, drawn: Sequence[Point], remedy: Remedy, look: Look, meta: Mapping[str, str]
) -> None:  # fmt: skip
    """One trace for each method, and one for those of the families only."""
    for name in (*remedy.names, ""):
        own = [point for point in drawn if point.name == name]
        if not own:
            continue
        colour = look.colour(remedy, name) if name else MUTED
        more = {"method": f"{remedy.methods} {name}"} if name else {}
        figure.add_scatter(
            x=_aside(remedy, own), y=scaled([max(point.row.loss, LOWEST) for point in own]), mode="markers",
            meta={**meta, **more}, name=f"published {name or 'family'}", customdata=[point.row.id for point in own],
            text=[point.text for point in own],
            marker={"symbol": [_symbol(point, meta["task"]) for point in own], "size": 7, "color": colour,
                    "opacity": [0.6 if point.name and point.own_kind else 0.35 for point in own]},
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip


def _aside(remedy: Remedy, own: Sequence[Point]) -> NDArray[np.float64]:
    """Places of points, those of one setting a little beside each other, by their loss."""
    step, count = 0.045 if not remedy.in_bits else 0.012, Counter[float]()
    found: NDArray[np.float64] = across(remedy, [point.x for point in own])
    for place in sorted(range(len(own)), key=lambda place: own[place].row.loss):
        found[place] += step * _ASIDE[count[own[place].x] % len(_ASIDE)]
        count[own[place].x] += 1
    return found


def _symbol(point: Point, task: str) -> str:
    if point.vetoed:
        return "x-thin-open"
    symbol = "diamond" if point.uneven else "circle"
    if task == WORSE and point.row.task == EASIER:
        symbol = "square"
    return symbol if point.name and point.own_kind else f"{symbol}-open"


def _limit(figure: go.Figure, limit: Limit, span: NDArray[np.float64]) -> None:
    shown = f"{limit.most:.3g}" if limit.task == LOG_RATIO else f"{100 * limit.most:.3g} %"
    figure.add_scatter(
        x=span, y=scaled([limit.most] * 2), mode="lines", meta={"task": limit.task}, name="limit",
        line={"color": INK, "width": 1},
        hovertemplate=f"{'upper' if limit.upper else 'expected'} loss of {limit.task} at most {shown}<extra></extra>",
    )  # fmt: skip


def _setting(remedy: Remedy, value: float) -> str:
    return f"{value:.3g} bits" if remedy.in_bits else f"{100 * value:.3g} % of the tokens"


def _top(figure: go.Figure, tasks: Sequence[str]) -> float:
    """Just above all that is drawn; a share of a score ends at 100 %."""
    most = max(float(np.nanmax(np.asarray(trace.y, np.float64))) for trace in figure.data)
    return min(most, float(scaled(1.0))) + 0.25 if tasks[0] != LOG_RATIO else most + 0.25
