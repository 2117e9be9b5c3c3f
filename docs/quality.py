"""Write `docs/quality.md`: what the quality curves are worth on sources left out of their fit; `--check` only compares.

Run `python docs/quality.py [--check]`; the numbers are those of `python -m kvwall.sweep.quality.held_out_record`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

import numpy as np

from kvwall.spaces.quality import QualityCurves, load_quality_curves
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality.held_out import FEWEST_ROWS
from kvwall.sweep.quality.held_out_record import HeldOutRow, load_held_out
from kvwall.sweep.quality.scores import Floats, Scores, SourceScores, scores, source_scores, source_weights

PAGE = Path(__file__).parent / "quality.md"
PERPLEXITY = "perplexity"
LEVEL = 0.9
"""Confidence of the tables; that of studies which state none."""
_WORST, _WIDTH = 5, 120
_LARGE = 0.5
"""ln(PPL/PPL0) of a model that is hardly of use."""
_SCORED = ("rows", "sources", "curves", "no loss", "best constant", "bias")
_UPPER = ("upper curve", "best constant", "covered: rows", "sources")
_OF_GROUPS = ("rows", "mean error", "of no loss", "bias", "covered")

_HEAD = f"""# What the quality curves are worth

Written by `python docs/quality.py`; do not edit.

Losses of compressed KV caches and weights come from curves fitted to published results
(`spaces/catalog/quality/curves.json`). This page says what such predictions are worth on results of a source that the
fit has not seen: the situation of a reader with a new method, a new model, a new way of measuring. The numbers are
written, row by row, by `python -m kvwall.sweep.quality.held_out_record`.

- Left out is a whole source at a time, a paper or a repository, never single rows: rows of one source are not
  independent. The rest is fitted again, central curves and upper ones, and predicts the source.
- Only sources of {FEWEST_ROWS} rows or more are left out; smaller ones help to fit, and are not scored.
- Losses of accuracy are relative to the 16-bit, full-cache model, from 0 to 1. Perplexity is ln(PPL/PPL0), in tables of
  its own: no number is of both.
- Every row is predicted for its own benchmark, method, bits, kept tokens and kind of model. A method that no other
  source measured is predicted as its family.
- In the tables by task, all sources of a task count the same, whatever their number of rows.
- *No loss* is the mean error of predicting 0. *Best constant* is the one number with the least error on the very rows
  that are scored, found by looking at the answers: the strictest comparison that knows no settings.
- *Upper curve* is the pinball loss of the upper curve at {LEVEL:g}, what a quantile is judged by; its best constant is
  the {LEVEL:g} quantile of the scored rows. *Covered* is the share of rows that lose no more than the upper curve says.
- *Bias* is the mean of predicted less observed: above 0 too much loss is predicted.
"""

_LIMITS = """## What to keep in mind

- Sources are few, and a handful of them holds most rows. A number by task is the mean over the sources in its line.
- What was chosen on sources left out (the form of the curves, the strengths by which effects are drawn together, the
  margin of the upper curves) was chosen on these sources. A source that nobody has seen may do worse.
- One method loses differently in two codes. Points of your own, on your own model, tell more than any curve:
  `kvwall calibrate ROWS... --quality` narrows the curves to them.
- `kvwall validate ROWS... --quality` makes tables like these for any rows. For rows of sources that are in the fit they
  are no test; this page is.
