"""The published rows nearest to a design: what was measured, beside what the curves say of the same row.

Where no row takes all of a design's remedies, the nearest of each remedy apart; of a vetoed design also the rows that
the veto is about. Rows of one source are not independent, so of equals those of other sources come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from kvwall.objectives.kv import FULL_BITS
from kvwall.spaces.quality import QualityCurves
from kvwall.spaces.quality_methods import load_methods, reader_of
from kvwall.spaces.vetoes import trait_names
from kvwall.sweep.quality.nearness import REMEDIES, Asked, Gap, Used, gaps, setting_text, used_by
from kvwall.sweep.quality.prediction import predict, veto_of
from kvwall.sweep.quality.rows import ROWS, Named, Row, read_cells, read_rows
from kvwall.sweep.quality_results.cells import QualityCells
from kvwall.sweep.readable import metric_text
from kvwall.sweep.single import SingleDesign
from kvwall.sweep.veto_words import vetoes_of

MOST: Final = 6
TITLE: Final = "Published results nearest to this design"
_SAME_SOURCE: Final = 0.25
"""How much farther a row counts for each row of its source that is listed already."""
_ALL: Final = "all remedies together"


@dataclass(frozen=True)
class Published:
    """A published row beside a design. Losses are relative, of perplexity ln(PPL/PPL0)."""

    id: str
    about: str
    """What of the design it tells about: all remedies together, one of them, or a veto."""
    source: str
    method: str
    """As the source calls it."""
    model: str
    benchmark: str
    subtask: str
    task: str
    """The class that it is scored in."""
    setting: str
    observed: float
    predicted: float
    """What the curves say of the row; the central loss."""
    upper: float
    vetoed: str
    """The veto that refuses such a design; "" for none."""
    distance: str
    """In words."""

    def lines(self) -> tuple[str, str, str]:
        """The row for a terminal."""
        observed, predicted, upper = (
            metric_text(loss, "1", "perplexity" if self.task == "perplexity" else "quality_loss")
            for loss in (self.observed, self.predicted, self.upper)
        )
        judged = f"; a design like this is vetoed ({self.vetoed})" if self.vetoed else ""
        benchmark = f"{self.benchmark}/{self.subtask}" if self.subtask != self.benchmark else self.benchmark
        return (
            f"  {self.method} on {self.model}, {benchmark} ({self.task}): {self.setting}",
            f"    lost {observed}, the curves say {predicted} (<= {upper}){judged}",
            f"    {self.distance} [{self.id}: {self.source}]",
        )


def nearest_results(single: SingleDesign, most: int = MOST) -> tuple[Published, ...]:
    """At most so many rows; none where nothing is compressed."""
    vetoes = [one.name for one in vetoes_of(single)]
    return nearest_rows(asked_of(single), single.catalogue.curves, single.confidence, vetoes=vetoes, most=most)


def nearest_rows(
    asked: Asked,
    curves: QualityCurves,
    confidence: float,
    *,
    vetoes: Sequence[str] = (),
    most: int = MOST,
    path: Path = ROWS,
) -> tuple[Published, ...]:
    """The rows of a file nearest to what is asked, those about its vetoes first.

    Args:
        asked: the design.
        curves: the record that rows are predicted by.
        confidence: of the upper losses.
        vetoes: that apply to the design.
        most: rows in all.
        path: of the published rows.
    """
    if not asked.used:
        return ()
    listed = _listed(asked, vetoes, most, path)
    predictions = predict([each.row for each in listed], curves, confidence)
    return tuple(
        _published(each, _cells(path)[each.row.id], found.central, found.upper, found.vetoed)
        for each, found in zip(listed, predictions, strict=True)
    )


def text_lines(found: Sequence[Published]) -> list[str]:
    """The rows for a terminal, under what they are about; nothing where there are none."""
    written = [TITLE] if found else []
    about = ""
    for each in found:
        if each.about != about:
            about = each.about
            written.append(f" Of {about}")
        written += each.lines()
    return written


def asked_of(single: SingleDesign) -> Asked:
    """A design as rows are compared with it."""
    visible, traits = bool(single.inputs["question_visible"]), trait_names(single.model)
    return Asked(
        model=single.model.name,
        task=single.task,
        context=single.number("context"),
        used=dict(_used(single, visible)),
        visible=visible,
        llama_3="llama_3" in traits,
        k_outliers="k_outliers" in traits,
    )


def _used(single: SingleDesign, visible: bool) -> Iterator[tuple[str, Used]]:
    bits = (single.number("key_bits"), single.number("value_bits"))
    kept = float(single.step.ledger.kept_fraction)
    read = single.number("read_fraction")
    weights = float(single.design.precision.weight_bits)
    activations = single.number("activation_bits")
    evictor = str(single.inputs["evictor"])
    if min(bits) < FULL_BITS:
        yield "quantizer", Used(_named("quantizer", str(single.inputs["quantizer"])), bits)
    if kept < 1:
        yield "evictor", Used(_named("evictor", evictor, visible), (kept,))
    if read < 1:
        yield "reader", Used(_named("evictor", reader_of(evictor)), (read,))
    if 0 < weights < FULL_BITS:
        yield "weight_quantizer", Used(_named("weight_quantizer", str(single.inputs["weight_quantizer"])), (weights,))
    if activations < FULL_BITS:
        yield "activation", Used(Named("activation", "activation"), (activations,))


def _named(remedy: str, name: str, visible: bool = True) -> Named:
    names = load_methods()[remedy]
    family = names.family(name, question_visible=visible)
    return Named(family, family if name in names.families else name)


@dataclass(frozen=True)
class _Listed:
    row: Row
    about: str
    parts: tuple[Gap, ...]

    @property
    def size(self) -> float:
        return sum(part.size for part in self.parts)

    @property
    def words(self) -> str:
        return ", ".join(part.words for part in self.parts if part.words)


def _listed(asked: Asked, vetoes: Sequence[str], most: int, path: Path) -> list[_Listed]:
    rows, _ = read_rows(path)
    chosen: list[_Listed] = []
    for name in vetoes:
        justify = [row for row in rows if veto_of(row) == name]
        share = max(1, most // (2 * len(vetoes)))
        chosen += _closest(asked, justify, f"veto {name}", share, path)
    for about, narrowed, of in _groups(asked, rows):
        left = [row for row in of if row.id not in {each.row.id for each in chosen}]
        share = max(1, (most - _count(chosen, "veto")) // (1 if about == _ALL else len(asked.used)))
        chosen += _closest(narrowed, left, about, share, path)
    return chosen[:most]


def _count(chosen: Sequence[_Listed], start: str) -> int:
    return sum(each.about.startswith(start) for each in chosen)


def _groups(asked: Asked, rows: Sequence[Row]) -> Iterator[tuple[str, Asked, list[Row]]]:
    """The rows that take all remedies, by methods of their families; where there are none, the rows of each apart."""
    together = [row for row in rows if _takes(row, asked, alike=len(asked.used) > 1)]
    if len(asked.used) == 1 or together:
        yield _ALL if len(asked.used) > 1 else _about(asked, next(iter(asked.used))), asked, together
        return
    for remedy in REMEDIES:
        if remedy in asked.used:
            own = asked.only(remedy)
            yield _about(asked, remedy), own, [row for row in rows if _takes(row, own, alike=False)]


def _takes(row: Row, asked: Asked, alike: bool) -> bool:
    used = used_by(row)
    return all(
        remedy in used and (not alike or used[remedy].named.family == own.named.family)
        for remedy, own in asked.used.items()
    )


def _about(asked: Asked, remedy: str) -> str:
    if remedy == "activation":
        return "activation bits"
    kind = "evictor" if remedy == "reader" else remedy.replace("_", " ")
    return f"{kind} {asked.used[remedy].named.name}{' (tokens not read)' if remedy == 'reader' else ''}"


def _closest(asked: Asked, rows: Sequence[Row], about: str, most: int, path: Path) -> list[_Listed]:
    """The nearest rows, nearest first; of equals, rows of sources not yet listed, then by id."""
    cells = _cells(path)
    left = [_Listed(row, about, tuple(gaps(asked, row, cells[row.id].context_tokens))) for row in rows]
    left.sort(key=lambda each: (each.size, each.row.id))
    chosen: list[_Listed] = []
    taken: Counter[str] = Counter()
    while left and len(chosen) < most:
        best = min(left, key=lambda each: each.size + _SAME_SOURCE * taken[each.row.source])
        left.remove(best)
        chosen.append(best)
        taken[best.row.source] += 1
    return sorted(chosen, key=lambda each: (each.size, each.row.id))


@cache
def _cells(path: Path) -> dict[str, QualityCells]:
    return {cells.id: cells for cells in read_cells(path)}


def _published(listed: _Listed, cells: QualityCells, central: float, upper: float, vetoed: str) -> Published:
    return Published(
        id=cells.id,
        about=listed.about,
        source=cells.source,
        method=cells.method,
        model=cells.model,
        benchmark=cells.benchmark,
        subtask=cells.subtask,
        task=listed.row.task,
        setting=setting_text(listed.row),
        observed=listed.row.loss,
        predicted=central,
        upper=upper,
        vetoed=vetoed,
        distance=listed.words,
    )


def to_json(found: Sequence[Published]) -> list[dict[str, Any]]:
    """The rows as plain JSON types."""
    return [asdict(each) for each in found]
