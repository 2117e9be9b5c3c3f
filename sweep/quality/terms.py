"""Published rows as arrays: what the hazards of a hierarchy read, one entry for each part of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, load_methods
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality.rows import FULL, Named, Row

Floats = NDArray[np.float64]

FAMILIES: Final = {remedy: tuple(names.families) for remedy, names in load_methods().items()}


@dataclass(frozen=True)
class Terms:
    """Rows as arrays, NumPy's, which laws take like JAX's; a row of several parts stands as often."""

    rows: NDArray[np.int64]
    """The row that each entry is a part of."""
    count: int
    weight: Floats
    task: NDArray[np.int64]
    subtask: NDArray[np.int64]
    evicts: Floats
    evictor_family: NDArray[np.int64]
    evictor: NDArray[np.int64]
    evictor_known: Floats
    kept: Any
    dropped_to: Any
    """The fraction kept where the rest is dropped; 1 where it is only not read."""
    quantizer_family: NDArray[np.int64]
    quantizer: NDArray[np.int64]
    quantizer_known: Floats
    key_bits: Any
    value_bits: Any
    weight_family: NDArray[np.int64]
    weight_bits: Any
    activation_bits: Any
    per_channel: Floats
    llama_3: Floats
    k_outliers: Floats
    model: NDArray[np.int64]
    source: NDArray[np.int64]

    @property
    def log_ratio(self) -> Any:
        """Per entry, whether its loss is a perplexity's."""
        return self.task == TASKS.index("perplexity")


def terms_of(
    rows: Sequence[Row], subtasks: Mapping[str, int], models: Mapping[str, int], sources: Mapping[str, int]
) -> Terms:
    """The rows as arrays; the mappings give places to their subtasks, models and sources."""
    parts = [(place, row, part) for place, row in enumerate(rows) for part in row.parts]
    of = [row for _, row, _ in parts]
    evictors = [_codes_of(row.evictor, "evictor", EVICTORS) for row in of]
    quantizers = [_codes_of(row.quantizer, "quantizer", QUANTIZERS) for row in of]
    return Terms(
        rows=_ints([place for place, _, _ in parts]),
        count=len(rows),
        weight=_floats([part.weight for _, _, part in parts]),
        task=_ints([TASKS.index(part.task) for _, _, part in parts]),
        subtask=_ints([subtasks[part.subtask] for _, _, part in parts]),
        evicts=_floats([row.kept < 1 for row in of]),
        evictor_family=_ints([each[0] for each in evictors]),
        evictor=_ints([each[1] for each in evictors]),
        evictor_known=_floats([each[2] for each in evictors]),
        kept=_floats([min(max(row.kept, 1e-4), 1.0) for row in of]),
        dropped_to=_floats([1.0 if row.reads else min(max(row.kept, 1e-4), 1.0) for row in of]),
        quantizer_family=_ints([each[0] for each in quantizers]),
        quantizer=_ints([each[1] for each in quantizers]),
        quantizer_known=_floats([each[2] for each in quantizers]),
        key_bits=_floats([row.key_bits for row in of]),
        value_bits=_floats([row.value_bits for row in of]),
        weight_family=_ints([_codes_of(row.weight_quantizer, "weight_quantizer", ())[0] for row in of]),
        weight_bits=_floats([row.weight_bits for row in of]),
        activation_bits=_floats([row.activation_bits for row in of]),
        per_channel=_floats([row.per_channel and row.weight_bits < FULL for row in of]),
        llama_3=_floats([row.llama_3 for row in of]),
        k_outliers=_floats([row.k_outliers for row in of]),
        model=_ints([models[row.model] for row in of]),
        source=_ints([sources[row.source] for row in of]),
    )


def codes(names: Sequence[str]) -> dict[str, int]:
    """A place for each name, in their order."""
    return {name: place for place, name in enumerate(sorted(set(names)))}


def _codes_of(named: Named | None, remedy: str, methods: Sequence[str]) -> tuple[int, int, int]:
    """Places of the family and of the method, and whether the method is one."""
    if named is None:
        return 0, 0, 0
    is_method = named.name in methods and named.name not in FAMILIES[remedy]
    return FAMILIES[remedy].index(named.family), methods.index(named.name) if is_method else 0, int(is_method)


def _ints(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)
