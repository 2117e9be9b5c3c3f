"""The scales of figures of losses: little and much can be read of both a loss and what it is lost for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from kvwall.sweep.report.loss_asked import LOG_RATIO, Remedy
from kvwall.sweep.report.style import frame

LINEAR: Final = 0.01
"""Loss up to which the vertical scale is near linear; beyond, it is near logarithmic."""
LOWEST: Final = -0.05
"""Results that gain more are drawn here."""
_BIT_TICKS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 12, 16)
_SHARE_TICKS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.75, 0.9, 1)
_ALL: Final = 1.02
"""Where the horizontal scale of shares, a logit, has its end: just beyond 1."""
_LOSS_TICKS: Final = (-0.05, -0.01, 0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
_X_TITLES: Final = {
    "quantizer": "bits of keys and values", "evictor": "tokens kept, %", "reader": "kept tokens read, %",
    "weight_quantizer": "bits of weights",
}  # fmt: skip


def scaled(loss: Any) -> Any:
    """A loss on the vertical scale.

    >>> [round(float(scaled(each)), 2) for each in (0.0, 0.01, 1.0)]
    [0.0, 0.88, 5.3]
    """
    return np.arcsinh(np.asarray(loss, np.float64) / LINEAR)


def across(remedy: Remedy, setting: Any) -> Any:
    """A setting on the horizontal scale: a logarithm of bits, near a logit of shares."""
    value = np.asarray(setting, np.float64)
    return np.log(value) if remedy.in_bits else np.log(value / (_ALL - value))


def layout(remedy: Remedy, span: tuple[float, float], tasks: Sequence[str]) -> go.Layout:
    """The axes of a figure of these tasks between two settings."""
    ticks = [tick for tick in (_BIT_TICKS if remedy.in_bits else _SHARE_TICKS) if 0.99 * span[0] <= tick <= span[1]]
    words = [f"{tick:g}" if remedy.in_bits else f"{100 * tick:g}" for tick in ticks]
    first, last = across(remedy, span)
    edge = 0.03 * (last - first)
    percent = tasks[0] != LOG_RATIO
    x = {
        "title": {"text": _X_TITLES[remedy.remedy], "standoff": 10}, "tickvals": across(remedy, ticks).tolist(),
        "ticktext": words, "tickangle": 0, "range": [first - edge, last + edge],
    }  # fmt: skip
    y = {
        "title": {"text": "loss of quality" if percent else "ln(PPL/PPL0)", "standoff": 6},
        "tickvals": scaled(_LOSS_TICKS).tolist(),
        "ticktext": [f"{100 * tick:g} %" if percent else f"{tick:g}" for tick in _LOSS_TICKS],
        "zeroline": True, "zerolinecolor": "#c5ccd3",
    }  # fmt: skip
    return frame(x, y, showlegend=False, hovermode="closest")
