"""The memory-wall study's two passes in C (engine_kernel.c); engine_c_check.py says whether they agree with the engine.

Terms of rows and tables of columns are computed here, as they cost nothing per point; the laws of a point are in C.
Both are written by hand for the one study: a dense model, tensor parallelism, one tier, as its axes have it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvwall.sweep.kernel import BINS, RowReducer
from kvwall.sweep.layout import Layout
from kvwall.sweep.stream import Stream

SOURCE = Path(__file__).with_name("engine_kernel.c")
FLAGS = (
    "-O3",
    "-march=native",
    "-ffast-math",
    "-mprefer-vector-width=512",
    "-std=gnu17",
    "-shared",
    "-fPIC",
    "-pthread",
)
LANES = 32
EXTREMES, COUNTS = 10, 8
FEASIBLE, PHASE_KV, REGIME_KV, COMPUTE, LINKS, TIER, ADMISSIBLE = range(7)

COLUMNS = ("hardware", "context", "placement_host"), ("batch", "key_bits", "retention")
"""Of the two passes: what the kernel is written for, whatever the engine walks the grid by."""

_Array = np.ndarray


class CannotMeasure(Exception):
    """Why there is no kernel in C here."""


def compiled() -> ctypes.CDLL:
    """The kernel, compiled for this machine. Raises CannotMeasure without a compiler or its vectors."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("no gcc")
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"kvwall-engine-kernel-{os.getuid()}-{key}.so"
    if not library.exists():
        fresh = library.with_suffix(f".{os.getpid()}")
        found = subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(fresh)], capture_output=True, text=True)
        if found.returncode:
            raise CannotMeasure(f"gcc: {found.stderr.strip().splitlines()[0]}")
        fresh.replace(library)
    return ctypes.CDLL(str(library))


@dataclass
class Terms:
    """What the passes are made of: names of one design, rows along the first dimension and columns along the second."""

    reducer: RowReducer

    def __post_init__(self) -> None:
        layout = self.reducer.layout
        rows, columns = np.arange(layout.row_count), np.arange(layout.column_count)
        where = layout.row_positions(rows)
        across = dict(zip(layout.columns, np.unravel_index(columns, layout.lengths(layout.columns)), strict=True))
        positions = {name: each[:, None] for name, each in where.items()}
        positions |= {name: each[None, :] for name, each in across.items()}
        self.design = self.reducer._problem.columns.design(positions)
        chip, model, parallel = self.design.hardware, self.design.model, self.design.parallel
        self.batch, self.context = self.design.workload.batch, self.design.workload.context
        self.devices = parallel.tensor
        self.per_device = 1 / self.devices
        assert np.all(self.devices <= chip.scale_up_domain), "the kernel knows no scale-out"
        self.share = self.design.placement.host
        self.kept = self.design.eviction.retention
        self.layers, self.hidden_bytes = model.layers, model.hidden * self.design.precision.activation_bits / 8
        self.bandwidth, self.flops = chip.memory_bandwidth, chip.bf16_flops.value
        self.link, self.host = chip.scale_up_bandwidth.value, chip.host.bandwidth.value
        self.price = np.where(self.design.usd_per_second.known, self.design.usd_per_second.value, np.nan)
        self._cache()
        self._weights()

    def _cache(self) -> None:
        form, (group,) = self.design.kv_format, [self.design.model.groups]
        overhead = (form.scale_bits + form.zero_bits) / form.group_size
        self.heads = np.ceil(group.kv_heads[0] / self.devices)
        self.key = form.key_bits + np.where(form.key_bits < 16, overhead, 0)
        self.value = form.value_bits + np.where(form.value_bits < 16, overhead, 0)
        self.per_bit = self.layers * self.heads * group.key_dim[0] / 8
        self.attention = 2 * self.layers * group.query_heads[0] * (group.score_dim[0] + group.mix_dim[0])

    def _weights(self) -> None:
        model, bits = self.design.model, self.design.precision.weight_bits / 8
        dense = model.query_output.elements + model.ffn.elements
        split = self.heads / model.groups.kv_heads[0]
        self.head = model.head.elements * bits / self.devices
        self.streamed = dense * bits / self.devices + model.key_value.elements * bits * split
        self.streamed = self.streamed + model.vectors * model.vector_bits / 8
        self.embedding = model.embedding_table * model.embedding_bits / 8 / self.devices
        self.embedded = model.embedding_row * model.embedding_bits / 8 / self.devices
        self.linear = 2 * (dense + model.key_value.elements)
        self.token_flop = self.linear / self.devices
        self.head_flop = 2 * model.head.elements / self.devices
        self.activations = (2 * model.hidden + model.vocab / self.devices) * self.design.precision.activation_bits / 8
        turns = 2 * (self.devices - 1) / self.devices
        self.exchanged = model.reduces_per_layer * self.layers * turns * self.hidden_bytes


def first_terms(t: Terms) -> tuple[list, list]:
    """(columns, rows) of the first pass, in the order of the kernel's names."""
    stays, token = 1 - t.share, t.per_bit * (t.key + t.value)
    hbm, ahead = t.context * stays, t.context * t.context / 2
    columns = [
        t.design.hardware.memory_capacity, t.context, hbm, 1 / t.bandwidth, hbm / t.bandwidth, 1 / t.flops, 1 / t.link,
        t.context * t.share, t.price, t.design.hardware.memory_energy.value, 1 / stays, t.context / t.bandwidth,
        (t.linear * t.context + t.attention * ahead) / t.flops, t.context / t.link,
    ]  # fmt: skip
    read, written = t.streamed + t.head + t.batch * t.embedded, t.batch * token
    kv = t.batch * t.kept * token
    host_energy = kv * t.design.hardware.host.energy.value.flat[0]
    rows = [
        t.streamed + t.head + t.embedding, t.batch, t.activations, t.kept * token, kv, read + written, read / kv,
        (read - written) / kv, t.batch * t.kept * t.attention * t.per_device, t.batch * (t.token_flop + t.head_flop),
        t.exchanged * t.batch, kv / t.host.flat[0], 1 / t.batch, host_energy, t.embedded + token,
        t.streamed + t.head, t.per_device, t.head_flop, t.exchanged, 0.1,
        t.design.hardware.flop_energy.value.flat[0],
    ]  # fmt: skip
    return columns, rows


