"""Write `docs/accuracy.md`: what estimates are worth on rows left out of their fit; `--check` only compares.

Run `python docs/accuracy.py [--check]`; the numbers are those of `python -m kvwall.sweep.calibration.estimate`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from kvwall.spaces.calibration import Calibration, load_calibration
from kvwall.spaces.kernel_record import load_kernel_record
from kvwall.sweep.accuracy import Accuracy
from kvwall.sweep.calibration.kernel_checks import Compared, slopes, speed_ups
from kvwall.sweep.calibration.kernel_import import LARGE
from kvwall.sweep.calibration.kernel_rows import AttentionRow, KVSpeedRow, read_kernel_rows
from kvwall.sweep.held_out_record import GroupScore, HeldOutRecord, OwnRows, load_held_out
from kvwall.sweep.speed_table import cells

PAGE = Path(__file__).parent / "accuracy.md"
LABELS = {
    "hardware": "Hardware",
    "engine": "Engine",
    "model": "Model",
    "precision": "Precision",
    "context": "Context",
    "batch": "Batch",
    "source": "Source of the rows",
}
"""Label of groups -> heading; labels that the record lacks are left out, others follow under their own name."""
_NUMBERS = ("rows", "median error", "mean error", "time", "in the band")

_HEAD = """# How far off estimates are

Written by `python docs/accuracy.py`; do not edit.

`--mode estimate` predicts speeds with a record fitted to published measurements
(`spaces/catalog/calibration/estimate.json`). This page says what such predictions are worth where the fit of whole
steps has not seen what is predicted; the kernels below it (`kernels.json`) are those of all chips. The numbers are
written by the command that fits the record, `python -m kvwall.sweep.calibration.estimate`.

- Rows: those of `spaces/catalog/measured/decode.parquet`. Repeats of a configuration count once, as their median.
- Left out are whole groups, never single rows: all rows of a model on a chip, or all rows of a chip. The rest is fitted
  again, and predicts them.
- An error is |predicted / measured - 1| of the time. `time` is the mean of predicted / measured - 1: above 0 % is too
  slow.
- `in the band`: share of rows between the 10 % and the 90 % bound; 80 % are meant to be. How much models differ, which
  is part of the bands' width, was set on one half of the groups left out for the other half.
- Models of the same matrices, such as Llama-3 and Llama-3.1 of 8B, are left out together.
"""

_LIMITS = """## What to keep in mind

- Sources are few: most rows come from three collections, so the median describes these.
- A row tells its lengths and its batch as nominal numbers. Under load they vary, and the row is their mean.
- A chip, an engine or a KV format without rows borrows from its relatives, and its band is wider. `evaluate` and
  `validate` flag it as extrapolated, as they do a context or a batch beyond the largest measured.
- Rows of whole requests hold prefill's arithmetic, but few rows are of the time to the first token alone, and none
  states a server's queue: its band is wider by a judgement, and it is the least sure of all times here.
- Speculative decoding, tiers and sparse reads have no rows of whole steps here: their part of an estimate is the law's.
- Engines change every month. A generation of an engine is calibrated as one:
  `spaces/catalog/calibration/generations.toml` says which versions belong together.
- Routing of experts is taken as uniform. Skewed routing reads fewer experts, and waits for the busiest device.
- Rows of your own beat all of this: `kvwall calibrate RUNS... --out RECORD.json` adapts the record to your machine.
  `kvwall validate ROWS...` makes the tables of this page for any rows.
