"""A measured row as a design: its labels as values of axes, or the reasons why it cannot be used.

Rows of a server under load are compared with decode alone: prefill of other requests only makes them slower.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvwall.spaces.aliases import Aliases
from kvwall.spaces.axes import Value
from kvwall.spaces.errors import Faults, InputError
from kvwall.spaces.models.load import load_model
from kvwall.sweep.measured_rows import METRIC_UNITS, MeasuredRow
from kvwall.sweep.row_cells import too_few
from kvwall.sweep.single import attempt

DEGREES: Final = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel")
"""Axes whose product is the number of devices of a replica."""

_ATTENTION_SHARED = re.compile(r"\bdp_attention=True\b")
_ATTENTION_GROUPS = re.compile(r"\battention_dp=(\d+)")
_OFFLOADED = re.compile(r"\bn_gpu_layers=(\d+)")
_EXPERT_SHARDS = re.compile(r"\bmoe_tp=(\d+)")
_LAYERS_SPLIT = "layer split across GPUs"

Axes = dict[str, Value]


@dataclass(frozen=True)
class UsableRow:
    """A row and the design that it measured."""

    row: MeasuredRow
    axes: Mapping[str, Value]
    """Those that the row decides; the others are neutral."""
    framework: str
    model: str
    """Catalogue name of the model, whatever the checkpoint's format."""

    @property
    def replica_devices(self) -> int:
        """Devices of one replica."""
        return math.prod(int(self.axes.get(name, 1)) for name in DEGREES)

    @property
    def replicas(self) -> float:
        """Replicas on the row's devices; one where the row counts the devices of attention only."""
        return max(self.row.n_devices or 1, self.replica_devices) / self.replica_devices


def usable_row(row: MeasuredRow, aliases: Aliases) -> UsableRow:
    """The row as a design. Raises InputError with every reason why it cannot be used."""
    faults = Faults()
    framework = aliases.framework_name(row.framework)
    parts: tuple[Callable[[], Axes], ...] = (
        lambda: {"hardware": aliases.hardware_name(row.hardware)},
        lambda: _model(row, aliases),
        lambda: _kv(row, aliases, framework),
        lambda: _workload(row),
        lambda: _parallel(row, aliases.split(framework, row.framework_version)),
        lambda: _measured(row),
    )
    found = [attempt(faults, part) or {} for part in parts]
    axes = {name: value for part in found for name, value in part.items()}
    faults.raise_if_any()
    return UsableRow(row, axes, framework, aliases.model_name(row.model))


def _model(row: MeasuredRow, aliases: Aliases) -> Axes:
    name, weights = aliases.weights_of(row.model, row.weight_precision)
    offloaded = _OFFLOADED.search(row.notes)
    if offloaded and int(offloaded[1]) < load_model(name).decoder_layers:
        raise InputError(f"only {offloaded[1]} of {load_model(name).decoder_layers} layers were on the devices")
    return {"model": name, "weight_bits": weights.weight_bits, "activation_bits": weights.activation_bits}


def _kv(row: MeasuredRow, aliases: Aliases, framework: str) -> Axes:
    labels = {
        "model": row.model,
        "hardware": row.hardware,
        "framework": framework,
        "weights": row.weight_precision,
    }
    bits = aliases.kv_bits(row.kv_precision, labels, f"{row.source} {row.notes}")
    return {"key_bits": bits, "value_bits": bits}


def _workload(row: MeasuredRow) -> Axes:
    """Batch and lengths; an empty prompt is one token, an output of unknown length none, which is the fastest."""
    faults = Faults()
    _check_counts(row, ("batch_or_concurrency", "input_tokens", "output_tokens"), faults)
    if row.batch_or_concurrency is None:
        faults.add("batch not stated")
    if row.input_tokens is None:
        faults.add("input length not stated")
    faults.raise_if_any()
    return {
        "batch": row.batch_or_concurrency or 1,
        "context": row.input_tokens or 1,
        "output_tokens": row.output_tokens or 0,
    }


def _check_counts(row: MeasuredRow, names: Sequence[str], faults: Faults) -> None:
    for name in names:
        if reason := too_few(name, getattr(row, name)):
            faults.add(reason)


def _parallel(row: MeasuredRow, only: str | None) -> Axes:
    """Degrees of parallelism; axes of degree 1 are left out. `only`: the one axis along which the engine splits."""
    faults = Faults()
    _check_counts(row, ("n_devices", "tp", "pp", "ep"), faults)
    faults.raise_if_any()
    devices, tensor = row.n_devices, row.tp
    if devices is None:
        raise InputError("number of devices not stated")
    pipeline = row.pp or 1
    if _LAYERS_SPLIT in row.notes or (tensor is None and only == "pipeline_parallel"):
        tensor, pipeline = 1, devices
    elif tensor is None and only == "tensor_parallel":
        tensor = devices
    if tensor is None:
        if devices > 1:
            raise InputError("how the devices split the model is not stated")
        tensor = 1
    devices = max(devices, _expert_devices(row))
    tensor, attention = _attention_groups(row, tensor, devices // pipeline)
    degrees = {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "attention_data_parallel": attention,
        "expert_parallel": row.ep or 1,
    }
    if devices % (tensor * pipeline * attention):
        raise InputError(f"{devices} devices are no whole number of replicas of {tensor * pipeline * attention}")
    return {name: degree for name, degree in degrees.items() if degree > 1}


def _expert_devices(row: MeasuredRow) -> int:
    """Devices over which the experts are split, which some rows count although they count those of attention only."""
    found = _EXPERT_SHARDS.search(row.notes)
    return int(found[1]) * (row.ep or 1) if found else 0


def _attention_groups(row: MeasuredRow, tensor: int, devices: int) -> tuple[int, int]:
    """Devices that split one sequence's attention, and groups of them among which the sequences are divided.

    Experts on more devices than the row counts leave groups of attention, one on each of the others.
    """
    if _ATTENTION_SHARED.search(row.notes):
        return 1, tensor  # this source counts all devices as `tp`
    found = _ATTENTION_GROUPS.search(row.notes)
    if found is None and devices > (row.n_devices or devices):
        return tensor, max(1, devices // tensor)
    return tensor, int(found[1]) if found else 1


def _measured(row: MeasuredRow) -> Axes:
    """No axis: only whether the measured quantity is known."""
    unit = METRIC_UNITS.get(row.metric)
    if unit is None:
        raise InputError(f'metric "{row.metric}" is unknown: rows measure {", ".join(METRIC_UNITS)}')
    if row.unit != unit:
        raise InputError(f'unit "{row.unit}" of {row.metric} is not {unit}')
    if not (math.isfinite(row.value) and row.value > 0):
        raise InputError(f"value {row.value} is not above 0")
    if row.metric == "e2e_latency_ms" and not row.output_tokens:
        raise InputError("a latency without the number of tokens written")
    return {}
