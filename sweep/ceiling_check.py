"""Measured decode speeds against the ceiling: no row may beat it but the listed exceptions, each with its cause."""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from kvwall.objectives.register import LABELS
from kvwall.spaces.aliases import Aliases, load_aliases
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.sweep.kernel import Problem
from kvwall.sweep.measured import UsableRow, usable_row
from kvwall.sweep.measured_metric import OF_ONE_STEP, in_row_units, speed_ratio
from kvwall.sweep.measured_rows import ROWS, MeasuredRow
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.spanning import spanning_space, stated_values

EXCEPTIONS = ROWS.with_name("decode_exceptions.toml")

_REFUSED = {
    "layout": "the model's layers cannot be split over so many devices",
    "unsourced_input": "the catalogue has no source for a figure that the ceiling needs",
}
TOO_LARGE = "the stated batch does not fit the memory: fewer sequences ran at once"


@dataclass(frozen=True)
class Comparison:
    """A row beside its ceiling."""

    usable: UsableRow
    ceiling: float
    """In the row's own metric and unit."""
    ratio: float
    """Measured speed over the ceiling's; above 1 the row beats it."""
    bound_by: str

    @property
    def id(self) -> str:
        """The row's id."""
        return self.usable.row.id

    @property
    def configuration(self) -> tuple[Hashable, ...]:
        """What the rows have in common that repeat a measurement: source, metric, framework and design."""
        row = self.usable.row
        return row.id.partition("-")[0], row.metric, self.usable.framework, *sorted(self.usable.axes.items())


@dataclass(frozen=True)
class CeilingCheck:
    """Every row: compared, or refused."""

    compared: tuple[Comparison, ...]
    refused: Mapping[str, tuple[str, ...]]
    """Row id -> reasons."""
    too_large: tuple[Comparison, ...]
    """Of the refused rows, those whose stated batch does not fit, beside the ceiling of that batch all the same."""

    @property
    def beating(self) -> tuple[Comparison, ...]:
        """The rows that are faster than their ceiling, fastest first."""
        return tuple(sorted((each for each in self.compared if each.ratio > 1), key=lambda each: -each.ratio))

    @property
    def fastest(self) -> tuple[Comparison, ...]:
        """The fastest row of each configuration."""
        found: dict[tuple[Hashable, ...], Comparison] = {}
        for each in self.compared:
            best = found.get(each.configuration)
            if best is None or each.ratio > best.ratio:
                found[each.configuration] = each
        return tuple(found.values())


@dataclass(frozen=True)
class Cause:
    """Why some rows beat their ceiling."""

    cause: str
    explanation: str
    rows: tuple[str, ...]


def ceiling_check(rows: Iterable[MeasuredRow], aliases: Aliases | None = None) -> CeilingCheck:
    """Every usable row against its ceiling; equal designs are evaluated once, all of them together."""
    known = aliases or load_aliases()
    usable: list[UsableRow] = []
    refused: dict[str, tuple[str, ...]] = {}
    for row in rows:
        try:
            usable.append(usable_row(row, known))
        except InputError as reasons:
            refused[row.id] = reasons.faults
    compared, too_large = [], []
    for each, found in zip(usable, _ceilings(usable), strict=True):
        comparison = Comparison(each, in_row_units(each, found.step), speed_ratio(each, found.step), found.bound_by)
        if found.status in _REFUSED:
            refused[each.row.id] = (_REFUSED[found.status],)
        elif found.status == "memory" and each.row.metric in OF_ONE_STEP:
            refused[each.row.id] = (TOO_LARGE,)
            too_large.append(comparison)
        else:
            compared.append(comparison)
    return CeilingCheck(tuple(compared), refused, tuple(too_large))


@dataclass(frozen=True)
class _Ceiling:
    step: float
    status: str
    bound_by: str


def _ceilings(usable: Sequence[UsableRow]) -> list[_Ceiling]:
    if not usable:
        return []
    designs = [stated_values(each.axes) for each in usable]
    space = spanning_space(designs)
    problem = Problem(Columns(space, load_catalogue(space)), "aggregate", (), ())
    index = np.array([space.index(design) for design in designs], dtype=np.int64)
    distinct, place = np.unique(index, return_inverse=True)
    found = evaluate_designs(problem, distinct)
    return [
        _Ceiling(float(found["time_per_output_token"][at]), _label("status", found, at), _label("bound_by", found, at))
        for at in place
    ]


def _label(name: str, found: Mapping[str, np.ndarray[Any, Any]], at: int) -> str:
    return LABELS[name].meanings[int(found[name][at])]


def load_causes(path: Path = EXCEPTIONS) -> tuple[Cause, ...]:
    """The listed exceptions."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Cause, ...]).validate_python(table["exception"])


def unexplained(check: CeilingCheck, causes: Iterable[Cause]) -> tuple[str, ...]:
    """Rows that beat their ceiling and are not listed."""
    listed = {row for cause in causes for row in cause.rows}
    return tuple(each.id for each in check.beating if each.id not in listed)


def outdated(check: CeilingCheck, causes: Iterable[Cause]) -> tuple[str, ...]:
    """Listed rows that do not beat their ceiling."""
    beating = {each.id for each in check.beating}
    return tuple(row for cause in causes for row in cause.rows if row not in beating)