"""


def page(held: HeldOutRecord, record: Calibration) -> str:
    """The whole page."""
    parts = (
        _whole(held, record),
        _forms(held),
        _own(held),
        _groups(held),
        _chips(held),
        _kernels(),
        _refused(held),
    )
    return "\n".join([_HEAD, *(line for part in parts for line in part), _LIMITS])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" if place < left else "---:" for place in range(len(head))) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _whole(held: HeldOutRecord, record: Calibration) -> Iterator[str]:
    yield f"{held.rows:,} configurations; record {record.version} of {record.fitted}, fitted to {record.rows:,}."
    yield f"Reasons to refuse a row were found {sum(held.refused.values()):,} times (below).\n"
    ways = {"pair": "model and chip never seen together", "chip": "no whole step of the chip seen"}
    rows = []
    for way, words in ways.items():
        kinds = held.left_out[way]
        rows.append((words, "dense", *cells(kinds.dense.accuracy)))
        rows.append((words, "routed experts", *cells(kinds.experts.accuracy)))
    alone = held.pure_bandwidth.accuracy
    rows.append(("model and chip never seen together", "llama.cpp and gpt-fast at batch 1", *cells(alone)))
    yield from _table(("left out", "models", *_NUMBERS), rows, left=2)


def _forms(held: HeldOutRecord) -> Iterator[str]:
    yield "## Forms of the model that were tried\n"
    yield "Each fitted and left out in the same way, by pairs of model and chip. The last is the one in use.\n"
    rows = [
        (f"{form.name}: {form.meaning}", *_two(form.dense.accuracy), *_two(form.experts.accuracy))
        for form in held.forms
    ]
    yield from _table(("form", "dense: median", "mean", "experts: median", "mean"), rows)


def _two(found: Accuracy) -> tuple[str, ...]:
    return tuple(cells(found)[1:3])


def _own(held: HeldOutRecord) -> Iterator[str]:
    if not held.own_rows:
        return
    yield "## What ten rows of your own are worth\n"
    yield "The chip left out of the fit, which is then told ten rows of one engine on it, drawn at random."
    yield "Median error on the other rows of that engine on that chip.\n"
    rows = [
        (one.chip, one.engine, f"{one.rows:,}", f"{100 * one.before:.1f} %", f"{100 * one.after:.1f} %", _change(one))
        for one in held.own_rows
    ]
    yield from _table(("chip", "engine", "rows", "before", "after", "change"), rows, left=2)


def _change(one: OwnRows) -> str:
    return f"{100 * (one.after / one.before - 1):+.0f} %" if one.before else ""


def _groups(held: HeldOutRecord) -> Iterator[str]:
    yield "## By group\n"
    yield "Predicted without the row's pair of model and chip. Groups of a few rows say little.\n"
    others = {name: name for group in held.groups for name in group.by if name not in LABELS}
    for label, heading in (LABELS | others).items():
        found = held.of(label)
        if found:
            yield f"### {heading}\n"
            rows = sorted(found, key=lambda group: _order(label, group))
            yield from _table((label, *_NUMBERS), [(group.by[label], *cells(group.accuracy)) for group in rows])


def _order(label: str, group: GroupScore) -> tuple[float, str]:
    """Bands by their lower end, other groups by their rows."""
    start = group.by[label].split()[0]
    bands = label in ("context", "batch") and start.isdigit()
    return (float(start) if bands else -float(group.n)), group.by[label]


def _chips(held: HeldOutRecord) -> Iterator[str]:
    yield "## Chips left out\n"
    yield "Predicted without any row of the chip.\n"
    some = sorted(held.chips, key=lambda group: -group.n)
    yield from _table(
        ("chip", *_NUMBERS), [(group.by["hardware"], *cells(group.accuracy)) for group in some if group.n]
    )


def _kernels() -> Iterator[str]:
    record = load_kernel_record()
    yield "## Kernels\n"
    yield "From what single kernels reach (`spaces/catalog/calibration/kernels.json`), for calls that read much KV."
    yield "The record is fitted to these very kernels: this is how well its law describes them, not how well it"
    yield "foresees others.\n"
    yield "Growth of a layer's attention time with context, between neighbouring contexts of one shape:\n"
    found = slopes(record, read_kernel_rows(AttentionRow), LARGE)
    growth = _by_cell([replace(each, cell=_without_engine(each.cell)) for each in found])
    rows = [(*cell.split("/"), f"{len(some)}", _median_off(some)) for cell, some in growth.items()]
    rows.append(("all", "", f"{len(found)}", _median_off(found)))
    yield from _table(("chip", "KV", "pairs", "median error"), rows, left=2)
    yield "What 8-bit KV gains over 16-bit KV, as a factor on the speed of attention:\n"
    pairs = speed_ups(record, read_kernel_rows(KVSpeedRow), LARGE)
    rows = [(*cell.split("/"), *_gain(some)) for cell, some in _by_cell(pairs).items()]
    rows.append(("all", "", *_gain(pairs)))
    yield from _table(("chip", "engine", "pairs", "measured", "predicted", "median difference"), rows, left=2)


def _without_engine(cell: str) -> str:
    chip, _, kv_format = cell.split("/")
    return f"{chip}/{kv_format}"


def _median_off(some: Sequence[Compared]) -> str:
    return f"{100 * median(abs(each.ratio - 1) for each in some):.1f} %"


def _gain(some: Sequence[Compared]) -> tuple[str, ...]:
    measured, predicted = median(each.measured for each in some), median(each.predicted for each in some)
    off = median(abs(each.predicted - each.measured) for each in some)
    return f"{len(some)}", f"{measured:.2f}", f"{predicted:.2f}", f"{off:.2f}"


def _by_cell(found: Iterable[Compared]) -> dict[str, list[Compared]]:
    cells_of: dict[str, list[Compared]] = defaultdict(list)
    for each in found:
        cells_of[each.cell].append(each)
    return dict(sorted(cells_of.items()))


def _refused(held: HeldOutRecord) -> Iterator[str]:
    yield "## Refused rows\n"
    yield "A row may have several reasons.\n"
    counts = sorted(held.refused.items(), key=lambda each: (-each[1], each[0]))
    yield from _table(("reason", "rows"), [(reason, f"{count}") for reason, count in counts])


def main() -> None:
    """Write or check the page."""
    now = page(load_held_out(), load_calibration())
    if "--check" in sys.argv:
        sys.exit("docs/accuracy.md is out of date: python docs/accuracy.py" if now != PAGE.read_text() else 0)
    PAGE.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
