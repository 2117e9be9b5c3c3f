"""A roofline per chip, with decode steps of the study's model and the best designs on it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go

from kvwall.spaces.axes import Value
from kvwall.spaces.figures import display
from kvwall.spaces.hardware import Hardware
from kvwall.sweep.readable import prefixed
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.laws import FLOP_RATE, spread
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section
from kvwall.sweep.report.style import INK, MUTED, axis, binary_text, chip_colour, frame
from kvwall.sweep.report.wording import design_text, metric_value, short_name

_INTENSITY = "arithmetic_intensity"
_RATE = "tokens_per_second_per_device"
_SYMBOLS = ("circle", "square", "diamond")
_SHADES = (1.0, 0.7, 0.45)
_LOWEST = 0.5
_NOT_FIT = "#8d96a0"


def roofline_section(choices: Choices) -> Section:
    """The section."""
    contexts = _contexts(choices)
    return Section(
        "roofline",
        "Rooflines: where a decode step stands on each chip",
        (
            "Height is the arithmetic one device gets done per second at the ceiling, distance to the right is FLOP "
            "per byte moved. Left of the ridge memory traffic binds. At a small batch a decode step sits far to the "
            "left; a larger batch shares the weights and moves right, until KV traffic, which no batch shares, holds "
            "it back: the longer the context, the further left it stops.",
        ),
        (Panel(tuple(_plots(choices, contexts)), choices.model_selector(), tuple(_legend(contexts))),),
        (
            "Steps are at 16-bit KV with every token kept, weights as published, on the largest replica of the study. "
            "A step below the roof is bound by a link between devices or to the host.",
            *choices.ladder_note,
            *choices.cut,
        ),
    )


def _contexts(choices: Choices) -> list[Value]:
    return spread(choices.ladder("context", 1000), len(_SYMBOLS))


def _legend(contexts: list[Value]) -> Iterator[LegendEntry]:
    for context, mark in zip(contexts, ("dot", "square", "diamond"), strict=False):
        yield LegendEntry(INK, f"step at context {binary_text(int(context))}", mark)
    yield LegendEntry(_NOT_FIT, "step that does not fit in memory", "ring")
    yield LegendEntry("#d55e00", "best admissible design of the study", "star")


def _plots(choices: Choices, contexts: list[Value]) -> Iterator[Plot]:
    chips = dict(zip(choices.study.space.values("hardware"), choices.study.catalogue.hardware, strict=True))
    for number, name in enumerate(choices.chips):
        chip = chips[name]
        peaks = list(_peaks(chip))
        figure = go.Figure(layout=_layout(chip, peaks))
        _add_roofs(figure, chip, peaks)
        for model in choices.models:
            _add_steps(figure, choices, model, name, contexts)
            _add_best(figure, choices, model, name)
        yield Plot(f"roofline-{number}", short_name(str(name)), figure, _note(choices, name), 420)


def _note(choices: Choices, chip: Value) -> str:
    parts = []
    for model in choices.models:
        devices, fits = choices.degrees[model, chip]
        whose = f"{short_name(str(model))}: " if len(choices.models) > 1 else ""
        plural = f"{devices} devices, which do" if devices > 1 else "1 device, which does"
        parts.append(f"{whose}{plural.split(',')[0] if fits else f'{plural} not hold the weights'}")
    return f"Steps on {'; '.join(parts)}."


def _peaks(chip: Hardware) -> Iterator[tuple[str, float]]:
    eight = ("FP8", chip.fp8_flops) if chip.fp8_flops else ("INT8", chip.int8_ops)
    for text, figure in (("BF16", chip.bf16_flops), eight, ("FP4", chip.fp4_flops)):
        if figure is not None:
            yield text, figure.value


def _layout(chip: Hardware, peaks: list[tuple[str, float]]) -> go.Layout:
    bandwidth = chip.memory_bandwidth.value
    top = max((peak for _, peak in peaks), default=bandwidth * 100)
    right = 60 * top / bandwidth
    return frame(
        axis("arithmetic intensity (FLOP per byte)", log=True, range=[math.log10(_LOWEST), math.log10(right)]),
        axis(
            "attained per device (FLOP/s)",
            log=True,
            range=[math.log10(0.4 * _LOWEST * bandwidth), math.log10(2.2 * top)],
        ),
        showlegend=False,
    )


def _add_roofs(figure: go.Figure, chip: Hardware, peaks: list[tuple[str, float]]) -> None:
    bandwidth = chip.memory_bandwidth.value
    right = 60 * max((peak for _, peak in peaks), default=bandwidth * 100) / bandwidth
    corner = max((peak for _, peak in peaks), default=right * bandwidth) / bandwidth
    slope = np.geomspace(_LOWEST, corner, 40)
    memory = display("memory_bandwidth", bandwidth)
    figure.add_scatter(
        x=slope, y=slope * bandwidth, mode="lines", line={"color": INK, "width": 2},
        hovertemplate=f"memory roof: {memory}<extra></extra>",
    )  # fmt: skip
    for place, (text, peak) in enumerate(peaks):
        ridge = peak / bandwidth
        shown = prefixed(peak, "FLOP/s", 3)
        figure.add_scatter(
            x=[ridge, right], y=[peak, peak], mode="lines", line={"color": INK, "width": 2 if place == 0 else 1.2},
            hovertemplate=f"{text} roof: {shown}; ridge at {ridge:,.0f} FLOP/B<extra></extra>",
        )  # fmt: skip
        figure.add_annotation(
            x=math.log10(right), y=math.log10(peak), text=f"{text} {shown}", showarrow=False, xanchor="right",
            yanchor="bottom", font={"size": 11, "color": MUTED},
        )  # fmt: skip
    middle = 8 * _LOWEST
    figure.add_annotation(
        x=math.log10(middle), y=math.log10(middle * bandwidth), text=f"{memory}  ", showarrow=False, xanchor="right",
        yanchor="bottom", font={"size": 11, "color": MUTED},
    )  # fmt: skip
    if peaks:
        text, peak = peaks[0]
        figure.add_scatter(
            x=[peak / bandwidth] * 2, y=[0.4 * _LOWEST * bandwidth, peak], mode="lines",
            line={"color": MUTED, "width": 1, "dash": "dot"}, hoverinfo="skip",
        )  # fmt: skip
        figure.add_annotation(
            x=math.log10(peak / bandwidth), y=0.02, yref="paper", xanchor="left", yanchor="bottom", showarrow=False,
            text=f" ridge ({text})<br> {peak / bandwidth:,.0f} FLOP/B", align="left", font={"size": 11, "color": MUTED},
        )  # fmt: skip


def _add_steps(figure: go.Figure, choices: Choices, model: Value, chip: Value, contexts: list[Value]) -> None:
    batches = spread(choices.ladder("batch", 1000), 6)
    found = choices.laws.grid(
        context=contexts, batch=batches, model=model, hardware=chip, tensor_parallel=choices.degrees[model, chip][0]
    )
    status, bound = found.words("status"), found.words("bound_by")
    colour = chip_colour(choices.study, chip)
    for row, context in enumerate(contexts):
        fits = status[row] == "ok"
        hover = [
            f"batch {batch:,}, context {context:,}<br>{_fit_text(str(status[row, k]))}; bound by {bound[row, k]}<br>"
            f"{found[_INTENSITY][row, k]:.3g} FLOP/B, {prefixed(found[FLOP_RATE][row, k], 'FLOP/s', 3)}<br>"
            f"{metric_value(choices.study, _RATE, found[_RATE][row, k])} per device"
            if np.isfinite(found[FLOP_RATE][row, k])
            else ""
            for k, batch in enumerate(batches)
        ]
        figure.add_scatter(
            x=found[_INTENSITY][row], y=found[FLOP_RATE][row], mode="lines+markers", text=hover,
            hovertemplate="%{text}<extra></extra>", line={"color": colour, "width": 1}, opacity=_SHADES[row],
            marker={
                "symbol": [_SYMBOLS[row] if one else f"{_SYMBOLS[row]}-open" for one in fits],
                "size": 9, "color": [colour if one else _NOT_FIT for one in fits], "line": {"width": 1.5},
            },
            meta={"model": str(model)},
        )  # fmt: skip
    _label_ends(figure, found[_INTENSITY][0], found[FLOP_RATE][0], batches, str(model))


def _fit_text(status: str) -> str:
    return {"ok": "fits", "memory": "does not fit in memory"}.get(status, status.replace("_", " "))


def _label_ends(
    figure: go.Figure, x: np.ndarray[tuple[int], np.dtype[np.float64]], y: np.ndarray[tuple[int], np.dtype[np.float64]],
    batches: list[Value], model: str,
) -> None:  # fmt: skip
    """Name the first and last batch of the shortest context."""
    figure.add_scatter(
        x=[x[0], x[-1]], y=[y[0], y[-1]], mode="text", text=[f"  batch {batches[0]:,}", f"  batch {batches[-1]:,}"],
        textposition=["bottom right", "bottom right"], textfont={"size": 11, "color": INK}, hoverinfo="skip",
        meta={"model": model}, cliponaxis=False,
    )  # fmt: skip


def _add_best(figure: go.Figure, choices: Choices, model: Value, chip: Value) -> None:
    index = choices.best_index(model, chip)
    if index is None:
        return
    found = choices.laws.points(np.array([index]))
    if not np.isfinite(found[FLOP_RATE][0]):
        return
    study = choices.study
    first = choices.results.first
    design = design_text(study, study.space.point(index), ("model", "hardware")).replace(", ", "<br>")
    figure.add_scatter(
        x=found[_INTENSITY], y=found[FLOP_RATE], mode="markers",
        marker={"symbol": "star", "size": 15, "color": "#d55e00", "line": {"color": "#ffffff", "width": 1}},
        hovertemplate=f"best: {metric_value(study, first, float(found[first][0]))}<br>{design}<extra></extra>",
        meta={"model": str(model)},
    )  # fmt: skip
