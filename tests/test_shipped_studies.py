"""The studies that people run first can be traced: each one shipped, and the one in the README."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from kvwall.sweep.bounds import Bounds
from kvwall.sweep.boxes import Ordered
from kvwall.sweep.keeping import STORES
from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study

ROOT = Path(__file__).parent.parent
SHIPPED = sorted(path.stem for path in (ROOT / "sweep" / "studies").glob("*.toml"))


def of_readme() -> Study:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    (text,) = (block for block in blocks if "[study]" in block)
    return Study.from_text(text)


@pytest.mark.parametrize("name", [*SHIPPED, "README"])
def test_the_kernels_of_a_study_can_be_traced(name: str) -> None:
    study = of_readme() if name == "README" else Study.load(name)
    problem = problem_of(study)
    if STORES[study.store].summary:
        for reducer in Stream(problem).reducers():
            assert jax.make_jaxpr(reducer.reduce)(np.int32(0), reducer.edges).out_avals
    else:
        ordered = Ordered(study.space)
        assert len(Bounds(problem, ordered)(ordered.root(np.arange(1))).best) == 1
