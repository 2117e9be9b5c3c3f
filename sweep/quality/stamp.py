"""The stamp of the quality fits: of the rows, the names and the code they are made from, so that stale records show."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvwall.objectives import quality as laws
from kvwall.spaces import quality_methods, quality_tasks
from kvwall.spaces.benchmarks import RULES
from kvwall.spaces.quality_methods import METHODS
from kvwall.spaces.vetoes import TRAITS
from kvwall.sweep.quality import central, held_out, hierarchy, record, terms, upper
from kvwall.sweep.quality import rows as row_reader
from kvwall.sweep.quality.rows import ROWS

_MODULES: Final = (laws, hierarchy, central, upper, held_out, row_reader, record, terms, quality_methods, quality_tasks)
CODE: Final = tuple(Path(str(each.__file__)) for each in _MODULES)
DATA: Final = (ROWS, METHODS, RULES, TRAITS)


def stamp(code: Sequence[Path] = CODE, data: Sequence[Path] = DATA) -> str:
    """SHA-256 of the bytes of the files."""
    found = hashlib.sha256()
    for path in (*data, *code):
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
