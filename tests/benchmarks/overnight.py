"""The exact front of the shipped study overnight (1.2e12 designs) by bounds. Prints one JSON object.

Also: fronts of memory-wall by bounds and by evaluating every design, which must be the same; and random designs of
overnight, none of which may dominate a member of the front, or be undominated without being one.

    python tests/benchmarks/overnight.py [STUDY] [--no-exhaustive] [--designs N]
"""

from __future__ import annotations

import argparse
import json
import resource

import numpy as np

from kvwall.sweep.branch import BranchSearch
from kvwall.sweep.front import Front, nondominated
from kvwall.sweep.objective import signed
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.run import front_table, problem_of
from kvwall.sweep.stored_front import admissible
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study


def same_as_exhaustive(name: str) -> dict[str, object]:
    """Both fronts of a study that can be evaluated whole."""
    problem = problem_of(Study.load(name))
    by_bounds = front_table(problem, BranchSearch.of(problem).run().front)
    streamed = Stream(problem).run()
    whole = front_table(problem, streamed.front)
    return {
        "study": name,
        "points": problem.columns.space.size,
        "front_by_bounds": len(by_bounds),
        "front_exhaustive": len(whole),
        "identical": bool(
            np.array_equal(by_bounds.grid_index, whole.grid_index)
            and np.array_equal(by_bounds.multiplicity, whole.multiplicity)
        ),
        "exhaustive_seconds": streamed.seconds,
    }


def contradictions(study: Study, front: Front, designs: int) -> dict[str, int]:
    """Random designs, evaluated one by one, that contradict the front."""
    random, wrong, admissible_designs = np.random.default_rng(0), 0, 0
    for start in range(0, designs, 2**17):
        index = random.integers(0, study.space.size, min(2**17, designs - start))
        found = evaluate_designs(problem_of(study), index)
        values = signed(study.objectives, found)[admissible(study.constraints, study.objectives, found)]
        admissible_designs += len(values)
        merged = nondominated(np.concatenate([front.values, values]))
        wrong += len(merged) - len(np.unique(front.values, axis=0))
    return {"random_designs": designs, "admissible_among_them": admissible_designs, "that_contradict_the_front": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", default="overnight")
    parser.add_argument("--no-exhaustive", action="store_true")
    parser.add_argument("--designs", type=int, default=2**20)
    arguments = parser.parse_args()
    study = Study.load(arguments.study)
    search = BranchSearch.of(problem_of(study))
    found = search.run()
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    certificate = found.certificate
    print(
        json.dumps(
            {
                "points": study.space.size,
                "seconds": found.seconds,
                "compile_seconds": found.compile_seconds,
                "points_per_second_settled": study.space.size / found.seconds,
                "peak_rss_bytes": rss,
                "front_size": len(found.front),
                "designs_on_the_front_with_ties": int(found.front.multiplicity.sum()),
                "certificate": vars(certificate) | {"irrelevant_blocks": certificate.irrelevant_blocks},
                "check": contradictions(study, found.front, arguments.designs),
                "exhaustive": None if arguments.no_exhaustive else same_as_exhaustive("memory-wall"),
            }
        )
    )


if __name__ == "__main__":
    main()
