"""`evaluate`: every metric of one design, with unit, evidence and, where it is null, the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kvwall.objectives.register import LABELS, NOT_BUILT, metric_register
from kvwall.objectives.status import computed
from kvwall.spaces.axes import Value
from kvwall.sweep.boundaries import boundaries_of
from kvwall.sweep.flags import flags_of
from kvwall.sweep.reasons import not_computed_reason, null_reason, why
from kvwall.sweep.single import SingleDesign, single_design

NO_ASSUMPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_UNITS_OF_NOT_BUILT: Final[Mapping[str, str]] = {"time_to_first_token": "s", "kv_pool_bytes": "byte"}
_COUNT: Final = "1"
_OF_THE_STEP: Final = tuple(name for name in LABELS if name != "status")


@dataclass(frozen=True)
class DesignReport:
    """What `evaluate` answers. Metrics are in the SI units of `units`; a null metric has its entry in `reasons`."""

    inputs: Mapping[str, Value]
    task: str
    confidence: float
    mode: str
    metrics: Mapping[str, float | None]
    units: Mapping[str, str]
    labels: Mapping[str, str | None]
    """Status, phase, regime, bound_by; the last three are null, with a reason, where the step cannot be computed."""
    evidence: Mapping[str, str]
    flags: tuple[str, ...]
    reasons: Mapping[str, str]
    why: str
    """Status and phase in words."""
    boundaries: Mapping[str, float | None]
    """Signed distance, a logarithm, to each boundary of the regimes: above 0 the KV is larger than the weights, the
    resource binds, or the design does not fit. Null where a resource is not used or its time is not known."""

    @property
    def status(self) -> str:
        """The status label, which is never null."""
        return str(self.labels["status"])

    @property
    def feasible(self) -> bool:
        """Whether the design can be deployed: status ok."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON types, without NaN and infinity."""
        return {
            "inputs": dict(self.inputs),
            "task": self.task,
            "confidence": self.confidence,
            "mode": self.mode,
            "metrics": dict(self.metrics),
            "units": dict(self.units),
            "labels": dict(self.labels),
            "boundaries": dict(self.boundaries),
            "evidence": dict(self.evidence),
            "flags": list(self.flags),
            "reasons": dict(self.reasons),
            "why": self.why,
        }


def evaluate(
    *,
    task: str = "aggregate",
    confidence: float = 0.9,
    mode: str = "ceiling",
    assume: Mapping[str, str] = NO_ASSUMPTIONS,
    **axes: object,
) -> DesignReport:
    """Every metric of one design; axes left out are neutral.

    Args:
        task: task of `quality_loss` and `quality_loss_upper`.
        confidence: confidence of the upper quality curves.
        mode: "ceiling".
        assume: hardware figure -> quantity ("host_link_bandwidth": "64 GB/s") in place of the catalogue's.
        axes: one value for each axis; model, hardware and context are required.

    Raises:
        InputError: with every fault of the arguments.

    >>> report = evaluate(model="paper/llama-3-70b", hardware="paper/b200", context=128_000)
    >>> round(report.metrics["weight_bytes_read"] / 1e9), report.labels["phase"]
    (140, 'weight')
    """
    return report_of(single_design(axes, task=task, confidence=confidence, mode=mode, assume=assume))


def report_of(single: SingleDesign) -> DesignReport:
    """The report of an evaluated design."""
    register = metric_register(single.task)
    metrics: dict[str, float | None] = {}
    reasons: dict[str, str] = dict(NOT_BUILT)
    for name in register:
        value = float(single.evaluation.metrics[name])
        known = bool(single.evaluation.sourced[name]) and math.isfinite(value)
        metrics[name] = value if known else None
        if not known:
            reasons[name] = null_reason(single, name, value)
    labels: dict[str, str | None] = {
        name: label.meanings[int(single.evaluation.labels[name])] for name, label in LABELS.items()
    }
    if not bool(computed(int(single.evaluation.labels["status"]))):
        labels |= dict.fromkeys(_OF_THE_STEP)
        reasons |= dict.fromkeys(_OF_THE_STEP, not_computed_reason(single))
    absent = {name: _UNITS_OF_NOT_BUILT.get(name, _COUNT) for name in NOT_BUILT}
    return DesignReport(
        inputs=single.inputs,
        task=single.task,
        confidence=single.confidence,
        mode="ceiling",
        metrics=metrics | dict.fromkeys(NOT_BUILT),
        units={name: metric.unit for name, metric in register.items()} | absent,
        labels=labels,
        evidence={name: metric.evidence for name, metric in register.items()},
        flags=flags_of(single),
        reasons=reasons,
        why=why(single),
        boundaries=boundaries_of(single),
    )
