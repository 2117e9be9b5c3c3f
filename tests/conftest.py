"""What every test runs under, and the random designs that several files share.

A NaN that reaches the result of a law is an error here (`jax_debug_nans`). Rank promotion is not refused: layer
groups and quality curves carry one leading dimension more than the axes they broadcast against, by design. That no
other broadcast goes wrong is shown in `tests/test_register.py`: a grid holds the numbers of its single designs.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest
from hypothesis import settings

from kvwall.sweep import kernel
from tests.designs import Designs, draw_designs

jax.config.update("jax_debug_nans", True)

settings.register_profile("unhurried", deadline=None)  # how long an example takes is no property of the code
settings.load_profile("unhurried")

# Many tests compile the same operators, some in processes of their own: compiled once. Each user has an own folder.
KERNELS = str(Path(tempfile.gettempdir()) / f"kvwall-test-kernels-{os.getuid()}")
LEAST_SECONDS = 0.0
MUCH_MEMORY = 1_500_000_000  # bytes
jax.config.update("jax_compilation_cache_dir", KERNELS)
jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
# Programs that state no compiler options run for milliseconds here: they are compiled soon, not made fast.
SOON: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
FAST: dict[str, bool | int] = {"xla_backend_optimization_level": 3}
if jax.__version_info__ < (0, 11):  # later releases know no such choice
    SOON["xla_cpu_use_fusion_emitters"], FAST["xla_cpu_use_fusion_emitters"] = False, True
FLAGS = (f"--{name}={str(value).lower()}" for name, value in SOON.items())
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS])
os.environ["JAX_COMPILATION_CACHE_DIR"] = KERNELS
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = str(LEAST_SECONDS)


made_fast = False
"""Whether kernels are compiled as users have them: in files of tests with the marker `made_fast`."""


def made(options: Callable[[], dict[str, Any] | None], always: bool = False) -> Callable[[], dict[str, Any] | None]:
    """Compiler options of kernels, in files of tests that ask for it (or `always`) those that users have."""

    def found() -> dict[str, Any] | None:
        stated = options()
        return FAST | stated if (always or made_fast) and stated is not None else stated

    return found


# before any module takes them
kernel.compile_options = made(kernel.compile_options)
kernel.unfused = made(kernel.unfused, always=True)  # XLA crashes when it keeps the bounds of a study, compiled soon


@pytest.fixture(scope="module", autouse=True)
def _made_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kernels of a file of tests, also those that its other fixtures make, are compiled as it asks."""
    global made_fast
    made_fast = request.node.get_closest_marker("made_fast") is not None
    yield
    made_fast = False


@pytest.fixture(scope="module", autouse=True)
def _kernels_let_go() -> Iterator[None]:
    """JAX keeps every kernel that a process has compiled: after a file of tests they go, where they are many."""
    yield
    if psutil.Process().memory_info().rss > MUCH_MEMORY:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def random_designs() -> Designs:
    """Random designs over the whole catalogue and every axis."""
    return draw_designs()


@pytest.fixture
def float64() -> Iterator[None]:
    """Full precision while a test runs."""
    with jax.enable_x64(True):
        yield
