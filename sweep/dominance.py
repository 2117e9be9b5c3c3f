"""Which boxes some known design dominates, tested against a whole front a chunk of members at a time."""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

MEMBERS_PER_LOOK = 128


class Guards:
    """Objective vectors that designs are known to reach; those that ruled out most are asked first."""

    def __init__(self, objectives: int, most: int) -> None:
        self._shape = (most, objectives)
        self._members = np.empty((0, objectives))
        self._caught = np.empty(0, np.int64)
        with jax.enable_x64(True):
            ideals = jax.ShapeDtypeStruct(self._shape, jnp.float64)
            members = jax.ShapeDtypeStruct((MEMBERS_PER_LOOK, objectives), jnp.float64)
            self._run = jax.jit(_first_that_dominates).lower(ideals, members).compile()

    def replace(self, members: Array) -> None:
        """Guard with these vectors, shape (members, objectives); what old ones have caught is remembered."""
        known = dict(zip(map(bytes, self._members), self._caught.tolist(), strict=True))
        caught = np.array([known.get(bytes(member), 0) for member in members], np.int64)
        order = np.argsort(-caught, kind="stable")
        self._members, self._caught = np.ascontiguousarray(members[order]), caught[order]

    def dominated(self, ideals: Array) -> Array:
        """Which of these vectors (at most `most`) some guard dominates: nowhere worse, somewhere better."""
        members, caught = self._members, self._caught  # another thread may replace them
        found = np.zeros(len(ideals), bool)
        for start in range(0, len(members), MEMBERS_PER_LOOK):
            alive = np.flatnonzero(~found)
            if not len(alive):
                break
            which = self._look(ideals[alive], members[start : start + MEMBERS_PER_LOOK])
            hit = which < MEMBERS_PER_LOOK
            found[alive] = hit
            caught[start : start + MEMBERS_PER_LOOK] += np.bincount(which[hit], minlength=MEMBERS_PER_LOOK)[
                : len(caught[start : start + MEMBERS_PER_LOOK])
            ]
        return found

    def _look(self, ideals: Array, members: Array) -> Array:
        """Per vector the place of the first member that dominates it; MEMBERS_PER_LOOK where none does."""
        padded = np.full((MEMBERS_PER_LOOK, members.shape[1]), np.inf)
        padded[: len(members)] = members
        with jax.enable_x64(True):
            return np.asarray(self._run(np.resize(ideals, self._shape), padded))[: len(ideals)]


def _first_that_dominates(ideals: jax.Array, members: jax.Array) -> jax.Array:
    """A fused pass: per ideal, over all members."""
    columns = range(ideals.shape[1])
    at_most = reduce(jnp.logical_and, (members[:, k] <= ideals[:, k, None] for k in columns))
    smaller = reduce(jnp.logical_or, (members[:, k] < ideals[:, k, None] for k in columns))
    place = jnp.arange(members.shape[0])
    return jnp.min(jnp.where(jnp.logical_and(at_most, smaller), place, members.shape[0]), axis=1)
