"""The search of a problem's front, with its progress shown."""

from __future__ import annotations

from kvwall.sweep.branch import Branched, BranchSearch
from kvwall.sweep.kernel import Problem
from kvwall.sweep.progress import Watch
from kvwall.sweep.stream import Keeper


def search_front(problem: Problem, watch: Watch, keep: Keeper) -> Branched:
    """Find the exact front by bounds; goes on from the last state that `keep` has."""
    watch.stage("compiling", 1, "study")
    search = BranchSearch.of(problem)
    watch.update(1)
    begun = False

    def follow(done: int, points: int) -> None:
        nonlocal begun
        if not begun:
            begun = True
            watch.stage("settling", points, "points", done)
        watch.update(done)

    return search.run(follow, keep)
