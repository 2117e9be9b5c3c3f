"""`evaluate`: every metric of one design, with unit, evidence and, where it is null, the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kvwall.objectives import engine_memory, parallel
from kvwall.objectives.register import label_register, metric_register, not_built
from kvwall.objectives.status import computed
from kvwall.spaces.axes import Value
from kvwall.spaces.modes import DEFAULT_MODE
from kvwall.sweep.boundaries import boundaries_of
from kvwall.sweep.flags import flags_of
from kvwall.sweep.reasons import not_computed_reason, null_reason, why
from kvwall.sweep.single import SingleDesign, single_design

NO_ASSUMPTIONS: Final[Mapping[str, str]] = MappingProxyType({})
_COUNT: Final = "1"


@dataclass(frozen=True)
class DesignReport:
    """What `evaluate` answers. Metrics are in the SI units of `units`; a null metric has its entry in `reasons`."""

    inputs: Mapping[str, Value]
    task: str
    confidence: float
    mode: str
    devices: int
    """Of the replica."""
    metrics: Mapping[str, float | None]
    units: Mapping[str, str]
    labels: Mapping[str, str | None]
    """Status, veto, phase, regime, bound_by; all but the first two are null, with a reason, where the step cannot be
    computed."""
    evidence: Mapping[str, str]
    flags: tuple[str, ...]
    reasons: Mapping[str, str]
    why: str
    """Status and phase in words."""
    boundaries: Mapping[str, float | None]
    """Signed distance, a logarithm, to each boundary of the regimes: above 0 the KV is larger than the weights, the
    resource binds, or the design does not fit. Null where a resource is not used or its time is not known."""
    allow_veto: tuple[str, ...] = ()
    """Vetoes that are not imposed, as the user asked."""

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
            "allow_veto": list(self.allow_veto),
            "devices": self.devices,
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
    mode: str = DEFAULT_MODE,
    assume: Mapping[str, str] = NO_ASSUMPTIONS,
    calibration: str = "",
    quality_curves: str = "",
    allow_veto: Sequence[str] = (),
    **axes: object,
) -> DesignReport:
    """Every metric of one design; axes left out are neutral.

    Args:
        task: task of `quality_loss` and `quality_loss_upper`.
        confidence: confidence of the upper quality curves.
        mode: "estimate", what to expect with its band, or "ceiling", what no implementation can beat.
        assume: hardware figure -> quantity ("host_link_bandwidth": "64 GB/s") in place of the catalogue's.
        calibration: path of a record of `kvwall calibrate`, for estimates; the shipped one where it is blank.
        quality_curves: path of a record of `kvwall calibrate --quality`; the shipped one where it is blank.
        allow_veto: vetoes not to impose (k_outliers, naive_low_bits, blind_retrieval); the label still names them.
        axes: one value for each axis; model, hardware and context are required.

    Raises:
        InputError: with every fault of the arguments.

    >>> report = evaluate(mode="ceiling", model="paper/llama-3-70b", hardware="paper/b200", context=128_000)
    >>> round(report.metrics["weight_bytes_read"] / 1e9), report.labels["phase"]
    (140, 'weight')
    """
    single = single_design(
        axes,
        task=task,
        confidence=confidence,
        mode=mode,
        assume=assume,
        calibration=calibration,
        quality_curves=quality_curves,
        allow_veto=allow_veto,
    )
    return report_of(single)


def report_of(single: SingleDesign) -> DesignReport:
    """The report of an evaluated design."""
    register, absent_here = metric_register(single.task, single.mode), not_built(single.mode)
    metrics: dict[str, float | None] = {}
    reasons: dict[str, str] = dict(absent_here)
    for name in register:
        value = float(single.evaluation.metrics[name])
        known = bool(single.evaluation.sourced[name]) and math.isfinite(value)
        metrics[name] = value if known else None
        if not known:
            reasons[name] = null_reason(single, name, value)
    labels: dict[str, str | None] = {
        name: label.meanings[int(single.evaluation.labels[name])] for name, label in label_register(single.mode).items()
    }
    if not bool(computed(int(single.evaluation.labels["status"]))):
        of_the_step = [name for name in labels if name not in {"status", "veto"}]
        labels |= dict.fromkeys(of_the_step)
        reasons |= dict.fromkeys(of_the_step, not_computed_reason(single))
    absent = dict.fromkeys(absent_here, _COUNT)
    real = bool(engine_memory.starts_up(single.design))
    return DesignReport(
        inputs=single.inputs,
        task=single.task,
        confidence=single.confidence,
        mode=single.mode,
        devices=int(parallel.replica_devices(single.design.parallel)),
        metrics=metrics | dict.fromkeys(absent_here),
        units={name: metric.unit for name, metric in register.items()} | absent,
        labels=labels,
        evidence={name: metric.evidence_of(calibrated_engine=real) for name, metric in register.items()},
        flags=flags_of(single),
        reasons=reasons,
        why=why(single),
        boundaries=boundaries_of(single),
        allow_veto=single.catalogue.vetoes.allowed,
    )