def second_terms(t: Terms) -> tuple[list, list]:
    """(columns, rows) of the second pass, in the order of the kernel's names; ladders are numbered by devices."""
    stays, per_bit = 1 - t.share, t.per_bit
    kinds, place = np.unique(t.key, return_inverse=True)
    columns = [
        t.batch, t.kept, t.key * t.kept, t.batch * t.kept, t.batch * t.key * t.kept, t.batch * t.key, 1 / t.batch,
        1 / t.kept, t.key, place.reshape(1, -1).astype(np.int32),
    ]  # fmt: skip
    read, cached = t.streamed + t.head, per_bit * t.context
    over, chip = t.share * cached, t.design.hardware
    sums = np.zeros((1, 16))
    sums[0, : len(kinds)] = kinds
    rows = [
        t.value, stays * cached, t.activations, chip.memory_capacity - read - t.embedding, read, t.embedded,
        stays * cached, per_bit, 1 / t.bandwidth, t.token_flop + t.head_flop,
        t.context * t.attention * t.per_device, 1 / t.flops, t.exchanged / t.link, over / t.host, over,
        chip.memory_energy.value, over * chip.host.energy.value, chip.flop_energy.value, cached, np.log2(t.devices),
    ]  # fmt: skip
    with np.errstate(divide="ignore"):
        rows += list(1 / (sums + t.value).T[:, :, None])
    return columns, rows


class Pass:
    """A pass in C: `run` fills extremes and counts of every row."""

    def __init__(self, library: ctypes.CDLL, number: int, reducer: RowReducer) -> None:
        self._library, self._number, self.reducer = library, number, reducer
        self.terms = Terms(reducer)
        columns, rows = (first_terms, second_terms)[number](self.terms)
        layout = reducer.layout
        self.vectors = -(-layout.column_count // LANES)
        self.columns = self._tables(columns, layout.column_count)
        self.rows = np.empty((layout.row_count, len(rows)), np.float32)
        for place, row in enumerate(rows):
            self.rows[:, place] = np.broadcast_to(np.reshape(row, np.shape(row)[-2:]), (layout.row_count, 1))[:, 0]
        assert library.column_tables(number) == len(columns)
        assert library.row_terms(number) == len(rows)
        assert number == 0 or 2 * self.vectors < 256, "bins are counted in bytes"
        self.extremes = np.empty((layout.row_count, 2 * EXTREMES), np.float32)
        self.counts = np.empty((layout.row_count, COUNTS + BINS), np.int32)

    def _tables(self, columns: list, count: int) -> _Array:
        """(vectors, tables, 16), aligned to a vector; past the last column NaN, which nothing counts."""
        flat = np.full((len(columns), self.vectors * LANES), np.nan, np.float32)
        for place, column in enumerate(columns):
            wide = np.broadcast_to(np.reshape(column, np.shape(column)[-2:]), (1, count))[0]
            flat[place, :count] = wide.view(np.float32) if wide.dtype == np.int32 else wide
        interleaved = flat.reshape(len(columns), self.vectors, LANES).transpose(1, 0, 2)
        return _aligned(interleaved)

    def run(self, threads: int, rows: int | None = None) -> None:
        """Every row (or the first so many)."""
        ladders = self._ladders()
        self._library.run_pass(
            self._number, threads, _address(self.columns), ctypes.c_long(self.vectors), _address(self.rows),
            ctypes.c_long(rows or len(self.rows)), _address(ladders), _address(self.extremes), _address(self.counts),
        )  # fmt: skip

    def _ladders(self) -> _Array:
        """Per number of devices, the thresholds of time per sequence in the order in which a bin is sought."""
        with np.errstate(divide="ignore"):
            edge = 1 / (self.reducer.edges.astype(np.float64) * np.array([1, 2, 4, 8])[:, None])
        ladders = np.zeros((4, 4, BINS), np.float32)
        ladders[:, 0] = edge[:, 8:9]
        for step, stride in ((1, 4), (2, 2), (3, 1)):
            for place in range(0, BINS, 2 * stride):
                ladders[:, step, place] = edge[:, place + stride]
        return _aligned(ladders)


def _aligned(array: _Array) -> _Array:
    room = np.empty(array.size + 16, np.float32)
    start = (-room.ctypes.data % 64) // 4
    placed = room[start : start + array.size].reshape(array.shape)
    placed[...] = array
    return placed


def _address(array: _Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def reducers(stream: Stream) -> tuple[RowReducer, RowReducer]:
    """The engine's two passes over the kernel's columns, not compiled."""
    found = []
    for own, columns in zip(stream.reducers(), COLUMNS, strict=True):
        layout = Layout(stream.space, columns)
        rows = own.rows_per_call * own.layout.column_count // layout.column_count
        found.append(RowReducer(own._problem, layout, rows, own.metrics, own.histogram))
        found[-1].edges = own.edges
    return tuple(found)


def passes(reducers: tuple[RowReducer, RowReducer]) -> tuple[Pass, Pass]:
    """Both passes in C. Raises CannotMeasure."""
    library = compiled()
    return Pass(library, 0, reducers[0]), Pass(library, 1, reducers[1])
