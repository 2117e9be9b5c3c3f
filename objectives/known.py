"""What is known before anything is computed: a neutral axis makes a remedy's law superfluous, not just harmless.

Laws never branch on values. They may leave out work whose result is known while they are being traced, because an axis
is fixed: single designs and compilers are spared it, and the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from kvwall.spaces.units import Real

_State = TypeVar("_State")


def surely(number: Real, value: float) -> bool:
    """Whether a number is concrete and this value everywhere; False where it is only known when it is computed.

    >>> surely(np.zeros(3), 0.0), surely(np.array([0.0, 1.0]), 0.0)
    (True, False)
    """
    return isinstance(number, np.ndarray | np.generic | float | int) and bool(np.all(np.asarray(number) == value))


def repeated(round_of: Callable[[_State], _State], state: _State, rounds: int) -> _State:
    """The state after so many rounds: a loop where it is traced, of which one round is compiled.

    Known numbers are gone through one by one, as a loop would be compiled for these very numbers.

    >>> repeated(lambda number: 2 * number, 1.0, 3)
    8.0
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(state)):
        looped: Any = jax.lax.scan(lambda held, _: (round_of(held), None), state, length=rounds)
        found: _State = looped[0]
        return found
    for _ in range(rounds):
        state = round_of(state)
    return state
