"""Which resource limits a step, over context and batch, per chip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from kvwall.spaces.axes import Value
from kvwall.sweep.endless import no_crossover
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.laws import Computed, spread, study_values
from kvwall.sweep.report.parts import LegendEntry, Panel, Plot, Section, Selector
from kvwall.sweep.report.style import INK, REGIME_COLOURS, frame, tokens_axis
from kvwall.sweep.report.wording import REGIME_WORDS, short_name

_BITS = (16.0, 8.0, 4.0, 2.0)
_KEPT = (1.0, 0.5)
_MOST_DEGREES = 4
_MOST_CELLS = 90_000
"""Over all maps of the page: keeps the file small."""
_WORDS = {
    **REGIME_WORDS,
    "layout": "cannot be split over so many devices",
    "unsourced": "a needed figure has no source",
}
_CODES = tuple(word for word in REGIME_COLOURS if word != "overhead")


@dataclass(frozen=True)
class _Grid:
    """The maps' axes, in the order of the arrays: chip, devices, bits, share kept, batch, context."""

    degrees: list[Value]
    batches: list[Value]
    contexts: list[Value]


def phase_section(choices: Choices) -> Section:
    """The section."""
    grid = _grid(choices)
    maps = {model: _evaluated(choices, model, grid) for model in choices.models}
    codes = {model: _codes(found) for model, found in maps.items()}
    present = np.unique(np.concatenate([np.unique(code) for code in codes.values()]))
    legend = [LegendEntry(REGIME_COLOURS[_CODES[code]], _WORDS[_CODES[code]]) for code in present]
    lines = [
        LegendEntry(INK, "crossover: a step reads as many KV bytes as weight bytes", "line"),
        LegendEntry(INK, "capacity: the longest context that fits", "dashed"),
    ]
    plots = tuple(
        Plot(f"phase-{number}", short_name(str(chip)), _figure(choices, grid, maps, codes, number), height=400)
        for number, chip in enumerate(choices.chips)
    )
    return Section(
        "phases",
        "Phase maps: what limits a decode step",
        (
            "Left and below, a step is limited by reading the weights; right of the crossover line KV reads take over; "
            "right of the capacity line the KV cache does not fit at all. Choose a KV format and a tensor-parallel "
            "degree to see how far a remedy moves the walls. Weights are as published, no KV is offloaded.",
        ),
        (Panel(plots, (*choices.model_selector(), *_selectors(choices, grid, codes)), (*legend, *lines)),),
        (*_without_line(choices, maps), *choices.ladder_note, *choices.cut),
    )


def _without_line(choices: Choices, maps: dict[Value, Computed]) -> Iterator[str]:
    """Sentences about models that have no crossover line at some batches."""
    records = dict(zip(choices.study.space.values("model"), choices.study.catalogue.models, strict=True))
    for model, found in maps.items():
        crossover, whose = found["crossover_context_bytes"], short_name(str(model))
        if np.isinf(crossover).any():
            yield f"{whose} has no crossover at some batches: {no_crossover(records[model]).removeprefix('never: ')}."
        if (crossover == 0).any():
            yield f"{whose} has no crossover at some batches: its recurrent state alone outweighs the weights read."


