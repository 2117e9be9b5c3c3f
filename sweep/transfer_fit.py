"""Fits the transfer curve to its rows; `python -m kvwall.sweep.transfer_fit` rewrites the record.

The rows are in the record itself: add one there and run this. The same rows and date give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from kvwall.objectives.transfer import effective_bandwidth
from kvwall.spaces.transfer import RECORD, TransferCurve, TransferRow, load_transfer_curve

Floats: TypeAlias = NDArray[np.float64]

VERSION = "1"
_START = (5e-6, 0.7)
_SPREAD = 0.3
"""Of ln bandwidth; rows that miss by much more count less."""
_LARGE = 1e12
"""Bytes that stand for one large copy: what a piece costs vanishes beside them."""


def fit_transfer(rows: Sequence[TransferRow], fitted: str) -> TransferCurve:
    """The curve of these rows, least squares in the logarithm of the bandwidth; `fitted` is the date it carries."""
    size: Any = np.array([row.piece_bytes or _LARGE for row in rows])
    link: Any = np.array([row.link_bandwidth for row in rows])
    reached = np.log([row.bandwidth for row in rows])

    def misses(point: Floats) -> Any:
        cost, share = np.exp(point)
        return np.log(effective_bandwidth(size, link, cost, share)) - reached

    found = least_squares(misses, np.log(_START), loss="soft_l1", f_scale=_SPREAD).x
    cost, share = (float(number) for number in np.exp(found))
    off = np.abs(misses(found))
    typical, worst = (float(np.exp(each)) for each in (np.sqrt(np.mean(off**2)), np.max(off)))
    return TransferCurve(VERSION, fitted, cost, share, typical, worst, tuple(rows))


def record_text(curve: TransferCurve) -> str:
    """The record as the file holds it: fitted numbers to four significant digits, rows as they are."""
    numbers = ("seconds_per_piece", "large_share", "typical_factor", "worst_factor")
    rounded: dict[str, Any] = {name: float(f"{getattr(curve, name):.4g}") for name in numbers}
    return json.dumps(asdict(replace(curve, **rounded)), indent=1) + "\n"


def main() -> None:
    """Rewrite the shipped record from its rows; keeps the record's date unless another is given."""
    parser = argparse.ArgumentParser(description="Refit the transfer curve and rewrite its record.")
    parser.add_argument("--date", help="date of the fit, YYYY-MM-DD (default: the date of the present record)")
    present = load_transfer_curve()
    fitted = parser.parse_args().date or present.fitted
    RECORD.write_text(record_text(fit_transfer(present.rows, fitted)), encoding="utf-8")


if __name__ == "__main__":
    main()
