"""What each remedy does to the speed of a step, against context: near 1x before the wall, rising beyond it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.laws import Computed
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section, Selector
from kvwall.sweep.report.style import INK, MUTED, axis, frame, tokens_axis
from kvwall.sweep.report.wording import metric_value, short_name

_STEP = "time_per_output_token"


@dataclass(frozen=True)
class Remedy:
    """One remedy alone, everything else neutral."""

    name: str
    axes: Mapping[str, Value]
    colour: str


REMEDIES = (
    Remedy("KV 8 bit", {"key_bits": 8.0, "value_bits": 8.0}, "#9ecae1"),
    Remedy("KV 4 bit", {"key_bits": 4.0, "value_bits": 4.0}, "#4292c6"),
    Remedy("KV 2 bit", {"key_bits": 2.0, "value_bits": 2.0}, "#08519c"),
    Remedy("half the tokens kept", {"retention": 0.5}, "#fdae6b"),
    Remedy("a quarter of the tokens kept", {"retention": 0.25}, "#d94801"),
    Remedy("weights 8 bit", {"weight_bits": 8.0}, "#a1d99b"),
    Remedy("weights 4 bit", {"weight_bits": 4.0}, "#238b45"),
    Remedy("half the KV in host memory", {"placement_host": 0.5}, "#7a5195"),
)

_OFFLOAD = REMEDIES[-1]


@dataclass(frozen=True)
class _Grid:
    batches: list[Value]
    contexts: list[int]


def speedup_section(choices: Choices) -> Section:
    """The section."""
    grid = _grid(choices)
    plots = tuple(_plot(choices, grid, number, chip) for number, chip in enumerate(choices.chips))
    losses = _losses(choices, grid)
    legend = [
        *(LegendEntry(one.colour, f"{one.name} ({losses[one.name]})", "line", "remedy", one.name) for one in REMEDIES),
        LegendEntry(MUTED, "does not fit with the remedy either", "dotted"),
        LegendEntry(INK, "crossover of the untreated step", "dashed"),
        LegendEntry("#e9ecef", "the untreated step does not fit"),
    ]
    batches = tuple((str(batch), f"{batch:,}") for batch in grid.batches)
    chosen = batches[1][0] if len(batches) > 1 else batches[0][0]
    selectors = (*choices.model_selector(), Selector("batch", "batch", batches, chosen))
    return Section(
        "remedies",
        "What each remedy is worth, against context",
        (
            "Speed of a decode step with one remedy over the same step without any (16-bit KV, every token kept, "
            "weights as published, nothing offloaded). Before the crossover the weights dominate and shrinking the KV "
            "cache does little; beyond it, little else helps. Moving KV to host memory frees device memory but is "
            "usually slower than 1x: every step then reads it over the host link.",
        ),
        (Panel(plots, selectors, tuple(legend)),),
        (
            f"In brackets: loss of quality on the study's task ({choices.study.task}), expected and at most with "
            f"{100 * choices.study.task_confidence:g} % confidence; calibrated on published results, not derived. "
            f"{_group_note(choices)}",
            *choices.ladder_note,
            *choices.cut,
        ),
    )


def _group_note(choices: Choices) -> str:
    base = choices.laws.base()
    if not base["kv_group_size"]:
        return "Low-bit KV is counted without scales, as the study states it."
    scales = float(base["scale_bits"]) + float(base["zero_bits"])
    return f"Low-bit KV carries {scales:g} bits of scale and zero-point per {base['kv_group_size']} elements."


def _grid(choices: Choices) -> _Grid:
    contexts = [float(value) for value in choices.ladder("context", 1000)]
    spaced = np.geomspace(contexts[0], contexts[-1], 61).round().astype(int)
    return _Grid(choices.two_batches(), sorted(set(spaced.tolist())))


def _losses(choices: Choices, grid: _Grid) -> dict[str, str]:
    """Remedy -> its loss in words, the largest over the contexts shown."""
    told = {}
    for remedy in REMEDIES:
        found = _evaluated(choices, grid, choices.models[0], choices.chips[0], remedy.axes)
        central, upper = (float(np.max(found[name])) for name in ("quality_loss", "quality_loss_upper"))
        if upper == 0:
            told[remedy.name] = "no loss"
            continue
        study = choices.study
        told[remedy.name] = (
            f"loss {metric_value(study, 'quality_loss', central)}, at most "
            f"{metric_value(study, 'quality_loss_upper', upper)}"
        )
    return told


def _evaluated(choices: Choices, grid: _Grid, model: Value, chip: Value, remedy: Mapping[str, Value]) -> Computed:
    devices = choices.degrees[model, chip][0]
    fixed: dict[str, Value | Sequence[Value]] = {"model": model, "hardware": chip, "tensor_parallel": devices, **remedy}
    return choices.laws.grid(batch=grid.batches, context=list(grid.contexts), **fixed)


def _plot(choices: Choices, grid: _Grid, number: int, chip: Value) -> Plot:
    figure = go.Figure(
        layout=frame(
            {**tokens_axis("context (tokens)", grid.contexts), "range": _range(grid)},
            axis("speedup of the step", tickformat="~g", suffix="x", rangemode="tozero"),
            showlegend=False,
        )
    )
    figure.add_hline(y=1, line={"color": MUTED, "width": 1})
    notes = []
    for model in choices.models:
        devices, fits = choices.degrees[model, chip]
        whose = f"{short_name(str(model))}: " if len(choices.models) > 1 else ""
        plural = f"{devices} devices, which do" if devices > 1 else "1 device, which does"
        held = plural.split(",")[0] if fits else f"{plural} not hold the untreated weights"
        sentences = [*_add_model(figure, choices, grid, model, chip)]
        notes.append(f"{whose}{'; '.join([held, *sentences])}.")
    return Plot(f"speedup-{number}", short_name(str(chip)), figure, " ".join(notes), 420)


def _range(grid: _Grid) -> list[float]:
    return [math.log10(grid.contexts[0]), math.log10(grid.contexts[-1])]


def _add_model(figure: go.Figure, choices: Choices, grid: _Grid, model: Value, chip: Value) -> Iterator[str]:
    """Draw every batch; yields sentences about what is missing."""
    untreated = _evaluated(choices, grid, model, chip, {})
    treated = {one.name: _evaluated(choices, grid, model, chip, one.axes) for one in REMEDIES}
    speedups = {name: untreated[_STEP] / found[_STEP] for name, found in treated.items()}
    known = [values[np.isfinite(values)] for values in speedups.values()]
    shown = np.concatenate(known) if any(len(values) for values in known) else np.ones(1)
    high = max(2.0, float(np.max(shown))) * 1.08
    figure.update_yaxes(range=[0, high])
    for row, batch in enumerate(grid.batches):
        meta = {"model": str(model), "batch": str(batch)}
        _add_marks(figure, grid, untreated, row, (0.0, high), meta)
        for one in REMEDIES:
            fits = treated[one.name].words("status")[row] == "ok"
            _add_curve(figure, grid, one, speedups[one.name][row], fits, meta)
    offloaded = speedups[_OFFLOAD.name][np.isfinite(speedups[_OFFLOAD.name])]
    if len(offloaded):
        span = f"{np.min(offloaded):.2g}x to {np.max(offloaded):.2g}x"
        yield f"{_OFFLOAD.name}: {span} over all batches and contexts shown"
    missing = [name for name, values in speedups.items() if not np.isfinite(values).any()]
    if missing:
        yield f"not shown, as a figure it needs has no source: {', '.join(missing)}"


def _add_marks(
    figure: go.Figure, grid: _Grid, untreated: Computed, row: int, span: tuple[float, float], meta: Mapping[str, str]
) -> None:
    """Shade where the untreated step does not fit, and mark its crossover."""
    contexts = np.array(grid.contexts)
    lost = untreated.words("status")[row] != "ok"
    if lost.any():
        first = int(np.argmax(lost))
        left = contexts[0] if first == 0 else math.sqrt(float(contexts[first - 1] * contexts[first]))
        right = contexts[-1]
        figure.add_scatter(
            x=[left, left, right, right], y=[span[0], span[1], span[1], span[0]], mode="lines", fill="toself",
            fillcolor="#e9ecef", line={"width": 0}, hoverinfo="skip", meta=meta,
        )  # fmt: skip
    crossover = float(untreated["crossover_context_bytes"][row, 0])
    if contexts[0] <= crossover <= contexts[-1]:
        figure.add_scatter(
            x=[crossover] * 2, y=list(span), mode="lines", line={"color": INK, "width": 1.5, "dash": "dash"},
            hovertemplate=f"crossover at {crossover:,.0f} tokens<extra></extra>", meta=meta,
        )  # fmt: skip


def _add_curve(
    figure: go.Figure, grid: _Grid, remedy: Remedy, speedup: NDArray[np.float64], fits: NDArray[np.bool_],
    meta: Mapping[str, str],
) -> None:  # fmt: skip
    """Solid where the design fits, thin and dotted where it does not: such a speed cannot be had."""
    known = np.isfinite(speedup)
    if not known.any():
        return
    both = {**meta, "remedy": remedy.name}
    if not fits.all():
        figure.add_scatter(
            x=grid.contexts, y=np.where(known, speedup, np.nan), mode="lines", meta=both,
            line={"color": remedy.colour, "width": 1, "dash": "dot"},
            hovertemplate=f"{remedy.name}: %{{y:.2f}}x, but it does not fit<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=grid.contexts, y=np.where(known & fits, speedup, np.nan), mode="lines", meta=both,
        line={"color": remedy.colour, "width": 4 if "key_bits" in remedy.axes else 2},
        hovertemplate=f"{remedy.name}: %{{y:.2f}}x at %{{x:,.0f}} tokens<extra></extra>",
    )  # fmt: skip
