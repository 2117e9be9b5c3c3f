"""Boxes of a grid: a range of positions along each dimension, in the order of the values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from kvwall.spaces.space import Space

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Boxes:
    """Boxes as first and last places, both of shape (boxes, dimensions), int32, both inclusive."""

    first: Array
    last: Array

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, chosen: Any) -> Boxes:
        return Boxes(self.first[chosen], self.last[chosen])

    @property
    def lengths(self) -> Array:
        """Places along each dimension, int64."""
        return (self.last - self.first).astype(np.int64) + 1

    @property
    def sizes(self) -> Array:
        """Points of each box; int64."""
        found: Array = np.prod(self.lengths, axis=1)
        return found

    @classmethod
    def none(cls, dimensions: int) -> Boxes:
        """No boxes, of so many dimensions."""
        return cls(np.empty((0, dimensions), np.int32), np.empty((0, dimensions), np.int32))

    def halved(self, along: Array) -> Boxes:
        """Both halves of every box, along one dimension for each; that dimension has at least two places."""
        rows = np.arange(len(self))
        middle = (self.first[rows, along] + self.last[rows, along]) // 2
        lower, upper = self.last.copy(), self.first.copy()
        lower[rows, along], upper[rows, along] = middle, middle + 1
        return joined([Boxes(self.first, lower), Boxes(upper, self.last)])


def joined(parts: list[Boxes]) -> Boxes:
    """All boxes of some parts."""
    return Boxes(np.concatenate([part.first for part in parts]), np.concatenate([part.last for part in parts]))


@dataclass(frozen=True)
class Ordered:
    """A space with its numbers in rising order: a range of places is then a range of values.

    Dimensions of names have no order; a box holds one name of each.
    """

    space: Space

    @cached_property
    def named(self) -> Array:
        """Which dimensions hold names."""
        return np.array([entry.axis.kind not in {"int", "real"} for entry in self.space.dimensions], bool)

    @cached_property
    def positions(self) -> tuple[Array, ...]:
        """Per dimension: place -> grid position."""
        return tuple(
            np.arange(len(entry)) if named else np.argsort([_order(value) for value in entry.values], kind="stable")
            for entry, named in zip(self.space.dimensions, self.named, strict=True)
        )

    @cached_property
    def roots(self) -> int:
        """Boxes that hold one name of each dimension of names and everything else."""
        return int(np.prod([n for n, named in zip(self.space.shape, self.named, strict=True) if named], dtype=np.int64))

    def root(self, numbers: Array) -> Boxes:
        """The roots of these numbers."""
        lengths = [n if named else 1 for n, named in zip(self.space.shape, self.named, strict=True)]
        first = np.zeros((len(numbers), len(lengths)), np.int32)
        if lengths:
            first[:] = np.stack(np.unravel_index(numbers, lengths), axis=1)
        last = np.where(self.named, first, np.array(self.space.shape) - 1).astype(np.int32)
        return Boxes(first, last)

    def lowest_index(self, boxes: Boxes) -> Array:
        """The lowest flat grid index (int64) in each box: the lowest grid position along every dimension."""
        where = [_lowest(order, boxes.first[:, dim], boxes.last[:, dim]) for dim, order in enumerate(self.positions)]
        return self._flat(where)

    def _flat(self, where: list[Array]) -> Array:
        if not where:
            return np.zeros(1, np.int64)  # the grid of one design
        return np.ravel_multi_index(where, self.space.shape).astype(np.int64)


def _lowest(order: Array, first: Array, last: Array) -> Array:
    """The least grid position among the places from first to last."""
    found = order[first].copy()
    for ends in np.unique(np.stack([first, last], axis=1), axis=0):
        here = (first == ends[0]) & (last == ends[1])
        found[here] = order[ends[0] : ends[1] + 1].min()
    return found


def _order(value: object) -> float:
    """Words come first: laws see them as zero."""
    return float(value) if isinstance(value, int | float) else 0.0
