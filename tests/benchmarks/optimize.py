"""Regret of `kvwall optimize` on the shipped study: cold trials, worst of several seeds. One JSON object on stdout."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from kvwall.sweep.search import optimize
from kvwall.sweep.search.exact import grid_optimum
from kvwall.sweep.study import Study


def measure(study: Study, seeds: int, trials: int, optimum: float | None) -> dict[str, object]:
    """Regret per seed, and seconds with the trials kept in SQLite as the command keeps them."""
    regrets, seconds = [], []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = optimize(
                study,
                trials=trials,
                seed=seed,
                cold=True,
                storage=str(Path(folder) / "trials.db"),
                exact_optimum=lambda study: optimum,
            )
        regrets.append(found.regret)
        seconds.append(round(found.seconds, 3))
    known = [regret for regret in regrets if regret is not None]
    return {
        "study": study.name,
        "points": study.space.size,
        "trials": trials,
        "seeds": seeds,
        "exact_optimum": optimum,
        "regret": regrets,
        "worst_regret": max(known) if len(known) == len(regrets) else None,
        "seconds": seconds,
    }


def main() -> None:
    """Parse arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", default="memory-wall")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=2000)
    given = parser.parse_args()
    study = Study.load(given.study)
    began = time.monotonic()
    optimum = grid_optimum(study)
    exact_seconds = time.monotonic() - began
    measured = measure(study, given.seeds, given.trials, optimum)
    print(json.dumps(measured | {"exact_seconds": round(exact_seconds, 3)}))


if __name__ == "__main__":
    main()
