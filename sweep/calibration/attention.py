"""Decode attention: which rows speak for which number, and the tables of what attention kernels reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

from kvwall.objectives.kernels import attention_time
from kvwall.spaces.kernel_record import KernelTables
from kvwall.sweep.calibration.cells import FIXED, SHARE, Fitted, Floats, Number, fit_cell
from kvwall.sweep.calibration.chips import chip_of
from kvwall.sweep.calibration.effects import CellNumber, fit_effects
from kvwall.sweep.calibration.kernel_rows import AttentionRow

UNDIVIDED: Final = frozenset(
    {
        "a100-sxm-80/trtllm/latent16",
        "a100-sxm-80/trtllm/latent8",
        "l40s/trtllm/latent16",
        "l40s/trtllm/latent8",
        "rtx-pro-6000-server/trtllm/latent16",
        "rtx-pro-6000-server/trtllm/latent8",
        "l40s/trtllm/kv8",
        "rtx-pro-6000-server/trtllm/kv8",
    }
)
"""Cells whose time at small batches is the context times a constant: one worker reads a whole sequence."""

ALONE: Final[Mapping[str, str]] = {
    "h100-sxm/sglang/latent8": "fallback: no FP8 latent kernel for this architecture",
    "h200-sxm/sglang/latent8": "fallback: no FP8 latent kernel for this architecture",
    "arc-pro-b60/vllm/kv8": "limited by conversion, by the number of heads",
} | {cell: "undivided kernel" for cell in UNDIVIDED if "latent" in cell}
"""Cells that tell others nothing."""

HOST_BOUND: Final[Mapping[str, str]] = {
    f"{chip}/vllm/{kv_format}": "fixed cost left out: calls wait for the host, 70 to 310 us, which a graph hides"
    for chip, kv_format in (
        ("a100-sxm-80", "latent16"),
        ("arc-pro-b60", "kv16"),
        ("arc-pro-b60", "kv8"),
        ("h100-sxm", "latent16"),
        ("h100-sxm", "latent8"),
        ("h200-sxm", "latent16"),
        ("h200-sxm", "latent8"),
        ("l40s", "latent16"),
    )
}
"""Cells whose fixed cost is the host's."""

_TOKEN: Final = Number(5e-8, 2.0)
"""Seconds per token of an undivided kernel."""
_NO_LIMIT = np.inf


@dataclass(frozen=True)
class AttentionCell:
    """The rows of one cell, and what was fitted to them."""

    name: str
    rows: tuple[AttentionRow, ...]
    fitted: Fitted

    @property
    def undivided(self) -> bool:
        """Whether it has a time per token."""
        return self.name in UNDIVIDED


def cell_name(row: AttentionRow) -> str:
    """Of a row's cell."""
    return f"{row.hardware}/{row.engine}/{row.kv_format}"


def attention_cells(rows: Sequence[AttentionRow]) -> list[AttentionCell]:
    """Each cell, fitted."""
    by_cell = groupby(sorted(rows, key=cell_name), key=cell_name)
    return [_fit(name, tuple(some)) for name, some in by_cell]


def _fit(name: str, rows: tuple[AttentionRow, ...]) -> AttentionCell:
    chip = chip_of(rows[0].hardware)
    read, flop, context = (
        np.array([getattr(row, column) for row in rows], dtype=float) for column in ("kv_bytes", "flop", "context")
    )
    peak = chip.peak(8 if rows[0].eight_bit else 16) if rows[0].latent else _NO_LIMIT
    numbers = [SHARE, FIXED] + [SHARE] * rows[0].latent + [_TOKEN] * (name in UNDIVIDED)

    def law(point: Sequence[float]) -> Floats:
        share, fixed, *rest = point
        compute = rest[0] if rows[0].latent else 1.0
        token = rest[-1] if name in UNDIVIDED else 0.0
        time: Any = attention_time(read, flop, share * chip.memory_bandwidth, compute * peak, fixed, token * context)  # type: ignore[arg-type]
        return np.asarray(time)

    return AttentionCell(name, rows, fit_cell(law, np.array([row.seconds for row in rows]), numbers))


def attention_tables(cells: Sequence[AttentionCell]) -> KernelTables:
    """The tables of these cells."""
    latent = [cell for cell in cells if cell.rows[0].latent]
    misses = np.concatenate([cell.fitted.misses for cell in cells if cell.name not in ALONE])
    return KernelTables(
        bandwidth=fit_effects([_number(cell, 0) for cell in cells], "1"),
        fixed=fit_effects([_number(cell, 1) for cell in cells if cell.name not in HOST_BOUND], "s"),
        compute=fit_effects([_number(cell, 2) for cell in latent], "1"),
        row_spread=float(np.sqrt(np.mean(misses**2))),
    )


def seconds_per_token(cells: Sequence[AttentionCell]) -> dict[str, float]:
    """Of the undivided kernels."""
    return {cell.name: float(np.exp(cell.fitted.value[-1])) for cell in cells if cell.undivided}


def _number(cell: AttentionCell, place: int) -> CellNumber:
    row = cell.rows[0]
    return CellNumber(
        chip=row.hardware,
        architecture=chip_of(row.hardware).architecture,
        engine=row.engine,
        format=row.kv_format,
        value=float(cell.fitted.value[place]),
        sd=float(cell.fitted.sd[place]),
        rows=len(cell.rows),
        sources=tuple(sorted({row.source.split()[0] for row in cell.rows})),
        alone=cell.name in ALONE,
    )
