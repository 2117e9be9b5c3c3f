"""Ctrl-C, or a scheduler's SIGTERM, that stops at a safe point and is never lost.

An exception raised wherever a signal happens to arrive does harm: inside a callback or a finalizer Python prints it and
forgets it, and inside JAX it leaves a kernel running while the interpreter takes its thread pool apart, which crashes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

EXIT_CODE: Final = 130
_STDERR: Final = 2
_ASKED: Final = b"kvwall: stopping at the next safe point, where nothing is lost; once more leaves at once\n"

_asked = False
_has_safe_points = False


def listen() -> None:
    """Handle Ctrl-C from now on: the first stops, inside `safe_points` at the next `check`; a second leaves at once."""
    global _asked
    _asked = False
    signal.signal(signal.SIGINT, _stop)


@contextmanager
def safe_points() -> Iterator[None]:
    """Work that calls `check` often: Ctrl-C waits for the next one; what is finished first counts as finished.

    So does SIGTERM, which elsewhere ends the process as usual.
    """
    global _has_safe_points
    _has_safe_points = True
    usual = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
        _has_safe_points = False


def check() -> None:
    """A safe point of long work. Raises KeyboardInterrupt if the user has asked to stop."""
    if _asked:
        raise KeyboardInterrupt


def _stop(signal_number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        os._exit(EXIT_CODE)  # the libraries' own shutdown may hang or complain
    _asked = True
    if not _has_safe_points:
        raise KeyboardInterrupt
    with suppress(OSError):  # print is not allowed here: the signal may have come inside it
        os.write(_STDERR, _ASKED)
