"""CSV and Parquet files with the columns of `MeasuredRow`; a blank label is filled with what the user states.

A column `use`, where there is one, says what a row is good for: rows that do not say `calibrate` are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.measured_rows import KEPT, MeasuredRow, TableRow
from kvwall.sweep.runs.result import Label, stated_only
from kvwall.sweep.runs.stated import OPTIONS, Stated

COLUMNS: Final = frozenset({"metric", "value", "unit"})
"""By these a CSV file is recognised; `read_table` names the others that it lacks."""


def left_out(each: TableRow) -> tuple[str, ...]:
    """Why a row is not used; empty where it is."""
    if each.use not in ("", KEPT):
        return (": ".join(filter(None, (f"use is {each.use}", each.use_reason))),)
    return each.reasons


def filled(row: MeasuredRow, stated: Stated) -> MeasuredRow:
    """The row with the user's labels where it has none. Raises InputError where the two contradict each other."""
    own: Mapping[str, Label] = stated_only({field: getattr(row, field) for field in OPTIONS.values()})
    try:
        return replace(row, **stated.joined(own))  # type: ignore[arg-type]
    except InputError as fault:
        raise InputError(f"row {row.id}: {each}" for each in fault.faults) from None
