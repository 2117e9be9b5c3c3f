"""How much work something is, counted and not timed: lines of Python run, however busy the machine is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Lines:
    """Calls, lines and returns of Python code so far."""

    run: int = 0


@contextmanager
def lines_run(most: int) -> Iterator[Lines]:
    """Count what runs inside; AssertionError as soon as that is more than `most`, so nothing can hang."""
    lines, before = Lines(), sys.gettrace()

    def count(_frame: FrameType, _event: str, _argument: object) -> Any:
        lines.run += 1
        if lines.run > most:
            raise AssertionError(f"more than {most} lines of Python were run")
        return count

    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)
    assert lines.run <= most  # also where the code itself caught the error
