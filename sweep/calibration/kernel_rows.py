"""Published times of single kernels: decode attention, matrix products, all-reduces, and FP8 KV against 16-bit KV.

Four small Parquet files in `catalog/measured/`, kept by `kernel_import`. Hardware is named as in the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet

from kvwall.spaces.errors import Faults, InputError

FOLDER: Final = Path(__file__).resolve().parents[2] / "spaces" / "catalog" / "measured"

LATENT_RANK: Final = 512
LATENT_WIDTH: Final = 576
"""Of the latent attention in the rows: DeepSeek's latent of 512 and rotary part of 64."""


class KernelRow(Protocol):
    """What every row has."""

    @property
    def hardware(self) -> str:
        """Name in the catalogue, or in `catalog/calibration/architectures.toml` where the catalogue has it not."""

    @property
    def engine(self) -> str:
        """Whose kernel ran: vllm, sglang, trtllm, or a library."""

    @property
    def source(self) -> str:
        """Repository at a commit, and the file."""


@dataclass(frozen=True)
class AttentionRow:
    """Time of one layer's decode attention on one device."""

    id: str
    hardware: str
    engine: str
    engine_version: str
    kernel: str
    kv_format: str
    """kv16 or kv8: keys and values per head, 16 or 8 bits; latent16 or latent8: DeepSeek's latent, absorbed."""
    batch: int
    context: int
    query_heads: int
    kv_heads: int
    head_dim: int
    seconds: float
    source: str

    @property
    def kv_bytes(self) -> float:
        """Bytes of KV that the call reads."""
        width = self.head_dim if self.latent else 2 * self.kv_heads * self.head_dim
        return float(self.batch * self.context * width) * (1 if self.eight_bit else 2)

    @property
    def flop(self) -> float:
        """Work of the call: a product with the keys and one with the values."""
        widths = LATENT_WIDTH + LATENT_RANK if self.latent else 2 * self.head_dim
        return 2.0 * self.batch * self.context * self.query_heads * widths

    @property
    def latent(self) -> bool:
        """Whether the heads share one latent."""
        return self.kv_format.startswith("latent")

    @property
    def eight_bit(self) -> bool:
        """Whether KV has 8 bits."""
        return self.kv_format.endswith("8")


@dataclass(frozen=True)
class GemmRow:
    """Time of one product of `tokens` vectors with a weight matrix."""

    id: str
    hardware: str
    engine: str
    engine_version: str
    kernel: str
    weight_format: str
    """w16, fp8, fp8_block, nvfp4, or 16-bit arithmetic on packed weights: w8a16, w4a16."""
    tokens: int
    outputs: int
    inputs: int
    seconds: float
    source: str


@dataclass(frozen=True)
class AllReduceRow:
    """Time of one all-reduce inside a node."""

    id: str
    hardware: str
    engine: str
    devices: int
    message_bytes: int
    seconds: float
    source: str


@dataclass(frozen=True)
class KVSpeedRow:
    """The same attention call with 16-bit and with 8-bit KV."""

    id: str
    hardware: str
    engine: str
    kernel: str
    batch: int
    context: int
    query_heads: int
    kv_heads: int
    head_dim: int
    seconds_16: float
    seconds_8: float
    source: str

    @property
    def speed_up(self) -> float:
        """Of 8-bit KV."""
        return self.seconds_16 / self.seconds_8


Row = TypeVar("Row", AttentionRow, GemmRow, AllReduceRow, KVSpeedRow)

FILES: Final = {
    AttentionRow: FOLDER / "attention.parquet",
    GemmRow: FOLDER / "gemm.parquet",
    AllReduceRow: FOLDER / "allreduce.parquet",
    KVSpeedRow: FOLDER / "kv_speed.parquet",
}
"""Where each kind of row is kept."""


def read_kernel_rows(kind: type[Row], path: Path | None = None) -> tuple[Row, ...]:
    """The rows of a kind, by default the shipped ones. Raises InputError naming every missing column."""
    path = path or FILES[kind]
    columns = [field.name for field in fields(kind)]
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pa.ArrowInvalid) as fault:
        raise InputError(f"{path}: no Parquet file of rows ({fault}); keep the rows again") from fault
    faults = Faults()
    for name in columns:
        if name not in table.column_names:
            faults.add(f"{path}: column {name} is missing: rows have the columns {', '.join(columns)}")
    faults.raise_if_any()
    return tuple(kind(**cells) for cells in table.select(columns).to_pylist())


def write_kernel_rows(kind: type[Row], rows: list[Row], path: Path | None = None) -> None:
    """Keep the rows of a kind."""
    columns: dict[str, list[Any]] = {field.name: [getattr(row, field.name) for row in rows] for field in fields(kind)}
    pyarrow.parquet.write_table(
        pa.table(columns), path or FILES[kind], compression="zstd", compression_level=19, store_schema=False
    )
