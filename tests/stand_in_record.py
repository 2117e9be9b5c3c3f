"""A calibration record without a fit: the terms at what is expected of them, each off on its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvwall.spaces.calibration import Calibration, Effect, Reach, TermEffects
from kvwall.spaces.terms import LEVELS, TERMS

_PAIRS = ("vllm/h100-sxm", "llamacpp/rtx-4090")
_KNOWN = {"engine": "vllm", "architecture": "hopper", "chip": "h100-sxm"}
_SD = 0.02


def stand_in(spread: float = 0.1, context: int = 32_768, batch: int = 512) -> Calibration:
    """What is known before any row is seen, as if vLLM on H100 had been: its effects are 0, for certain or nearly."""
    terms = {}
    for name, term in TERMS.items():
        there = [level for level in _KNOWN if level in term.spread]
        levels = [{_KNOWN[level]: Effect(0.0, _SD, 5)} if level in there else {} for level in LEVELS]
        terms[name] = TermEffects(term.meaning, term.unit, Effect(term.mean, term.sd / 4, 10), *levels)
    record = Calibration(
        version="stand-in",
        fitted="2026-01-01",
        rows=10,
        sources={"x": 10},
        model_spread=spread,
        expert_spread=2 * spread,
        reach=Reach(
            dict.fromkeys(_PAIRS, context),
            dict.fromkeys(_PAIRS, batch),
            _PAIRS,
            {"vllm": (16.0, 8.0), "llamacpp": (16.0,)},
        ),
        terms=terms,
    )
    spreads = [TERMS[term].sd / 4 if level == "mean" else _SD for term, level, _ in record.names]
    return replace(record, covariance=tuple(map(tuple, np.diag(np.square(spreads)).tolist())))
