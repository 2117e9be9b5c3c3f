"""Which chips share a generation of compute units: who borrows kernel measurements from whom.

The record is data (`catalog/calibration/architectures.toml`).
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.errors import Faults, InputError

RECORD: Final = Path(__file__).parent / "catalog" / "calibration" / "architectures.toml"

_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Architectures:
    """The whole record."""

    architecture: Mapping[str, tuple[str, ...]]

    def of(self, chip: str) -> str:
        """The architecture of a chip; a chip that is in no list is its own.

        >>> load_architectures().of("h20"), load_architectures().of("wse-3")
        ('hopper', 'wse-3')
        """
        return next((name for name, chips in self.architecture.items() if chip in chips), chip)


@cache
def load_architectures(path: Path = RECORD) -> Architectures:
    """The checked record. Raises InputError with every fault."""
    try:
        found = TypeAdapter(Architectures).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: is no TOML file that can be read: {fault}") from fault
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in fault.errors()
        ) from fault
    faults = Faults()
    for chip, times in Counter(chip for chips in found.architecture.values() for chip in chips).items():
        if times > 1:
            faults.add(f'{path}: "{chip}" is in {times} architectures: keep one')
    faults.raise_if_any()
    return found