"""


def page(held: Sequence[HeldOutRow], curves: QualityCurves) -> str:
    """The whole page."""
    accuracy = [row for row in held if row.task != PERPLEXITY]
    perplexity = [row for row in held if row.task == PERPLEXITY]
    parts = (
        _whole(held, curves),
        _tasks(accuracy),
        _perplexity(perplexity),
        _confidences(accuracy, perplexity),
        _worst(accuracy),
        _sources(accuracy, perplexity),
        _methods(accuracy),
        _vetoed(accuracy),
    )
    return "\n".join([_HEAD, *(line for part in parts for line in part), _LIMITS])


def _whole(held: Sequence[HeldOutRow], curves: QualityCurves) -> Iterator[str]:
    sources = len({row.source for row in held})
    yield f"Record {curves.version} of {curves.fitted}, fitted to {curves.rows:,} rows of {curves.sources} sources."
    yield f"Left out one at a time: {sources} sources with {len(held):,} rows.\n"


def _tasks(rows: Sequence[HeldOutRow]) -> Iterator[str]:
    found = _by_task(rows)
    yield "## Accuracy by task\n"
    yield "The mean error of the central curves, against that of predicting no loss and that of the best constant:\n"
    yield from _central_table(found)
    better = [name for name, each in found.items() if _is_nearer(each)]
    others = [name for name in found if name not in better]
    yield f"The curves are nearer than both in {_listed(better)}{'; not in ' + _listed(others) if others else ''}.\n"
    yield f"The upper curve at {LEVEL:g}, by pinball loss, and how often it holds:\n"
    yield from _upper_table(found)
    yield f"Of all {len(rows):,} rows {_percent(_covered(rows))} are covered.\n"


def _perplexity(rows: Sequence[HeldOutRow]) -> Iterator[str]:
    if not rows:
        return
    yield "## Perplexity\n"
    small = [row for row in rows if row.observed < _LARGE]
    errors = [sum(abs(row.central - row.observed) for row in some) for some in (small, rows)]
    yield from _wrapped(
        f"In ln(PPL/PPL0). {len(rows) - len(small)} of {len(rows)} rows are at {_LARGE:g} and above, perplexities more "
        f"than {np.exp(_LARGE):.1f} times as high; {_percent(1 - errors[0] / errors[1])} of all error is of these."
    )
    yield ""
    yield from _central_table(_by_task(rows))
    yield from _upper_table(_by_task(rows))
    yield f"The other {len(small):,} rows alone:\n"
    yield from _central_table(_by_task(small))
    yield from _short("sources", {name: _scores(some) for name, some in _by(rows, _source).items()})
    yield ""


def _by_task(rows: Sequence[HeldOutRow]) -> dict[str, SourceScores]:
    groups = _by(rows, lambda row: row.task, TASKS)
    return {
        task: source_scores(*_columns(some, LEVEL), [row.source for row in some], LEVEL)
        for task, some in groups.items()
    }


def _is_nearer(found: SourceScores) -> bool:
    own, none = found.scores.mae, found.scores.mae_no_loss
    return own is not None and none is not None and own < min(none, found.constant)


def _central_table(found: Mapping[str, SourceScores]) -> Iterator[str]:
    rows = []
    for task, each in found.items():
        errors = (each.scores.mae, each.scores.mae_no_loss, each.constant)
        counts = (f"{each.scores.n:,}", f"{each.sources}")
        rows.append((task, *counts, *map(_amount, errors), _signed(each.scores.bias)))
    yield from _table(("task", *_SCORED), rows)


def _upper_table(found: Mapping[str, SourceScores]) -> Iterator[str]:
    rows = []
    for task, each in found.items():
        losses = (_amount(each.scores.pinball_upper, 4), _amount(each.upper_constant, 4))
        rows.append((task, *losses, _percent(each.covered), _percent(each.scores.coverage_upper)))
    yield from _table(("task", *_UPPER), rows)


def _confidences(accuracy: Sequence[HeldOutRow], perplexity: Sequence[HeldOutRow]) -> Iterator[str]:
    yield "## At other confidences\n"
    yield "Share of rows covered by the upper curve of each confidence, and the least in any source of"
    yield f"{FEWEST_ROWS} rows or more.\n"
    rows = []
    for level in accuracy[0].upper:
        least = min(_covered(some, level) for some in _large(_by(accuracy, _source)).values())
        equal = source_weights([row.source for row in accuracy])
        of_sources = scores(*_columns(accuracy, level), level, equal).coverage_upper
        rows.append(
            (f"{level:g}", _percent(_covered(accuracy, level)), _percent(of_sources), _percent(least),
             _percent(_covered(perplexity, level)) if perplexity else "")
        )  # fmt: skip
    head = ("confidence", "accuracy: rows", "sources the same", "least in a source", "perplexity: rows")
    yield from _table(head, rows)


def _worst(rows: Sequence[HeldOutRow]) -> Iterator[str]:
    yield "## Where the curves are worst\n"
    yield f"Of accuracy, among groups of {FEWEST_ROWS} rows or more:\n"
    for what, read in (("sources", _source), ("methods", _method)):
        found = {name: _scores(some) for name, some in _large(_by(rows, read)).items()}
        for name, each in sorted(found.items(), key=lambda one: -(one[1].mae or 0.0))[:_WORST]:
            yield from _wrapped(f"{name}: {_in_words(each)}.", "- ")
        worse = sorted(name for name, each in found.items() if (each.mae or 0.0) > (each.mae_no_loss or 0.0))
        if worse:
            yield from _wrapped(f"Predicting no loss would have been nearer for the {what} {_listed(worse)}.", "- ")
        yield from _short(what, found, "- ")
        yield ""


def _short(what: str, found: Mapping[str, Scores], bullet: str = "") -> Iterator[str]:
    """Where the upper curve holds less often than it says."""
    shares = {name: each.coverage_upper or 0.0 for name, each in found.items()}
    short = sorted((share, name) for name, share in shares.items() if round(share, 2) < LEVEL)
    if short:
        listed = _listed([f"{name} ({_percent(share)})" for share, name in short])
        yield from _wrapped(
            f"The upper curve at {LEVEL:g} holds less often than it says for the {what} {listed}.", bullet
        )


def _wrapped(text: str, bullet: str = "") -> Iterator[str]:
    yield from wrap(
        bullet + text, _WIDTH, subsequent_indent=" " * len(bullet), break_long_words=False, break_on_hyphens=False
    )


def _large(groups: Mapping[str, list[HeldOutRow]]) -> dict[str, list[HeldOutRow]]:
    return {name: some for name, some in groups.items() if len(some) >= FEWEST_ROWS}


def _in_words(found: Scores) -> str:
    mae, bias = found.mae or 0.0, found.bias or 0.0
    way = (
        "most of it too little loss"
        if bias < -mae / 2
        else "most of it too much loss"
        if bias > mae / 2
        else "both ways"
    )
    return (
        f"{mae:.3f} off on average over {found.n:,} rows, {way} (bias {bias:+.3f}); no loss would be "
        f"{found.mae_no_loss or 0.0:.3f} off"
    )


def _sources(accuracy: Sequence[HeldOutRow], perplexity: Sequence[HeldOutRow]) -> Iterator[str]:
    yield "## By source\n"
    yield "Each predicted without any of its rows; rows of a source count the same. Accuracy:\n"
    yield from _group_table("source", _by(accuracy, _source))
    yield "Perplexity:\n"
    yield from _group_table("source", _by(perplexity, _source))


def _methods(rows: Sequence[HeldOutRow]) -> Iterator[str]:
    yield "## By method\n"
    yield "Of accuracy. The name of a family stands for methods that are not known by name. Groups of a few rows say"
    yield f"little; those below {FEWEST_ROWS} are left out.\n"
    yield from _group_table("method", _large(_by(rows, _method)))


def _vetoed(rows: Sequence[HeldOutRow]) -> Iterator[str]:
    refused = [row for row in rows if row.veto]
    if not refused:
        return
    yield "## Without what a veto refuses\n"
    yield from _wrapped(
        f"{len(refused):,} of the accuracy rows are of designs that a veto refuses, which no study takes up "
        "unless told to. The tables by task without them:"
    )
    yield ""
    found = _by_task([row for row in rows if not row.veto])
    yield from _central_table(found)
    yield from _upper_table(found)


def _group_table(label: str, groups: Mapping[str, Sequence[HeldOutRow]]) -> Iterator[str]:
    largest = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    yield from _table((label, *_OF_GROUPS), [(name, *_cells(_scores(some))) for name, some in largest])


def _cells(found: Scores) -> tuple[str, ...]:
    errors = (_amount(found.mae), _amount(found.mae_no_loss), _signed(found.bias))
    return f"{found.n:,}", *errors, _percent(found.coverage_upper)


def _scores(rows: Sequence[HeldOutRow]) -> Scores:
    return scores(*_columns(rows, LEVEL), LEVEL)


def _columns(rows: Sequence[HeldOutRow], level: float) -> tuple[Floats, Floats, Floats]:
    observed, central = (np.array([getattr(row, name) for row in rows]) for name in ("observed", "central"))
    return observed, central, np.array([row.upper[level] for row in rows])


def _covered(rows: Sequence[HeldOutRow], level: float = LEVEL) -> float:
    return float(np.mean([row.observed <= row.upper[level] for row in rows]))


def _by(
    rows: Iterable[HeldOutRow], read: Callable[[HeldOutRow], str], order: Sequence[str] = ()
) -> dict[str, list[HeldOutRow]]:
    found: dict[str, list[HeldOutRow]] = defaultdict(list)
    for row in rows:
        found[read(row)].append(row)
    return {name: found[name] for name in (order or sorted(found)) if name in found}


def _source(row: HeldOutRow) -> str:
    return row.source


def _method(row: HeldOutRow) -> str:
    return row.method


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---:" if place else "---" for place in range(len(head))) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "none"


def _amount(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def main() -> None:
    """Write or check the page."""
    now = page(load_held_out(), load_quality_curves())
    if "--check" in sys.argv:
        sys.exit("docs/quality.md is out of date: python docs/quality.py" if now != PAGE.read_text("utf-8") else 0)
    PAGE.write_text(now, encoding="utf-8")


if __name__ == "__main__":
    main()
