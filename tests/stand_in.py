"""A calibration of prior means: what is believed before any whole step is seen, with bands as wide as that belief.

For tests of laws and commands that hold whatever the record says.
"""

from functools import cache

import numpy as np

from kvwall.spaces.calibration import Calibration, Effect, Reach, TermEffects
from kvwall.spaces.terms import TERMS

ENGINES = ("vllm", "sglang", "trtllm")
CHIPS = ("h100-sxm", "mi300x")
LONGEST, LARGEST = 32_768, 256


@cache
def stand_in() -> Calibration:
    """The record; vLLM differs from the mean in two terms, and its rows cover two chips."""
    terms = {
        name: TermEffects(
            meaning=term.meaning,
            unit=term.unit,
            share=0.1,
            mean=Effect(term.mean, term.sd, 100),
            engine={engine: Effect(0.1 * place, 0.05, 30) for place, engine in enumerate(ENGINES)}
            if "engine" in term.spread and name in {"layer", "weights"}
            else {},
            architecture={"hopper": Effect(0.02, 0.05, 60)} if "architecture" in term.spread else {},
            chip={"h100-sxm": Effect(-0.01, 0.03, 50)} if "chip" in term.spread else {},
            machine={},
        )
        for name, term in TERMS.items()
    }
    sds = [
        effect.sd
        for each in terms.values()
        for effect in (each.mean, *each.engine.values(), *each.architecture.values(), *each.chip.values())
    ]
    return Calibration(
        version="stand-in",
        fitted="2026-01-01",
        rows=100,
        sources={"stand-in": 100},
        model_spread=0.08,
        expert_spread=0.15,
        reach=Reach(
            context={f"{engine}/{chip}": LONGEST for engine in ENGINES for chip in CHIPS},
            batch={f"{engine}/{chip}": LARGEST for engine in ENGINES for chip in CHIPS},
            pairs=tuple(f"{engine}/{chip}" for engine in ENGINES for chip in CHIPS),
            cache_bits={engine: (16.0, 8.0) for engine in ENGINES},
        ),
        terms=terms,
        covariance=tuple(map(tuple, np.diag(np.square(sds)).tolist())),
    )
