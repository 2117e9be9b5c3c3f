"""What every test runs under, and the random designs that several files share.

A NaN that reaches the result of a law is an error here (`jax_debug_nans`). Rank promotion is not refused: layer
groups and quality curves carry one leading dimension more than the axes they broadcast against, by design. That no
other broadcast goes wrong is shown in `tests/test_register.py`: a grid holds the numbers of its single designs.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from tests.designs import Designs, draw_designs

jax.config.update("jax_debug_nans", True)


@pytest.fixture(scope="session")
def random_designs() -> Designs:
    """Random designs over the whole catalogue and every axis."""
    return draw_designs()


@pytest.fixture
def float64() -> Iterator[None]:
    """Full precision while a test runs."""
    with jax.enable_x64(True):
        yield
