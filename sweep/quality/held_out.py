"""Central and upper losses of rows under fits that have not seen their source, and the hazards that such fits need.

Upper curves are set on hazards of curves without a source; so what an upper curve is worth on a source left out takes
hazards of curves without two, one fit for each pair of sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.quality.central import CentralFit
from kvwall.sweep.quality.hierarchy import predicted
from kvwall.sweep.quality.rows import Row
from kvwall.sweep.quality.terms import Floats
from kvwall.sweep.quality.upper import REMEDIES, UpperFit, rising

FEWEST_ROWS: Final = 15
"""Of a source that is left out."""

Hazards = dict[str, Floats]
Told = Callable[[int, int], None]
"""Called with fits done and fits in all."""


def large_sources(rows: Sequence[Row]) -> tuple[str, ...]:
    """Sources of enough rows to be left out."""
    count = Counter(row.source for row in rows)
    return tuple(sorted(source for source, many in count.items() if many >= FEWEST_ROWS))


@dataclass(frozen=True)
class HeldOut:
    """Losses of rows whose source the curves have not seen; NaN for rows of small sources."""

    central: Floats
    upper: Mapping[float, Floats]
    """By confidence."""


def blind_hazards(fit: CentralFit) -> Hazards:
    """Hazards of each entry from a fit without its source; NaN for entries of small sources."""
    source = _sources(fit.hierarchy.rows)
    found = _nothing(fit)
    for name in large_sources(fit.hierarchy.rows):
        _put(found, fit, fit.hazards(fit.fit(source != name)), source == name)
    return found


def held_out(
    fit: CentralFit, upper: UpperFit, confidences: Sequence[float], told: Told = lambda done, total: None
) -> HeldOut:
    """Losses of every row of a large source, by curves and spreads that have not seen it.

    Args:
        fit: of all rows.
        upper: of the same.
        confidences: of the upper losses, rising; as in the record, an upper curve is no lower than one of less.
        told: after each fit of central curves.
    """
    rows, source = fit.hierarchy.rows, _sources(fit.hierarchy.rows)
    hazards = _pairwise_blind_hazards(fit, told)
    central = np.full(len(rows), np.nan)
    above = {confidence: central.copy() for confidence in confidences}
    for name, blind in hazards.items():
        own = source == name
        central[own] = _of_rows(fit, blind)[own]
        known = known_rows(fit, blind) & ~own
        bands = rising({confidence: upper.fit(known, blind, confidence) for confidence in confidences})
        for confidence, band in bands.items():
            above[confidence][own] = upper.predict(band, blind)[own]
    return HeldOut(central, above)


def _pairwise_blind_hazards(fit: CentralFit, told: Told) -> dict[str, Hazards]:
    """Large source -> hazards of each entry from a fit without that source and without the entry's own."""
    source, names = _sources(fit.hierarchy.rows), large_sources(fit.hierarchy.rows)
    hazards = {name: _nothing(fit) for name in names}
    pairs = list(combinations_with_replacement(names, 2))
    for done, (one, other) in enumerate(pairs, 1):
        found = fit.hazards(fit.fit((source != one) & (source != other)))
        _put(hazards[one], fit, found, source == other)
        _put(hazards[other], fit, found, source == one)
        told(done, len(pairs))
    return hazards


def known_rows(fit: CentralFit, hazards: Hazards) -> NDArray[np.bool_]:
    """The rows that hazards are of."""
    terms = fit.hierarchy.terms
    unknown = np.bincount(terms.rows, weights=np.isnan(hazards[REMEDIES[0]]), minlength=terms.count)
    found: NDArray[np.bool_] = unknown == 0
    return found


def _of_rows(fit: CentralFit, hazards: Hazards) -> Floats:
    total = sum(np.nan_to_num(hazards[remedy]) for remedy in REMEDIES)
    return np.asarray(predicted(total, fit.hierarchy.terms))


def _sources(rows: Sequence[Row]) -> NDArray[np.str_]:
    return np.array([row.source for row in rows])


def _nothing(fit: CentralFit) -> Hazards:
    return {remedy: np.full(fit.hierarchy.terms.rows.shape, np.nan) for remedy in REMEDIES}


def _put(into: Hazards, fit: CentralFit, found: Hazards, rows: NDArray[np.bool_]) -> None:
    chosen = rows[fit.hierarchy.terms.rows]
    for remedy in REMEDIES:
        into[remedy][chosen] = found[remedy][chosen]
