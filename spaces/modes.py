"""Modes: a ceiling that no implementation can beat, or an estimate calibrated against measurement."""

from __future__ import annotations

from typing import Final

from kvwall.spaces.errors import InputError, nearest

CEILING: Final = "ceiling"
ESTIMATE: Final = "estimate"
MODES: Final = (ESTIMATE, CEILING)
DEFAULT_MODE: Final = ESTIMATE
MEANINGS: Final = {
    ESTIMATE: "what to expect, calibrated against measurement, with a band",
    CEILING: "what no implementation can beat",
}
CALIBRATION_HELP: Final = "A record of `kvwall calibrate`, for estimates of your own machine"
MODE_HELP: Final = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())


def check_mode(mode: object) -> str:
    """The mode. Raises InputError where there is no such.

    >>> check_mode("ceiling")
    'ceiling'
    """
    if not isinstance(mode, str) or mode not in MODES:
        listed = " or ".join(f"{name} ({meaning})" for name, meaning in MEANINGS.items())
        raise InputError(f"mode = {str(mode)[:60]!r} is unknown{nearest(str(mode), MODES)}: use {listed}")
    return mode
