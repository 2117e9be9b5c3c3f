"""How the stored slice of a grid is cut into shards: one file, one block."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvwall.sweep.keeping import PROFILES

if TYPE_CHECKING:
    from kvwall.spaces.space import Space
    from kvwall.sweep.study import Study

MOST_POINTS = 4_000_000
"""Points of one shard: 16 MB of a float32 variable."""
MOST_SHARDS = 20_000
"""Above this a virtual dataset opens slowly: shards grow instead."""
MOST_CHUNK_POINTS = 500_000
"""Points of one HDF5 chunk inside a shard: 2 MB of a float32 variable, what a small selection has to read."""
_FILE_OVERHEAD = 200_000  # header, coordinates, attributes
_SIGN_AND_EXPONENT = 9  # bits


def shard_name(index: int) -> str:
    """Name of the file of a shard in the folder `shards`.

    >>> shard_name(123)
    '000123.nc'
    """
    return f"{index:06d}.nc"


@dataclass(frozen=True)
class Shard:
    """One block of the stored slice."""

    index: int
    start: tuple[int, ...]
    """First position along each dimension of the stored slice."""
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where it lies in the stored slice."""
        return tuple(slice(start, start + length) for start, length in zip(self.start, self.shape, strict=True))

    @property
    def name(self) -> str:
        """Name of its file in the folder `shards`."""
        return shard_name(self.index)

    @property
    def size(self) -> int:
        """Points."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ShardPlan:
    """The stored slice and its shards. Its dimensions are the grid's, those the slice holds at one value included."""

    dims: tuple[str, ...]
    positions: Mapping[str, NDArray[np.int32]]
    """Dimension -> grid positions stored, in grid order."""
    block: tuple[int, ...]
    """Shape of a shard; the last along a dimension may be shorter."""
    chunk: tuple[int, ...]
    """Shape of an HDF5 chunk: the same in every shard, and shards are cut between chunks, so that all of them fit into
    one file as they are."""
    bytes_per_point: float
    """Upper bound of what one point takes on disk, after rounding."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension of the stored slice."""
        return tuple(len(self.positions[dim]) for dim in self.dims)

    @property
    def size(self) -> int:
        """Points stored."""
        return math.prod(self.shape)

    @property
    def file_dims(self) -> tuple[str, ...]:
        """Dimensions that files have: those with more than one stored value."""
        return tuple(dim for dim in self.dims if len(self.positions[dim]) > 1)

    def file_shape(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths along `file_dims`, out of one length for each of `dims`."""
        return tuple(length for dim, length in zip(self.dims, lengths, strict=True) if dim in self.file_dims)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """Every shard, in grid order."""
        counts = tuple(math.ceil(n / b) for n, b in zip(self.shape, self.block, strict=True))
        return tuple(self._shard(index, corner) for index, corner in enumerate(np.ndindex(counts)))

    def _shard(self, index: int, corner: tuple[int, ...]) -> Shard:
        start = tuple(c * b for c, b in zip(corner, self.block, strict=True))
        shape = tuple(min(b, n - s) for b, n, s in zip(self.block, self.shape, start, strict=True))
        return Shard(index, start, shape)

    def grid_positions(self, shard: Shard) -> dict[str, NDArray[np.int32]]:
        """Dimension -> the shard's positions in the study's grid, 1-D each: what `Columns.design` takes reshaped."""
        return {dim: self.positions[dim][cut] for dim, cut in zip(self.dims, shard.slices, strict=True)}

    def required_bytes(self, shards: tuple[Shard, ...] | None = None) -> int:
        """Upper bound of the bytes on disk of these shards; of all when not given."""
        chosen = self.shards if shards is None else shards
        points = sum(shard.size for shard in chosen)
        return math.ceil(points * self.bytes_per_point) + _FILE_OVERHEAD * (len(chosen) + 1)


def shard_plan(study: Study) -> ShardPlan:
    """The plan of a study's stored slice."""
    positions = {dim: _stored_positions(study.space, dim, study.slice) for dim in study.space.dims}
    shape = tuple(len(stored) for stored in positions.values())
    block, chunk = _cuts(shape)
    return ShardPlan(study.space.dims, positions, block, chunk, _bytes_per_point(study))


def _stored_positions(space: Space, dim: str, slice_: Mapping[str, tuple[object, ...]]) -> NDArray[np.int32]:
    values = space.values(dim)
    chosen = slice_.get(dim, values)
    return np.array([position for position, value in enumerate(values) if value in chosen], dtype=np.int32)


def _bytes_per_point(study: Study) -> float:
    from kvwall.objectives.register import LABELS

    labels = len({"status", *(name for name in study.keep if name in LABELS)})
    metrics = sum(name not in LABELS for name in study.keep)
    bits = _SIGN_AND_EXPONENT + PROFILES[study.profile].keep_bits
    # Deflate can add a little to what will not compress.
    return 1.01 * (metrics * bits / 8 + labels)


def _cuts(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of a shard and of a chunk inside it."""
    most = MOST_POINTS
    while True:
        block, chunk = _fitted(block_shape(shape, most), block_shape(shape, min(most, MOST_CHUNK_POINTS)), shape)
        if math.prod(math.ceil(n / b) for n, b in zip(shape, block, strict=True)) <= MOST_SHARDS:
            return block, chunk
        most *= 2


def _fitted(
    block: tuple[int, ...], chunk: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Block and chunk, cut a little shorter so that a block is whole chunks, and no block is shorter than a chunk.

    >>> _fitted((800, 7), (100, 7), (1650, 7))
    ((776, 7), (97, 7))
    """
    longest = {dim: b for dim, (b, n) in enumerate(zip(block, shape, strict=True)) if b < n}
    fitted_block, fitted_chunk = list(block), list(chunk)
    for dim, most in longest.items():
        for length in range(chunk[dim], 0, -1):
            fitted_block[dim], fitted_chunk[dim] = most - most % length, length
            if not 0 < shape[dim] % fitted_block[dim] < length:
                break
    return tuple(fitted_block), tuple(fitted_chunk)


def block_shape(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """A block of at most so many points: trailing dimensions whole, the first that does not fit cut evenly.

    >>> block_shape((3, 10, 1000), 4000)
    (1, 4, 1000)
    """
    block: list[int] = []
    room = most
    for length in reversed(shape):
        pieces = math.ceil(length / room)
        block.append(math.ceil(length / pieces))
        room = 1 if pieces > 1 else room // length
    return tuple(reversed(block))
