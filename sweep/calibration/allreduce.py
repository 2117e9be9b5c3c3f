"""All-reduces at the sizes of decoding, by kind of link, number of devices and implementation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from kvwall.objectives.kernels import all_reduce_time
from kvwall.spaces.hardware import hardware_names, load_hardware
from kvwall.spaces.kernel_record import KernelTables
from kvwall.sweep.calibration.cells import FIXED, Fitted, Floats, Number, fit_cell
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.effects import CellNumber, fit_effects
from kvwall.sweep.calibration.kernel_rows import AllReduceRow

LARGEST: Final = 2**24
"""Bytes of the largest message that is fitted: a batch of a thousand vectors; larger ones go by other algorithms."""

_SHARE: Final = Number(0.5, 0.7, 1.2)
"""Above 1 where the switch adds."""


@dataclass(frozen=True)
class AllReduceCell:
    """The rows of one cell, and what was fitted to them."""

    name: str
    rows: tuple[AllReduceRow, ...]
    fitted: Fitted

    @property
    def captured(self) -> bool:
        """Whether it was measured in a graph, without the host's cost of each launch."""
        return self.rows[0].hardware in hardware_names()

    @property
    def switched(self) -> bool:
        """Whether the link is a fabric of the chips' own, and not the host's bus."""
        chip = self.rows[0].hardware
        return chip in hardware_names() and not load_hardware(chip).scale_up_technology.startswith("PCIe")


def cell_name(row: AllReduceRow) -> str:
    """Of a row's cell."""
    return f"{row.hardware}/{row.engine}/{row.devices}"


def all_reduce_cells(rows: Sequence[AllReduceRow]) -> list[AllReduceCell]:
    """Each cell, fitted to its rows of decoding sizes."""
    small = sorted((row for row in rows if row.message_bytes <= LARGEST), key=cell_name)
    return [_fit(name, tuple(some)) for name, some in groupby(small, key=cell_name)]


def _fit(name: str, rows: tuple[AllReduceRow, ...]) -> AllReduceCell:
    link = chip_of(rows[0].hardware).link_bandwidth
    message: Any = np.array([row.message_bytes for row in rows], dtype=float)

    def law(point: Sequence[float]) -> Floats:
        share, fixed = point
        return np.asarray(all_reduce_time(message, rows[0].devices, share * link, fixed))

    return AllReduceCell(name, rows, fit_cell(law, np.array([row.seconds for row in rows]), (_SHARE, FIXED)))


def all_reduce_tables(cells: Sequence[AllReduceCell]) -> KernelTables:
    """The tables of these cells."""
    misses = np.concatenate([cell.fitted.misses for cell in cells])
    return KernelTables(
        bandwidth=fit_effects([_number(cell, 0) for cell in cells], "1"),
        fixed=fit_effects([_number(cell, 1) for cell in cells if cell.captured], "s"),
        row_spread=float(np.sqrt(np.mean(misses**2))),
    )


def _number(cell: AllReduceCell, place: int) -> CellNumber:
    row = cell.rows[0]
    return CellNumber(
        chip=row.hardware,
        architecture=chip_of(row.hardware).architecture,
        engine=row.engine,
        format=str(row.devices),
        value=float(cell.fitted.value[place]),
        sd=float(cell.fitted.sd[place]),
        rows=len(cell.rows),
        sources=tuple(sorted({each.source.split()[0] for each in cell.rows})),
    )
