"""A record brought up to date with a user's own rows: the shipped record is what is known before they are seen.

Chips and engines that the record does not know get effects of their own, as uncertain as those of any stranger, and the
machine, an engine on a chip, gets a factor on everything. Rows of one's own are counted in full: what they have in
common is what is wanted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.calibration import Calibration
from kvwall.spaces.errors import InputError
from kvwall.spaces.terms import LEVELS, MACHINE, TERMS
from kvwall.sweep.calibration.estimate_fit import Effects, Fit, StepFitter, extended, members_of
from kvwall.sweep.calibration.record import reach_of, terms_with, widest
from kvwall.sweep.calibration.steps import MeasuredSteps

OWN: Final = "own"
"""Source of a user's rows in the record."""

Floats = NDArray[np.float64]


def updated(record: Calibration, steps: MeasuredSteps) -> Calibration:
    """The record after these rows. Raises InputError where none of them can be used."""
    keep = steps.fitting
    ids = [steps.rows[at].row.id for at in np.flatnonzero(keep)]
    again = sorted(set(ids) & set(record.own))
    if again:
        raise InputError(
            f"the record has been told {len(again)} of these rows before, {again[0]} among them: start from the record"
            " that it was made from, with all rows at once"
        )
    if not np.any(keep):
        raise InputError("no row is left to calibrate on: all are faster than the ceiling or do not fit the memory")
    fitter = StepFitter(steps, effects=_known(record, steps))
    fit = fitter.refit(fitter.effects.prior, keep)
    own = (*record.own, *ids)
    new = replace(
        record,
        version=f"{record.version.partition(' with ')[0]} with {len(own)} rows of one's own",
        rows=record.rows + len(ids),
        sources={**record.sources, OWN: len(own)},
        own=own,
        reach=widest(record.reach, reach_of(steps, keep)),
        terms=terms_with(record, fit, fit.effects.rows(steps, keep)),
        covariance=(),
    )
    return replace(new, covariance=tuple(map(tuple, _in_order_of(new, fit).tolist())))


def _known(record: Calibration, steps: MeasuredSteps) -> Effects:
    """The record's effects as they are known, and those of members it lacks."""
    members = [members_of(engine, chip.name) for engine, chip in steps.cells]
    new = [
        (term, level, member)
        for term, known in TERMS.items()
        for level in LEVELS
        if level in known.spread and level != MACHINE
        for member in sorted({each[level] for each in members} - set(getattr(record.terms[term], level)))
    ]
    return extended(record.names, record.values, np.array(record.covariance), new, steps)


def _in_order_of(record: Calibration, fit: Fit) -> Floats:
    """The covariance of a fit in the order of a record's effects."""
    place = {name: at for at, name in enumerate(fit.effects.names)}
    order = [place[name] for name in record.names]
    found: Floats = fit.covariance[np.ix_(order, order)]
    return found
