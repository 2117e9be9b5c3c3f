"""The exact front of a grid without evaluating every design: blocks that provably hold nothing of it are left out.

Boxes of the grid are halved until each is ruled out by its bounds (nothing in it is feasible, or admissible, or not
dominated by a design that is known), or is one design, or holds only designs that tie. Every design of the grid is
accounted for once: `Certificate` says by what.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from kvwall.spaces.errors import InputError
from kvwall.sweep.bounds import ADMISSIBLE, BOXES_PER_CALL, INFEASIBLE, POSSIBLE, REJECTED, Bound, Bounds
from kvwall.sweep.boxes import Boxes, Ordered, joined
from kvwall.sweep.dives import dive
from kvwall.sweep.dominance import Guards
from kvwall.sweep.front import Front, nondominated
from kvwall.sweep.kernel import Problem
from kvwall.sweep.looseness import Looseness
from kvwall.sweep.stream import Keeper, Progress

Array: TypeAlias = np.ndarray[Any, Any]

MOST_POINTS = 2**62
"""Points of a grid that 64-bit indices can number, with room for sums."""
_PENDING = 2048
"""Designs that wait to be taken into the front together: each time the whole front is sorted."""


@dataclass
class Certificate:
    """Designs of the grid by what settled them, and blocks (boxes of more than one design) likewise."""

    infeasible_points: int = 0
    infeasible_blocks: int = 0
    """In which no design is feasible."""
    rejected_points: int = 0
    rejected_blocks: int = 0
    """All of which a constraint, or an objective without a source, rules out."""
    dominated_points: int = 0
    dominated_blocks: int = 0
    """Whose best possible values some known design dominates."""
    tied_points: int = 0
    tied_blocks: int = 0
    """Of admissible designs that all have the same objectives."""
    evaluated_points: int = 0
    """Admissible designs that were compared one by one."""
    boxes: int = 0
    """Bounds computed, of blocks and of single designs."""

    def add(self, other: Certificate) -> None:
        """Count what another has counted."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def points(self) -> int:
        """Designs that are settled."""
        return sum(getattr(self, one.name) for one in fields(self) if one.name.endswith("_points"))

    def counts(self) -> dict[str, int]:
        """All of it by name, and the blocks proven to hold nothing of the front."""
        return {**asdict(self), "irrelevant_blocks": self.irrelevant_blocks}

    @property
    def irrelevant_blocks(self) -> int:
        """Blocks proven to hold nothing of the front."""
        return self.infeasible_blocks + self.rejected_blocks + self.dominated_blocks


@dataclass(frozen=True)
class Branched:
    """What a search comes to."""

    front: Front
    certificate: Certificate
    seconds: float
    """Of this run, without compiling."""
    compile_seconds: float


@dataclass(frozen=True)
class _Looked:
    """What the bounds of some boxes say."""

    settled: Certificate
    values: Array
    """Objectives of designs that may be on the front, or of boxes of ties."""
    index: Array
    often: Array
    open: Boxes
    """To be halved; the most promising last."""


@dataclass
class _State:
    """How far a search is: what is still to be looked at, what is found."""

    front: Front
    certificate: Certificate
    waiting: list[Boxes] = field(default_factory=list)
    """None of them empty."""
    roots: int = 0
    """Roots that have been taken."""


