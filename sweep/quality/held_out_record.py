"""What the quality curves are worth on sources left out: losses row by row, as a record beside the curves.

`python -m kvwall.sweep.quality.held_out_record` writes it, in minutes; it carries a stamp of the rows and of the code
that it was made from, so that a record of other code is known as such without a fit.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import jax
import numpy as np
import pyarrow
import pyarrow.parquet

from kvwall.objectives import quality as laws
from kvwall.spaces.benchmarks import RULES
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality_methods import METHODS
from kvwall.spaces.vetoes import TRAITS
from kvwall.sweep.quality import central, held_out, hierarchy, upper
from kvwall.sweep.quality import rows as row_reader
from kvwall.sweep.quality.central import CentralFit
from kvwall.sweep.quality.prediction import veto_of
from kvwall.sweep.quality.rows import ROWS, Row, read_rows
from kvwall.sweep.quality.upper import CONFIDENCES, UpperFit
from kvwall.sweep.store.atomic import write_atomically

HELD_OUT: Final = ROWS.with_name("held_out.parquet")
_REMEDY: Final = "run `python -m kvwall.sweep.quality.held_out_record` again"
_STAMP: Final = "stamp"
_COLUMNS: Final = ("id", "source", "task", "method", "veto", "observed", "central")
_CODE: Final = tuple(Path(str(each.__file__)) for each in (laws, hierarchy, central, upper, held_out, row_reader))
_DATA: Final = (ROWS, METHODS, RULES, TRAITS)
_PLACES: Final = 6


@dataclass(frozen=True)
class HeldOutRow:
    """A row whose source no curve behind its prediction has seen; losses are ln(PPL/PPL0) in perplexity."""

    id: str
    source: str
    task: str
    method: str
    """Names of its remedies: methods, or families where no method is known."""
    veto: str
    """The veto that refuses such a design; "" for none."""
    observed: float
    central: float
    upper: Mapping[float, float]
    """By confidence, rising."""


def held_out_rows() -> list[HeldOutRow]:
    """The shipped rows of sources that are large enough to be left out; fits for minutes."""
    rows, _ = read_rows()
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        found = held_out.held_out(fit, UpperFit(rows, fit.hierarchy.terms), CONFIDENCES, _told)
    return [
        HeldOutRow(
            id=row.id,
            source=row.source,
            task=row.task,
            method=method_of(row),
            veto=veto_of(row),
            observed=row.loss,
            central=float(found.central[place]),
            upper={level: float(losses[place]) for level, losses in found.upper.items()},
        )
        for place, row in enumerate(rows)
        if not np.isnan(found.central[place])
    ]


def method_of(row: Row) -> str:
    """The names of a row's remedies."""
    named = [each.name for each in (row.evictor, row.quantizer) if each is not None]
    named += [f"weights {row.weight_quantizer.name}"] if row.weight_quantizer else []
    named += ["activations"] if row.activation_bits < row_reader.FULL else []
    return " + ".join(named)


def write_record(rows: Sequence[HeldOutRow], path: Path = HELD_OUT) -> None:
    """Write the record, stamped with what is on the disk now."""
    columns: dict[str, list[object]] = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
    columns |= {_column(level): [row.upper[level] for row in rows] for level in CONFIDENCES}
    table = pyarrow.table({name: _rounded(values) for name, values in columns.items()})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table.replace_schema_metadata({_STAMP: stamp()}), buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


@cache
def load_held_out(path: Path = HELD_OUT) -> tuple[HeldOutRow, ...]:
    """The record. Raises InputError where it is none."""
    table = _table(path)
    levels = {name: float(name.removeprefix("upper_")) for name in table.column_names if name.startswith("upper_")}
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing or not levels:
        raise InputError(f"{path}: lacks {', '.join(missing) or 'upper losses'}; {_REMEDY}")
    return tuple(
        HeldOutRow(**{name: line[name] for name in _COLUMNS}, upper={of: line[name] for name, of in levels.items()})
        for line in table.to_pylist()
    )


def stamp() -> str:
    """A hash of the rows, of the names and rules by which they are read, and of the source text of the fits."""
    found = hashlib.sha256()
    for path in (*_DATA, *_CODE):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def stamp_of(path: Path = HELD_OUT) -> str:
    """The stamp that a record carries; "" for none."""
    metadata: Mapping[bytes, bytes] = _table(path).schema.metadata or {}
    return metadata.get(_STAMP.encode(), b"").decode()


def _table(path: Path) -> pyarrow.Table:
    try:
        return pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as fault:
        raise InputError(f"{path}: not a record of rows left out ({fault}); {_REMEDY}") from fault


def _column(level: float) -> str:
    return f"upper_{level:g}"


def _rounded(values: Sequence[object]) -> list[object]:
    """Numbers as the file keeps them, so that libraries' last bits stay out."""
    return [round(value, _PLACES) if isinstance(value, float) else value for value in values]


def _told(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done} of {total} pairs of sources left out" + "\n" * (done == total))


def main() -> None:
    """Rewrite the record."""
    write_record(held_out_rows())


if __name__ == "__main__":
    main()
