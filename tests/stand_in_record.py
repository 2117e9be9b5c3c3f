"""A calibration record without a fit: the terms at what is expected of them, each off on its own."""

from __future__ import annotations

import numpy as np

from kvwall.spaces.calibration import Calibration, Effect, Reach, TermEffects
from kvwall.spaces.terms import TERMS


def stand_in(spread: float = 0.1, context: int = 32_768, batch: int = 512, shift: float = 0.0) -> Calibration:
    """What is known before any row is seen; `shift` is added to the logarithm of every term."""
    terms = {
        name: TermEffects(term.meaning, term.unit, 0.3, Effect(term.mean + shift, term.sd / 4, 10), {}, {}, {})
        for name, term in TERMS.items()
    }
    return Calibration(
        version="stand-in",
        fitted="2026-01-01",
        rows=10,
        sources={"x": 10},
        model_spread=spread,
        expert_spread=2 * spread,
        inflation=1.0,
        reach=Reach(context, batch, ("vllm/h100-sxm", "llamacpp/rtx-4090"), {"vllm": (16.0, 8.0), "llamacpp": (16.0,)}),
        terms=terms,
        covariance=tuple(map(tuple, np.diag([(term.sd / 4) ** 2 for term in TERMS.values()]).tolist())),
    )
