"""What is known before anything is computed: a neutral axis makes a remedy's law superfluous, not just harmless.

Laws never branch on values. They may leave out work whose result is known while they are being traced, because an axis
is fixed: single designs and compilers are spared it, and the numbers are the same.
"""

from __future__ import annotations

import numpy as np

from kvwall.spaces.units import Real


def surely(number: Real, value: float) -> bool:
    """Whether a number is concrete and this value everywhere; False where it is only known when it is computed.

    >>> surely(np.zeros(3), 0.0), surely(np.array([0.0, 1.0]), 0.0)
    (True, False)
    """
    return isinstance(number, np.ndarray | np.generic | float | int) and bool(np.all(np.asarray(number) == value))
