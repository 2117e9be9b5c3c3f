"""CSV and Parquet files with the columns of `MeasuredRow`; a blank label is filled with what the user states.

A column `use`, where there is one, says what a row is good for: rows that do not say `calibrate` are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.measured_rows import KEPT, MeasuredRow, read_table, rows_of_table
from kvwall.sweep.runs.result import Label, stated_only
from kvwall.sweep.runs.stated import OPTIONS, Stated

COLUMNS: Final = frozenset({"metric", "value", "unit"})
"""By these a CSV file is recognised; `read_table` names the others that it lacks."""


def read_measured(path: Path) -> Sequence[tuple[MeasuredRow, str]]:
    """The rows of a file, each with the reason why it is left out, or ''. Raises InputError."""
    table = read_table(path)
    rows = rows_of_table(table)
    if "use" not in table.column_names:
        return [(row, "") for row in rows]
    uses = table["use"].to_pylist()
    reasons = table["use_reason"].to_pylist() if "use_reason" in table.column_names else [""] * len(rows)
    return [
        (row, "" if use in ("", None, KEPT) else ": ".join(filter(None, (f"use is {use}", reason))))
        for row, use, reason in zip(rows, uses, reasons, strict=True)
    ]


def filled(row: MeasuredRow, stated: Stated) -> MeasuredRow:
    """The row with the user's labels where it has none. Raises InputError where the two contradict each other."""
    own: Mapping[str, Label] = stated_only({field: getattr(row, field) for field in OPTIONS.values()})
    try:
        return replace(row, **stated.joined(own))  # type: ignore[arg-type]
    except InputError as fault:
        raise InputError(f"row {row.id}: {each}" for each in fault.faults) from None
