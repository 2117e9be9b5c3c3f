"""Compiler options that programs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SPLITTING: Final = "cpu-parallel-task-assigner"
UNSPLIT: Final[Mapping[str, str]] = {"xla_disable_hlo_passes": SPLITTING}
"""XLA would split loops among as many threads as there are cores, and the last bit of a number would depend on that: on
the machine, and on whether a worker computed it. Cores are kept busy by threads of ours that call kernels at once."""

COMPILED_SOON: Final[Mapping[str, int | str]] = {"xla_backend_optimization_level": 0, **UNSPLIT}
"""Of programs that run a few times: two thirds of the time that the compiler takes by default, and about twice the time
that the laws take to run."""
