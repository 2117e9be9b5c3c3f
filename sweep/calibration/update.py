"""A record brought up to date with a user's own rows: the shipped record is what is known before they are seen.

Chips and engines that the record does not know get effects of their own, as uncertain as those of any stranger. Rows of
one's own are counted in full: what they have in common is what is wanted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.calibration import Calibration
from kvwall.spaces.errors import InputError
from kvwall.spaces.terms import LEVELS, TERMS
from kvwall.sweep.calibration.estimate_fit import Effects, Fit, StepFitter, members_of, root_of, spoken_of
from kvwall.sweep.calibration.record import reach_of, terms_with, widest
from kvwall.sweep.calibration.steps import MeasuredSteps

Floats = NDArray[np.float64]

OWN: Final = "own"
"""Source of a user's rows in the record."""


def updated(record: Calibration, steps: MeasuredSteps) -> Calibration:
    """The record after these rows. Raises InputError where none of them can be used."""
    keep = np.logical_and(~steps.too_fast, steps.waves <= 1)
    if not np.any(keep):
        raise InputError("no row is left to calibrate on: all are faster than the ceiling or do not fit the memory")
    fitter = StepFitter(steps, effects=_prior(record, steps))
    known = Fit(fitter.effects, fitter.effects.prior_mean, fitter.effects.spread(np.eye(len(fitter.effects.names))))
    fit = fitter.refit(known, keep)
    own = int(np.sum(keep))
    return replace(
        record,
        version=f"{record.version} with {own} rows of one's own",
        rows=record.rows + own,
        sources={**record.sources, OWN: record.sources.get(OWN, 0) + own},
        reach=widest(record.reach, reach_of(steps, keep)),
        terms=terms_with(record, fit, fit.effects.rows(steps, keep)),
        covariance=tuple(map(tuple, fit.covariance.tolist())),
    )


def _prior(record: Calibration, steps: MeasuredSteps) -> Effects:
    """The record's effects as they are known, and those of members it lacks, in the order of a record."""
    members = [members_of(engine, chip.name) for engine, chip in steps.cells]
    place = {name: at for at, name in enumerate(record.names)}
    names, mean, alone = [], [], []
    for term, known in TERMS.items():
        names.append((term, "mean", ""))
        for level in LEVELS:
            old = list(getattr(record.terms[term], level))
            new = sorted({each[level] for each in members} - set(old)) if known.spread.get(level) else []
            names += [(term, level, member) for member in old + new]
    for name in names:
        there = place.get(name)
        mean.append(0.0 if there is None else float(record.values[there]))
        alone.append(TERMS[name[0]].spread_of(*name[1:]) ** 2 if there is None else 0.0)
    covariance = np.diag(alone)
    old_places = [at for at, name in enumerate(names) if name in place]
    from_record = [place[names[at]] for at in old_places]
    covariance[np.ix_(old_places, old_places)] = np.array(record.covariance)[np.ix_(from_record, from_record)]
    return Effects(tuple(names), np.array(mean), root_of(covariance), spoken_of(names, tuple(TERMS), members))
