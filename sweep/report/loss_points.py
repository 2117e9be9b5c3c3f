"""Published results as points of a figure of losses, and how many of them are not drawn, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import Final

from kvwall.spaces.quality import QualityCurves
from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import TASKS, task_named
from kvwall.sweep.quality.nearness import setting_text, used_by
from kvwall.sweep.quality.prediction import veto_of
from kvwall.sweep.quality.rows import Row, read_cells, read_rows
from kvwall.sweep.quality_results.cells import QualityCells
from kvwall.sweep.readable import metric_text
from kvwall.sweep.report.loss_asked import Remedy

NOT_DRAWN: Final = {
    "combined": "of several remedies at once",
    "average": "averages over several classes of tasks, or single classes of an average",
    "family": "of other methods of the families, as the methods shown have their own",
}
"""Why a row of the tasks and families is not drawn, in the order in which it is asked."""

_WIDTH: Final = 44
"""Letters in a line of what a point tells: a figure cuts what is wider than itself."""


@dataclass(frozen=True)
class Point:
    """A row in a figure."""

    row: Row
    x: float
    """Bits, those of K and V averaged, or the share of the tokens."""
    name: str
    """The study's method that it is of; "" where it only is of the family."""
    own_kind: bool
    """Whether it is of the kind of model, or of scales of weights, that the curve is of."""
    vetoed: bool
    uneven: bool
    """Whether K and V have different bits."""

    @property
    def text(self) -> str:
        """What a reader is told of it, its lines parted by <br>."""
        cells = _cells()[self.row.id]
        loss = metric_text(self.row.loss, "1", "perplexity" if self.row.log_ratio else "quality_loss")
        where = cells.benchmark if cells.subtask == cells.benchmark else f"{cells.benchmark}/{cells.subtask}"
        refused = [f"vetoed: {veto_of(self.row)}"] if self.vetoed else []
        told = [f"{cells.method} on {cells.model}, {where}", f"{setting_text(self.row)}: lost {loss}", cells.source]
        lines = [line for text in (*told, *refused) for line in wrap(text, _WIDTH)]
        return "<br>".join(line.replace("<", "&lt;") for line in lines)


@dataclass(frozen=True)
class Points:
    """The points of one figure and task."""

    drawn: tuple[Point, ...]
    left_out: dict[str, str]
    """Row -> key of NOT_DRAWN."""


def points_of(remedy: Remedy, task: str, traits: Collection[str], curves: QualityCurves) -> Points:
    """The published rows of a remedy's families on a task: of its methods, else of their family.

    Args:
        remedy: that the figure is about.
        task: whose losses it shows.
        traits: of the kind of model that the curves are of.
        curves: the record, which tells what depends on traits.
    """
    candidates = _candidates(remedy, task)
    left_out = {row.id: why for row in candidates if (why := _not_drawn(row, remedy, task))}
    usable = [row for row in candidates if row.id not in left_out]

    def point(row: Row, name: str) -> Point:
        return _point(row, remedy, name, _alike(row, remedy, traits, curves))

    drawn = [point(row, name) for row in usable if (name := _name(row, remedy))]
    measured = {each.name for each in drawn}
    lonely = {remedy.family(name) for name in remedy.names if name not in measured}
    for row in usable:
        if not _name(row, remedy):
            if used_by(row)[remedy.remedy].named.family in lonely:
                drawn.append(point(row, ""))
            else:
                left_out[row.id] = "family"
    return Points(tuple(drawn), left_out)


def tally_text(found: Sequence[Points]) -> str:
    """How many rows figures show, and why the others are not among them."""
    drawn = {point.row.id for points in found for point in points.drawn}
    why: dict[str, str] = {}
    for points in found:
        why |= {name: reason for name, reason in points.left_out.items() if name not in drawn}
    counts = Counter(why.values())
    others = ", ".join(f"{counts[reason]:,} {words}" for reason, words in NOT_DRAWN.items() if counts[reason])
    told = f"{len(drawn):,} published results are drawn, of {len(drawn) + len(why):,} of these tasks and families"
    unfit = sum(read_rows()[1].values())
    return (
        f"{told}{f'; not drawn are {others}' if others else ''}. "
        f"Left out of all are {unfit} that their collector marked unfit."
    )


def _candidates(remedy: Remedy, task: str) -> list[Row]:
    """Rows that take the remedy by a method of its families, scored in a class of the task."""
    classes = {TASKS[place] for place in task_named(task).rows}
    rows, _ = read_rows()
    return [row for row in rows if _of(row, remedy) and any(part.task in classes for part in row.parts)]


def _of(row: Row, remedy: Remedy) -> bool:
    used = used_by(row).get(remedy.remedy)
    return used is not None and used.named.family in remedy.families


def _not_drawn(row: Row, remedy: Remedy, task: str) -> str:
    wanted = task_named(task)
    if len(used_by(row)) > 1:
        return "combined"
    return "average" if (len(row.parts) > 1) != (wanted.weights is not None) else ""


def _name(row: Row, remedy: Remedy) -> str:
    """The study's method that a row is of; a family's name takes all of the family."""
    named, families = used_by(row)[remedy.remedy].named, load_methods()[remedy.methods].families
    alike = [name for name in remedy.names if remedy.family(name) == named.family]
    exact = [name for name in alike if name == named.name]
    return next(iter([*exact, *(name for name in alike if name in families)]), "")


def _alike(row: Row, remedy: Remedy, traits: Collection[str], curves: QualityCurves) -> bool:
    """Whether a row is of what the curve is of, as far as that matters."""
    if remedy.remedy != "quantizer":
        return not row.per_channel
    rounds = row.quantizer is not None and curves.rounding.get(row.quantizer.family, 0.0) != 0
    same_rounding = not rounds or row.llama_3 == ("llama_3" in traits)
    return same_rounding and row.k_outliers == ("k_outliers" in traits)


def _point(row: Row, remedy: Remedy, name: str, alike: bool) -> Point:
    amounts = used_by(row)[remedy.remedy].amounts
    return Point(row, sum(amounts) / len(amounts), name, alike, bool(veto_of(row)), len(set(amounts)) > 1)


@cache
def _cells() -> dict[str, QualityCells]:
    return {cells.id: cells for cells in read_cells()}
