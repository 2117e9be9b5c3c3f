"""Fits the calibration of estimates to the stored rows; `python -m kvwall.sweep.calibration.estimate` rewrites it.

The rows are in `catalog/measured/decode.parquet`. The same rows and date give the same record; what the fit says of
rows it has not seen is written beside it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.calibration import Calibration, load_calibration
from kvwall.spaces.errors import InputError
from kvwall.sweep.calibration.accuracy import accuracy_report
from kvwall.sweep.calibration.estimate_fit import Fit, StepFitter
from kvwall.sweep.calibration.forms import CHOSEN, FORMS
from kvwall.sweep.calibration.held_out import FOLDS, chip_of, held_out, pair_of
from kvwall.sweep.calibration.own_rows import own_rows
from kvwall.sweep.calibration.record import reach_of, rounded, terms_of_fit, write_record
from kvwall.sweep.calibration.spreads import Spreads, spreads_of
from kvwall.sweep.calibration.steps import MeasuredSteps, measured_steps
from kvwall.sweep.held_out_record import HELD_OUT
from kvwall.sweep.measured import UsableRow, usable_row
from kvwall.sweep.measured_rows import MeasuredRow, read_rows

VERSION: Final = "1"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows that can be predicted, repeats of a configuration as their median, and those that cannot."""

    steps: MeasuredSteps
    refused: Mapping[str, tuple[str, ...]]


def usable_rows(rows: Sequence[MeasuredRow]) -> tuple[list[UsableRow], dict[str, tuple[str, ...]]]:
    """The rows whose labels stand for designs, and row id -> why the others do not."""
    aliases, usable, refused = load_aliases(), [], {}
    for row in rows:
        try:
            usable.append(usable_row(row, aliases))
        except InputError as reasons:
            refused[row.id] = reasons.faults
    return usable, refused


def rows_to_fit(rows: Sequence[MeasuredRow]) -> Rows:
    """Every usable row, one for each configuration of a source. Raises InputError where there is none."""
    usable, refused = usable_rows(rows)
    steps, impossible = measured_steps(usable)
    if steps is None:
        raise InputError("no row can be used: " + "; ".join(sorted({why for each in refused.values() for why in each})))
    return Rows(medians(steps), refused | impossible)


def medians(steps: MeasuredSteps) -> MeasuredSteps:
    """One row per configuration: the middle one, with the median of all."""
    repeats: dict[Any, list[int]] = defaultdict(list)
    for place, usable in enumerate(steps.rows):
        source, engine = usable.row.id.partition("-")[0], steps.cells[steps.cell[place]][0]
        repeats[source, usable.row.metric, engine, *sorted(usable.axes.items())].append(place)
    seconds = steps.seconds.copy()
    middles = []
    for places in repeats.values():
        middle = sorted(places, key=lambda place: steps.seconds[place])[(len(places) - 1) // 2]
        seconds[middle] = np.median(steps.seconds[places])
        middles.append(middle)
    return replace(steps, seconds=seconds).chosen(np.array(sorted(middles)))


def record_of(fitter: StepFitter, fit: Fit, spreads: Spreads, fitting: NDArray[np.bool_], fitted: str) -> Calibration:
    """The record of a fit; `fitted` is the date it carries."""
    steps = fitter.steps
    sources = Counter(steps.rows[at].row.id.partition("-")[0] for at in np.flatnonzero(fitting))
    return Calibration(
        version=VERSION,
        fitted=fitted,
        rows=int(np.sum(fitting)),
        sources=dict(sorted(sources.items())),
        model_spread=spreads.dense,
        expert_spread=spreads.experts,
        reach=reach_of(steps, fitting),
        terms=terms_of_fit(fit, fit.effects.rows(steps, fitting)),
        covariance=tuple(map(tuple, fit.covariance.tolist())),
    )


def main() -> None:
    """Refit, hold out, rewrite; keeps the record's date unless another is given."""
    parser = argparse.ArgumentParser(description="Fit the calibration of estimates and rewrite its record.")
    parser.add_argument("--date", help="date of the fit, YYYY-MM-DD (default: the date of the present record)")
    fitted = parser.parse_args().date or load_calibration().fitted
    rows = rows_to_fit(read_rows())
    fitting = rows.steps.fitting
    fits = {name: StepFitter(rows.steps, form) for name, (_, form) in FORMS.items()}
    whole = {name: fitter.fit(fitting) for name, fitter in fits.items()}
    left_out = {name: held_out(each, whole[name], fitting, pair_of, FOLDS) for name, each in fits.items()}
    by_chip = held_out(fits[CHOSEN], whole[CHOSEN], fitting, chip_of)
    spreads = spreads_of(rows.steps, left_out[CHOSEN])
    write_record(record_of(fits[CHOSEN], whole[CHOSEN], spreads, fitting, fitted))
    report = accuracy_report(rows.steps, left_out, by_chip, rows.refused)
    report["own_rows"] = [asdict(each) for each in own_rows(fits[CHOSEN], whole[CHOSEN], fitting)]
    HELD_OUT.write_text(json.dumps(rounded(report), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
