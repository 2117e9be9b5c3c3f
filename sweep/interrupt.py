"""Ctrl-C that is never lost: Python drops a KeyboardInterrupt raised inside a garbage-collection callback."""

from __future__ import annotations

import os
import signal
from types import FrameType

EXIT_CODE = 130

_asked = False


def listen() -> None:
    """Handle Ctrl-C from now on: the first stops at the next safe point, a second at once."""
    global _asked
    _asked = False
    signal.signal(signal.SIGINT, _stop)


def check() -> None:
    """A safe point of long work. Raises KeyboardInterrupt if the user has asked to stop."""
    if _asked:
        raise KeyboardInterrupt


def _stop(signal_number: int, frame: FrameType | None) -> None:
    global _asked
    if _asked:
        os._exit(EXIT_CODE)  # the libraries' own shutdown may hang or complain
    _asked = True
    raise KeyboardInterrupt
