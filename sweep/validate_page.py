"""A comparison of speeds as one page that asks nothing of any network: figures, groups, the rows furthest off."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

import numpy as np

from kvwall.sweep.report.page import document, tiles_html
from kvwall.sweep.report.parts import Section, Table
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.speed_groups import ENGINE_UNSTATED
from kvwall.sweep.speed_prediction import Predicted, reason_counts
from kvwall.sweep.speed_table import cells, percent
from kvwall.sweep.store.atomic import write_atomically
from kvwall.sweep.validate_plot import plot_panel
from kvwall.sweep.validate_speed import SpeedReport

HEAD: Final = ("rows", "median error", "mean error", "time", "in the band")
_BADGE: Final = "Estimates beside measurements"
_TITLE: Final = "Predicted against measured speeds"
_MOST_ROWS: Final = 30


def write_page(report: SpeedReport, path: Path) -> None:
    """Write the page. Raises InputError where the file cannot be written."""
    write_atomically(path, page(report).encode(), "--plot")


def page(report: SpeedReport) -> str:
    """The page as HTML."""
    record = report.record
    header = f"""<p class="badge">{_BADGE}</p>
<h1>{_TITLE}</h1>
{tiles_html(_tiles(report))}
<p class="note">Calibration {escape(record.version)} of {escape(record.fitted)}, {record.rows:,} rows. Rows that this
calibration was fitted to are no proof of it.</p>"""
    return document(_TITLE, header, [_figures(report), _groups(report), _furthest(report), _refused(report)])


def _tiles(report: SpeedReport) -> list[tuple[str, str, str]]:
    found = report.overall
    bias = found.bias_time or 0.0
    return [
        (f"{found.n:,}", "row predicted" if found.n == 1 else "rows predicted", f"{len(report.refused):,} refused"),
        (percent(found.median_ape), "median error", "half of the rows are nearer"),
        (percent(found.mape), "mean error", f"on average {percent(abs(bias))} too {'slow' if bias > 0 else 'fast'}"),
        (percent(found.coverage, 0), "inside the band", "80 % are meant to be"),
        (f"{report.outside:,}", "extrapolated", "beyond what was measured"),
    ]


def _figures(report: SpeedReport) -> Section:
    lead = "A marker on the line is as predicted. A click on a name of the legend hides it."
    notes = (
        "A latency of a whole request is divided by its tokens, its prefill included. A rate of several devices is "
        "divided by their number.",
    )
    return Section("figures", "Predicted against measured", (lead,), (plot_panel(report),), notes)


def _groups(report: SpeedReport) -> Section:
    lead = "Errors are of each row's own number; time: above 0 % predicted too slow, below too fast."
    rows, before = [], ""
    for by, found in report.groups:
        ((name, value),) = by.items()
        rows.append(("" if name == before else name, _shown(name, value), *cells(found)))
        before = name
    return Section("groups", "By group", (lead,), (Table(("by", "group", *HEAD), tuple(rows), left=2),))


def _shown(name: str, value: str) -> str:
    return short_name(value) if name in ("model", "hardware") else value


def _furthest(report: SpeedReport) -> Section:
    size = np.abs(np.log1p(report.errors.slower))
    worst = [report.predictions[place] for place in np.argsort(-size, kind="stable")[:_MOST_ROWS]]
    head = ("row", "model", "chip", "engine", "batch", "in/out", "metric", "measured", "predicted", "band", "source")
    rows = tuple(_row(each) for each in worst)
    title = f"The {len(worst)} rows furthest off"
    return Section("furthest", title, (), (Table(head, rows, left=4),))


def _row(each: Predicted) -> tuple[str, ...]:
    row, axes = each.usable.row, each.usable.axes
    numbers = [f"{value:.4g}" for value in (each.measured, each.predicted, each.low, each.high)]
    return (
        each.id,
        short_name(each.usable.model),
        f"{row.n_devices or 1} x {short_name(str(axes['hardware']))}",
        each.engine or ENGINE_UNSTATED,
        f"{axes['batch']}",
        f"{row.input_tokens}/{row.output_tokens or '?'}",
        row.metric,
        numbers[0],
        numbers[1],
        f"{numbers[2]} to {numbers[3]}",
        row.source,
    )


def _refused(report: SpeedReport) -> Section:
    if not report.refused:
        return Section("refused", "Refused rows", ("None.",))
    rows = tuple((reason, f"{count:,}") for reason, count in reason_counts(report.refused).items())
    return Section("refused", "Refused rows", ("A row may have several reasons.",), (Table(("reason", "rows"), rows),))
