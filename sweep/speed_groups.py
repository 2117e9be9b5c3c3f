"""What measured rows of speed are grouped by: chip, model, engine, precision, and bands of context and batch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

from kvwall.spaces.generations import generation_of
from kvwall.sweep.measured import UsableRow

GROUPINGS: Final = (
    ("hardware",),
    ("model",),
    ("engine",),
    ("precision",),
    ("context",),
    ("batch",),
    ("kind",),
    ("metric",),
)
"""Labels that groups are made by."""
DENSE: Final = "dense"
EXPERTS: Final = "experts"
ENGINE_UNSTATED: Final = "not stated"

_CONTEXT: Final[Mapping[int, str]] = {1024: "up to 1k", 4096: "1k to 4k", 16384: "4k to 16k", 65536: "16k to 64k"}
"""Largest context of a band -> its name."""
_LONGER: Final = "above 64k"
_BATCH: Final[Mapping[int, str]] = {1: "1", 8: "2 to 8", 32: "9 to 32", 128: "33 to 128"}
_LARGER: Final = "above 128"
_OWN_FORMAT: Final = "own"


def labels_of(usable: UsableRow, routed: bool) -> dict[str, str]:
    """Label -> value of a row; `routed`: whether its model has routed experts."""
    return {
        "hardware": str(usable.axes["hardware"]),
        "model": usable.model,
        "engine": generation_of(usable.framework, usable.row.framework_version) or ENGINE_UNSTATED,
        "precision": _precision(usable),
        "context": band(evaluated_context(usable), _CONTEXT, _LONGER),
        "batch": band(float(usable.axes["batch"]), _BATCH, _LARGER),
        "kind": EXPERTS if routed else DENSE,
        "metric": usable.row.metric,
    }


def evaluated_context(usable: UsableRow) -> float:
    """Tokens in the cache at the step that stands for all: the prompt and half of the output."""
    return float(usable.axes["context"]) + float(usable.axes["output_tokens"]) / 2


def band(value: float, largest: Mapping[int, str], beyond: str) -> str:
    """The name of the band that a value falls in.

    >>> band(8.0, _BATCH, _LARGER), band(8.5, _BATCH, _LARGER), band(4096.0, _BATCH, _LARGER)
    ('2 to 8', '9 to 32', 'above 128')
    """
    names = (*largest.values(), beyond)
    return names[bisect_left(list(largest), value)]


def band_place(by: Mapping[str, str]) -> int:
    """Place of a group among those of its grouping where they have an order; 0 where they have none."""
    for name, bands in (("context", (*_CONTEXT.values(), _LONGER)), ("batch", (*_BATCH.values(), _LARGER))):
        if name in by:
            return bands.index(by[name])
    return 0


def _precision(usable: UsableRow) -> str:
    """Format of the weights as the row states it, and bits of the cache."""
    stated = usable.row.weight_precision.partition(" (")[0].lower()
    return f"{stated or _OWN_FORMAT} weights, {float(usable.axes['key_bits']):g}-bit KV"
