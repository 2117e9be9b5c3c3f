"""What kernels reach of their chips' datasheets: fitted records, pooled so that a chip without rows borrows.

A record is data (`catalog/calibration/kernels.json`, written by `sweep/calibration/kernels.py`); the laws are
`objectives/kernels.py`. Every table states the logarithm of one number (a share of a peak, or seconds) as a sum of
named effects: mean of the format + architecture + engine + pair (architecture and format) + cell (chip, engine and
format).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.architectures import load_architectures
from kvwall.spaces.errors import Faults, InputError

RECORD: Final = Path(__file__).parent / "catalog" / "calibration" / "kernels.json"

_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Effect:
    """One named part of a sum."""

    value: float
    """Added to the logarithm."""
    sd: float
    """Of a level: of this part. Of a cell: of the whole sum."""
    rows: int
    """That it rests on."""
    sources: tuple[str, ...]
    """Repositories of these rows, at a commit."""


Effects: TypeAlias = Mapping[str, Effect]


@with_config(_STRICT)
@dataclass(frozen=True)
class Spread:
    """Standard deviations, in the logarithm, among the members of each level."""

    architecture: float
    engine: float
    pair: float
    cell: float


@dataclass(frozen=True)
class Reached:
    """A number of a table, with what it rests on."""

    value: float
    """A share of a peak, or seconds."""
    sd: float
    """Of its logarithm."""
    measured: bool
    """Whether rows of this very chip, engine and format speak for it."""


@with_config(_STRICT)
@dataclass(frozen=True)
class EffectTable:
    """The effects of one number."""

    unit: str
    """"1" of a share, which is at most 1, or "s"."""
    mean: Effects
    architecture: Effects
    engine: Effects
    pair: Effects
    cell: Effects
    spread: Spread

    def reached(self, chip: str, engine: str, format: str) -> Reached:
        """The number for a chip and engine, neither of which needs rows. Raises InputError for a format without rows.

        >>> table = load_kernel_record().attention.bandwidth
        >>> table.reached("h200-sxm", "sglang", "kv8").measured, table.reached("h20", "sglang", "kv8").measured
        (True, False)
        """
        if format not in self.mean:
            raise InputError(f'format "{format}" has no measured rows; use one of {", ".join(self.mean)}')
        mean, cell = self.mean[format], self.cell.get(f"{chip}/{engine}/{format}")
        architecture = load_architectures().of(chip)
        levels = (
            (self.architecture.get(architecture), self.spread.architecture),
            (self.engine.get(engine), self.spread.engine),
            (self.pair.get(f"{architecture}/{format}"), self.spread.pair),
        )
        total = mean.value + sum(effect.value for effect, _ in levels if effect)
        unknown = [effect.sd if effect else spread for effect, spread in levels]
        sd = math.hypot(mean.sd, self.spread.cell, *unknown)
        if cell:
            total, sd = total + cell.value, cell.sd
        return Reached(math.exp(min(total, 0.0) if self.unit == "1" else total), sd, cell is not None)


@with_config(_STRICT)
@dataclass(frozen=True)
class KernelTables:
    """What one kind of kernel reaches."""

    bandwidth: EffectTable
    """Share of the memory's bandwidth, of a link's in an all-reduce."""
    fixed: EffectTable
    """Seconds of a call besides."""
    compute: EffectTable | None = None
    """Share of the arithmetic peak."""
    row_spread: float = 0.0
    """Root mean square of the logarithm by which rows miss the law of their cell."""


@with_config(_STRICT)
@dataclass(frozen=True)
class KernelRecord:
    """The whole record."""

    version: str
    fitted: str
    attention: KernelTables
    """Formats kv16, kv8, latent16, latent8; of `compute` 16 and 8, the bits of the arithmetic."""
    undivided: Mapping[str, float]
    """Seconds per token of context of the cells whose kernel does not divide a sequence among workers."""
    gemm: KernelTables
    """Formats w16, fp8, fp8_block, nvfp4, w8a16, w4a16."""
    all_reduce: KernelTables
    """Over a fabric of the chips' own. Formats 2, 4, 8: devices; engines are implementations, nccl among them."""
    all_reduce_pcie: KernelTables
    """Over the host's bus, with what that loses where devices cannot reach each other."""
    excluded: Mapping[str, str]
    """Cells that lend nothing to others, in whole or in their fixed cost, and why."""


@cache
def load_kernel_record(path: Path = RECORD) -> KernelRecord:
    """The record at `path`, by default the shipped one. Raises InputError naming every fault of the file."""
    try:
        found = TypeAdapter(KernelRecord).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}; regenerate the file" for each in fault.errors()
        ) from fault
    except (OSError, ValueError) as fault:
        raise InputError(f"{path}: not a record of kernels ({fault}); regenerate the file") from fault
    _check(found, path)
    return found


def _check(found: KernelRecord, path: Path) -> None:
    """Numbers that no fit gives: negative spreads, cells of unknown formats."""
    faults = Faults()
    for kind in ("attention", "gemm", "all_reduce", "all_reduce_pcie"):
        for name in ("bandwidth", "fixed", "compute"):
            table: EffectTable | None = getattr(getattr(found, kind), name)
            for fault in _faults(table) if table else ():
                faults.add(f"{path}: {kind}.{name}.{fault}; regenerate the file")
    faults.raise_if_any()


def _faults(table: EffectTable) -> list[str]:
    found = [] if table.unit in ("1", "s") else [f'unit: "{table.unit}" is neither 1 nor s']
    for level in ("mean", "architecture", "engine", "pair", "cell"):
        effects: Effects = getattr(table, level)
        for name, effect in effects.items():
            if not (math.isfinite(effect.value) and effect.sd > 0):
                found.append(
                    f"{level}.{name}: a value must be finite and its sd positive, not {effect.value} and {effect.sd}"
                )
            if level == "cell" and (name.count("/") != 2 or name.rsplit("/", 1)[1] not in table.mean):
                found.append(f"cell.{name}: a cell is chip/engine/format, of a format that has a mean")
    for field in fields(Spread):
        if not getattr(table.spread, field.name) >= 0:
            found.append(f"spread.{field.name}: must not be negative")
    return found