class BranchSearch:
    """Finds the exact front of a grid of which boxes can be bounded."""

    def __init__(self, ordered: Ordered, bounds: Bound, objectives: int) -> None:
        self.space = ordered.space
        if self.space.size > MOST_POINTS:
            raise InputError(
                f"the grid has {self.space.size:.3g} points, and {MOST_POINTS:.3g} can be numbered: split it"
            )
        began = time.perf_counter()
        self._ordered = ordered
        self._bounds = bounds
        self._objectives = objectives
        self._looseness = Looseness(bounds, ordered)
        self._guards = Guards(objectives, BOXES_PER_CALL)
        self._known = nondominated(dive(bounds, self._looseness, ordered, objectives))
        """Objectives of a few good designs, to compare with before any front is found."""
        self.compile_seconds = time.perf_counter() - began

    @classmethod
    def of(cls, problem: Problem) -> BranchSearch:
        """The search of a problem's grid. Raises InputError where it has no objective."""
        if not problem.objectives:
            raise InputError("a front needs an objective: name one in [objectives]")
        began = time.perf_counter()
        ordered = Ordered(problem.columns.space)
        search = cls(ordered, Bounds(problem, ordered), len(problem.objectives))
        search.compile_seconds = time.perf_counter() - began
        return search

    def run(self, progress: Progress = lambda done, points: None, keep: Keeper | None = None) -> Branched:
        """Search the whole grid. The front does not depend on threads, nor on interruptions.

        `keep` is given the state from time to time, and hands back the last one it was given when a run starts over.
        """
        began = time.perf_counter()
        state = _State(Front(self._objectives, np.float64), Certificate())
        self._restore(state, keep.last() if keep else None)
        self._guards.replace(self._members(state.front))
        progress(state.certificate.points, self.space.size)
        threads = os.cpu_count() or 1
        pending: list[_Looked] = []
        flying: deque[tuple[Boxes, Future[_Looked]]] = deque()
        with ThreadPoolExecutor(threads) as pool:
            try:
                while True:
                    while len(flying) <= threads and len(boxes := self._next(state)):
                        flying.append((boxes, pool.submit(self._look, boxes)))
                    if not flying:
                        break
                    found = flying.popleft()[1].result()
                    state.certificate.add(found.settled)
                    state.waiting += _some(found.open)
                    pending.append(found)
                    if sum(len(one.index) for one in pending) >= max(_PENDING, len(state.front) // 4):
                        self._take(state.front, pending)
                    progress(state.certificate.points, self.space.size)
                    if keep:
                        keep.offer(lambda: self._arrays(state, pending, [boxes for boxes, _ in flying]))
            finally:
                pool.shutdown(cancel_futures=True)
        self._take(state.front, pending)
        if state.certificate.points != self.space.size:
            raise RuntimeError(f"{state.certificate.points:,} of {self.space.size:,} designs are accounted for")
        return Branched(state.front, state.certificate, time.perf_counter() - began, self.compile_seconds)

    def _next(self, state: _State) -> Boxes:
        """Boxes for one call: halves of those that wait, the latest first; new roots where none wait."""
        room, parts = BOXES_PER_CALL // 2, []
        while state.waiting and room:
            part = state.waiting.pop()
            if len(part) > room:
                state.waiting.append(part[:-room])
                part = part[-room:]
            room -= len(part)
            parts.append(part)
        if parts:
            boxes = joined(parts)
            return boxes.halved(self._looseness.loosest(boxes))
        numbers = np.arange(state.roots, min(state.roots + BOXES_PER_CALL, self._ordered.roots))
        state.roots += len(numbers)
        return self._ordered.root(numbers)

    def _look(self, boxes: Boxes) -> _Looked:
        """Bound boxes, and settle those that can be."""
        bounded, sizes = self._bounds(boxes), boxes.sizes
        whole = np.logical_and(bounded.fate == ADMISSIBLE, np.all(bounded.best == bounded.worst, axis=1))
        maybe = np.isin(bounded.fate, (POSSIBLE, ADMISSIBLE))
        dominated = np.zeros(len(boxes), bool)
        dominated[maybe] = self._guards.dominated(bounded.best[maybe])
        rest, single = maybe & ~dominated, sizes == 1
        found, still = rest & (whole | single), np.flatnonzero(rest & ~whole & ~single)
        settled = Certificate(boxes=len(boxes), evaluated_points=int(np.count_nonzero(found & single)))
        for name, which in (
            ("infeasible", bounded.fate == INFEASIBLE),
            ("rejected", bounded.fate == REJECTED),
            ("dominated", dominated),
            ("tied", found & ~single),
        ):
            setattr(settled, f"{name}_points", int(sizes[which].sum()))
            setattr(settled, f"{name}_blocks", int(np.count_nonzero(which & ~single)))
        return _Looked(
            settled,
            bounded.best[found],
            self._ordered.lowest_index(boxes[found]),
            sizes[found],
            boxes[still[np.argsort(-bounded.best[still, 0], kind="stable")]],
        )

    def _take(self, front: Front, pending: list[_Looked]) -> None:
        """Take found designs into the front."""
        if pending:
            values, index, often = (
                np.concatenate([getattr(one, name) for one in pending]) for name in ("values", "index", "often")
            )
            front.add(values, index, often)
            pending.clear()
            self._guards.replace(self._members(front))

    def _members(self, front: Front) -> Array:
        return nondominated(np.concatenate([front.values, self._known]))

    def _arrays(self, state: _State, pending: list[_Looked], flying: list[Boxes]) -> dict[str, Array]:
        """Everything, as named arrays; boxes in flight are looked at again by whoever goes on from here."""
        self._take(state.front, pending)
        waiting = joined([*state.waiting, Boxes.none(len(self.space.dims))])
        again = joined([*flying, Boxes.none(len(self.space.dims))])
        return {
            "shape": np.array(self.space.shape, np.int64),
            "certificate": np.array([getattr(state.certificate, one.name) for one in fields(Certificate)], np.int64),
            "roots": np.array(state.roots, np.int64),
            **{f"front.{key}": array for key, array in state.front.arrays().items()},
            **{"waiting.first": waiting.first, "waiting.last": waiting.last},
            **{"again.first": again.first, "again.last": again.last},
        }

    def _restore(self, state: _State, arrays: Mapping[str, Array] | None) -> None:
        """Go back to what `_arrays` gave."""
        if arrays is None or "waiting.first" not in arrays or tuple(arrays["shape"]) != self.space.shape:
            return
        state.front.restore({key.partition(".")[2]: a for key, a in arrays.items() if key.startswith("front.")})
        for one, count in zip(fields(Certificate), arrays["certificate"].tolist(), strict=True):
            setattr(state.certificate, one.name, count)
        state.roots = int(arrays["roots"])
        state.waiting += _some(Boxes(arrays["waiting.first"], arrays["waiting.last"]))
        again = Boxes(arrays["again.first"], arrays["again.last"])
        for start in range(0, len(again), BOXES_PER_CALL):
            found = self._look(again[start : start + BOXES_PER_CALL])
            state.certificate.add(found.settled)
            state.waiting += _some(found.open)
            state.front.add(found.values, found.index, found.often)


def _some(boxes: Boxes) -> list[Boxes]:
    """A list of these, if there are any."""
    return [boxes] if len(boxes) else []
