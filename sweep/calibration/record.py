"""Fits as records: effects by name, what the rows cover, and the files."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from kvwall.spaces.calibration import COVARIANCE, RECORD, Calibration, Effect, Reach, TermEffects, lower_triangle
from kvwall.spaces.terms import LEVELS, TERMS
from kvwall.sweep.calibration.estimate_fit import Fit
from kvwall.sweep.calibration.steps import MeasuredSteps

_DIGITS: Final = 5

Mask = NDArray[np.bool_]


def terms_of_fit(fit: Fit, rows: NDArray[np.int64]) -> dict[str, TermEffects]:
    """The effects of a fit by term; `rows`: how many speak for each."""
    found: dict[tuple[str, str], dict[str, Effect]] = defaultdict(dict)
    for at, (term, level, member) in enumerate(fit.effects.names):
        sd = float(np.sqrt(max(fit.covariance[at, at], 0.0)))
        found[term, level][member] = Effect(float(fit.values[at]), sd, int(rows[at]))
    return {
        name: TermEffects(term.meaning, term.unit, found[name, "mean"][""], *(found[name, each] for each in LEVELS))
        for name, term in TERMS.items()
    }


def terms_with(record: Calibration, fit: Fit, rows: NDArray[np.int64]) -> dict[str, TermEffects]:
    """The effects of a fit that started from a record, which counts the rows before."""
    before = {name: at for at, name in enumerate(record.names)}
    counts = np.array([_rows_of(record, name) if name in before else 0 for name in fit.effects.names])
    return terms_of_fit(fit, rows + counts)


def _rows_of(record: Calibration, name: tuple[str, str, str]) -> int:
    term, level, member = name
    effects = record.terms[term]
    effect: Effect = effects.mean if level == "mean" else getattr(effects, level)[member]
    return effect.rows


def reach_of(steps: MeasuredSteps, keep: Mask) -> Reach:
    """What the kept rows cover."""
    kept = [(steps.rows[at], steps.cells[steps.cell[at]]) for at in np.flatnonzero(keep)]
    bits: dict[str, set[float]] = defaultdict(set)
    contexts: dict[str, list[int]] = defaultdict(list)
    batches: dict[str, list[int]] = defaultdict(list)
    for usable, (engine, chip) in kept:
        bits[engine].add(float(usable.axes["key_bits"]))
        contexts[f"{engine}/{chip.name}"].append(int(usable.axes["context"]) + int(usable.axes["output_tokens"]))
        batches[f"{engine}/{chip.name}"].append(int(usable.axes["batch"]))
    return Reach(
        context={pair: max(found) for pair, found in sorted(contexts.items())},
        batch={pair: max(found) for pair, found in sorted(batches.items())},
        pairs=tuple(sorted({f"{engine}/{chip.name}" for _, (engine, chip) in kept})),
        cache_bits={engine: tuple(sorted(found)) for engine, found in sorted(bits.items())},
    )


def widest(one: Reach, other: Reach) -> Reach:
    """What either covers."""
    engines = sorted({*one.cache_bits, *other.cache_bits})
    pairs = sorted({*one.pairs, *other.pairs})
    return Reach(
        context={pair: max(one.context.get(pair, 0), other.context.get(pair, 0)) for pair in pairs},
        batch={pair: max(one.batch.get(pair, 0), other.batch.get(pair, 0)) for pair in pairs},
        pairs=tuple(pairs),
        cache_bits={
            each: tuple(sorted({*one.cache_bits.get(each, ()), *other.cache_bits.get(each, ())})) for each in engines
        },
    )


def write_record(record: Calibration, path: Path = RECORD) -> None:
    """The record as a JSON file, with the covariance in a Parquet file beside it."""
    table = asdict(replace(record, covariance=()))
    del table["covariance"]
    column = pa.table({COVARIANCE: lower_triangle(np.array(record.covariance))})
    with TemporaryDirectory(dir=path.parent, prefix=".record-") as folder:  # both are whole before either is there
        text, matrix = Path(folder) / path.name, Path(folder) / path.with_suffix(".parquet").name
        text.write_text(json.dumps(rounded(table), indent=1) + "\n", encoding="utf-8")
        pyarrow.parquet.write_table(column, matrix, compression="zstd", store_schema=False)
        matrix.replace(path.with_suffix(".parquet"))
        text.replace(path)


def rounded(value: Any) -> Any:
    """Numbers to five significant digits, as files hold them."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
