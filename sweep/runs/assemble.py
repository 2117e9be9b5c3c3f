"""What was found in a result, and what the user states, as measured rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.measured_rows import METRIC_UNITS, MeasuredRow
from kvwall.sweep.runs.result import Found, Label
from kvwall.sweep.runs.stated import Stated, option

_TEXTS: Final = ("model", "hardware", "weight_precision", "kv_precision", "framework", "framework_version")
_COUNTS: Final = ("tp", "pp", "ep", "input_tokens", "output_tokens")
_NEEDED: Final = ("hardware", "model", "batch_or_concurrency", "input_tokens", "output_tokens")


def rows_of(found: Found, stated: Stated, name: str, source: str) -> tuple[MeasuredRow, ...]:
    """One row per metric. Raises InputError with everything that is missing or contradicts.

    Args:
        found: what the result states.
        stated: what the user states.
        name: of the result; with the metric it is a row's id.
        source: where the result comes from.
    """
    labels = {**found.likely, **stated.joined(found.labels)}
    _check(found, labels)
    devices, batch, notes = _per_replica(found, labels)
    others: dict[str, Any] = {field: str(labels.get(field, "")) for field in _TEXTS}
    others |= {field: _count(labels, field) for field in _COUNTS}
    return tuple(
        MeasuredRow(
            id=f"{name} {metric}",
            n_devices=devices,
            batch_or_concurrency=batch,
            batch_kind=found.batch_kind,
            metric=metric,
            value=value,
            unit=METRIC_UNITS[metric],
            source=source,
            notes="; ".join(notes),
            **others,
        )
        for metric, value in found.measured.items()
    )


def _per_replica(found: Found, labels: Mapping[str, Label]) -> tuple[int, int, tuple[str, ...]]:
    """Devices, and the batch of one replica: the requests of a server are divided evenly among its replicas."""
    replica = max(1, (_count(labels, "tp") or 1) * (_count(labels, "pp") or 1))
    stated = _count(labels, "n_devices")
    devices = replica if stated is None else stated
    batch = _count(labels, "batch_or_concurrency") or 1
    if found.batch_kind != "concurrency" or "tp" not in labels or devices <= replica:
        return devices, batch, found.notes
    notes = (*found.notes, f"{batch} requests over {devices // replica} replicas")
    return devices, max(round(batch * replica / devices), 1), notes


def _check(found: Found, labels: Mapping[str, Label]) -> None:
    faults = Faults()
    for field in _NEEDED:
        if not labels.get(field):
            faults.add(f"{field} is not stated in the file: give it with {option(field)}")
    if not (labels.get("n_devices") or labels.get("tp")):
        faults.add(f"n_devices is not stated in the file: give it with {option('n_devices')} or {option('tp')}")
    for metric, value in found.measured.items():
        if value <= 0:
            faults.add(f"{metric} is {value:g}: it must be above 0")
    if not found.measured:
        faults.add("it holds no speed of decode: neither a time per output token nor a rate of output tokens")
    faults.raise_if_any()


def _count(labels: Mapping[str, Label], field: str) -> int | None:
    value = labels.get(field)
    return None if value is None else int(value)


def blamed(error: InputError, place: str) -> InputError:
    """The same faults with the place where they were found before each."""
    return InputError(f"{place}: {fault}" for fault in error.faults)