def _grid(choices: Choices) -> _Grid:
    degrees = spread(study_values(choices.study, "tensor_parallel"), _MOST_DEGREES)
    maps = len(choices.models) * len(choices.chips) * len(degrees) * len(_BITS) * len(_KEPT)
    side = min(40, max(14, math.isqrt(_MOST_CELLS // maps)))
    return _Grid(degrees, choices.ladder("batch", side, 3), choices.ladder("context", side, 3))


def _evaluated(choices: Choices, model: Value, grid: _Grid) -> Computed:
    return choices.laws.grid(
        hardware=choices.chips, tensor_parallel=grid.degrees, key_bits=list(_BITS), retention=list(_KEPT),
        batch=grid.batches, context=grid.contexts, value_bits="key_bits", model=model,
    )  # fmt: skip


def _codes(found: Computed) -> NDArray[np.int8]:
    """Index into _CODES of every point."""
    words = np.where(found.words("status") == "memory", "capacity", found.words("regime"))
    words = np.where(found.words("status") == "layout", "layout", words)
    words = np.where(found.words("status") == "unsourced_input", "unsourced", words)
    codes = np.zeros(words.shape, dtype=np.int8)
    for code, word in enumerate(_CODES):
        codes[words == word] = code
    return codes


def _selectors(choices: Choices, grid: _Grid, codes: dict[Value, NDArray[np.int8]]) -> Iterator[Selector]:
    formats = tuple(
        (f"{bits:g}-{kept:g}", f"{bits:g}-bit KV, {'all' if kept == 1 else 'half the'} tokens kept")
        for kept in _KEPT
        for bits in _BITS
    )
    yield Selector("format", "KV cache", formats, formats[0][0])
    if len(grid.degrees) > 1:
        # the most devices that can be laid out on every chip
        layout = codes[choices.models[0]] == _CODES.index("layout")
        possible = [n for place, n in enumerate(grid.degrees) if not layout[:, place].all(axis=(1, 2, 3, 4)).any()]
        chosen = str((possible or grid.degrees)[-1])
        yield Selector("devices", "tensor parallel", tuple((str(n), str(n)) for n in grid.degrees), chosen)


def _figure(
    choices: Choices, grid: _Grid, maps: dict[Value, Computed], codes: dict[Value, NDArray[np.int8]], chip: int
) -> go.Figure:
    x, y = _edges(grid.contexts), _edges(grid.batches)
    figure = go.Figure(
        layout=frame(
            {**tokens_axis("context (tokens)", [int(v) for v in grid.contexts]), "range": _log_range(x)},
            {**tokens_axis("batch", [int(v) for v in grid.batches]), "range": _log_range(y)},
            showlegend=False,
        )
    )
    for model, found in maps.items():
        for place in np.ndindex(len(grid.degrees), len(_BITS), len(_KEPT)):
            meta = {
                "model": str(model),
                "devices": str(grid.degrees[place[0]]),
                "format": f"{_BITS[place[1]]:g}-{_KEPT[place[2]]:g}",
            }
            where = (chip, *place)
            rates = found["tokens_per_second_per_device"][where]
            _add_map(figure, grid, (x, y), codes[model][where], rates, meta)
            for name, dash in (("crossover_context_bytes", "solid"), ("max_context", "dash")):
                contexts = found[name][where][:, 0]
                _add_line(figure, grid, np.where(contexts <= 4 * x[-1], contexts, 0.0), dash, meta)
    return figure


def _edges(values: Sequence[Value]) -> list[float]:
    """Borders between values on a logarithmic scale; a single value gets a cell around it."""
    logs = np.log([float(value) for value in values])
    if len(logs) == 1:
        return [float(np.exp(logs[0] - 0.35)), float(np.exp(logs[0] + 0.35))]
    middles = (logs[1:] + logs[:-1]) / 2
    ends = [2 * logs[0] - middles[0], 2 * logs[-1] - middles[-1]]
    return [round(float(edge), 4) for edge in np.exp([ends[0], *middles, ends[1]])]


def _log_range(edges: Sequence[float]) -> list[float]:
    return [math.log10(edges[0]), math.log10(edges[-1])]


def _add_map(
    figure: go.Figure, grid: _Grid, edges: tuple[list[float], list[float]], codes: NDArray[np.int8],
    rates: NDArray[np.float64], meta: dict[str, Any],
) -> None:  # fmt: skip
    count = len(_CODES)
    steps = [[(place + end) / count, REGIME_COLOURS[word]] for place, word in enumerate(_CODES) for end in (0, 1)]
    figure.add_heatmap(
        x=edges[0], y=edges[1], z=codes.tolist(), zmin=-0.5, zmax=count - 0.5, showscale=False,
        colorscale=steps,
        # the page's script makes the hover text of these three
        customdata=[[_short(rate) for rate in row] for row in rates],
        meta={**meta, "words": [_WORDS[word] for word in _CODES],
              "contexts": grid.contexts, "batches": grid.batches, "hidden": [_CODES.index("capacity")]},
        hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _short(rate: float) -> float | None:
    return float(f"{rate:.3g}") if math.isfinite(rate) else None


def _add_line(figure: go.Figure, grid: _Grid, contexts: NDArray[np.float64], dash: str, meta: dict[str, Any]) -> None:
    """A context for each batch; 0 where there is none to show."""
    figure.add_scatter(
        x=[float(f"{context:.5g}") if context > 0 else None for context in contexts],
        y=[int(batch) for batch in grid.batches], mode="lines",
        line={"color": INK, "width": 2.5, "dash": dash}, hoverinfo="skip", meta=meta,
    )  # fmt: skip
