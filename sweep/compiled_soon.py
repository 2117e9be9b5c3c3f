"""Compiler options of programs that run a few times: compiled soon, not made fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMPILED_SOON: Final[Mapping[str, int]] = {"xla_backend_optimization_level": 0}
"""Two thirds of the time that the compiler takes by default, and about twice the time that the laws take to run."""
