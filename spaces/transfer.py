"""What the size of a piece does to a link: a fitted record of two numbers, and the published rows it rests on.

The record is data (`catalog/transfer.json`, written by `sweep/transfer_fit.py`); the law is `objectives/transfer.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from kvwall.spaces.errors import InputError

RECORD: Final = Path(__file__).parent / "catalog" / "transfer.json"


@dataclass(frozen=True)
class TransferRow:
    """A published measurement of copies over one link, one direction."""

    hardware: str
    link: str
    """Technology of the link, as hardware files write it."""
    method: str
    piece_bytes: float | None
    """Of each piece; None for one large copy."""
    bandwidth: float
    """Reached, in B/s."""
    link_bandwidth: float
    """Of the datasheet, one direction, in B/s."""
    source: str
    note: str

    @property
    def share(self) -> float:
        """Reached, of the datasheet's bandwidth."""
        return self.bandwidth / self.link_bandwidth


@dataclass(frozen=True)
class TransferCurve:
    """The fitted record, with its provenance."""

    version: str
    fitted: str
    seconds_per_piece: float
    """What every piece costs besides its bytes."""
    large_share: float
    """Of the datasheet's bandwidth, what one large copy reaches."""
    typical_factor: float
    """Root mean square, as a factor, by which rows miss the curve."""
    worst_factor: float
    rows: tuple[TransferRow, ...]

    def half_size(self, link_bandwidth: float) -> float:
        """Bytes of a piece that reaches half of what a large copy does.

        >>> TransferCurve("1", "2026-11-29", 6e-6, 0.5, 1.0, 1.0, ()).half_size(64e9)
        192000.0
        """
        return self.seconds_per_piece * self.large_share * link_bandwidth

    def large_copies(self, link: str) -> tuple[TransferRow, ...]:
        """Rows of large copies over links of this technology: "PCIe 5.0 x16" is of "PCIe 5.0"."""
        return tuple(row for row in self.rows if row.piece_bytes is None and link.startswith(row.link))


@cache
def load_transfer_curve(path: Path = RECORD) -> TransferCurve:
    """The record at `path`, by default the shipped one. Raises InputError naming every fault of the file."""
    try:
        return TypeAdapter(TransferCurve).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; regenerate the file" for each in fault.errors()
        ) from fault
    except (OSError, ValueError) as fault:
        raise InputError(f"{path}: not a transfer record ({fault}); regenerate the file") from fault
