"""The register of metrics and labels: one line adds one. And `evaluate`, which computes them all."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import jax

from kvwall.objectives import bands, extrapolated, metrics, status, transfer, veto, wall
from kvwall.objectives.estimate import BOUNDS, Estimate
from kvwall.objectives.step import Step, evaluate_step
from kvwall.spaces.design import Design
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.modes import CEILING, ESTIMATE
from kvwall.spaces.quality_tasks import TASK_NAMES, task_named
from kvwall.spaces.units import Code, Flag, Ratio, Real

Law = Callable[[Design, Step], Real]


@dataclass(frozen=True)
class Metric:
    """A number of a design."""

    name: str
    law: Law
    sourced: Callable[[Design], Flag]
    """Whether every figure it needs has a source; where not, it is null."""
    unit: str
    meaning: str
    evidence: str = "derived"
    rounding: float = 0.0
    """What float32 may be off by, beyond a relative error, where the metric is a difference of larger numbers."""
    of_engine: bool = False
    """Whether it rests on an engine's memory, whose constants are fitted to start-up logs but for the ideal one."""
    summarised: bool = True
    """Whether every sweep keeps its extremes; a detail's are kept where a study names it."""

    def evidence_of(self, *, calibrated_engine: bool) -> str:
        """Its evidence, with a real engine or the ideal one."""
        return "calibrated" if self.of_engine and calibrated_engine else self.evidence


@dataclass(frozen=True)
class Label:
    """A named category of a design; its law gives the index into `meanings`."""

    name: str
    law: Callable[[Design, Step], Code]
    meanings: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class Evaluation:
    """Metrics, labels and masks by name; each array keeps the shape of the axes it depends on."""

    metrics: Mapping[str, Real]
    labels: Mapping[str, Code]
    sourced: Mapping[str, Flag]
    """Per metric, whether its figures all have sources."""


def unit_of(law: Callable[..., object]) -> str:
    """The unit a law's return annotation declares. Raises TypeError where it declares none."""
    returned = typing.get_type_hints(law, include_extras=True).get("return")
    declared: tuple[object, ...] = getattr(returned, "__metadata__", ())
    if len(declared) != 1 or not isinstance(declared[0], str):
        raise TypeError(f"{law.__name__} must state its unit in its return annotation, e.g. -> Seconds")
    return declared[0]


def _metric(law: Callable[..., Real], sourced: Callable[[Design], Flag], rounding: float = 0.0) -> Metric:
    return Metric(law.__name__, law, sourced, unit_of(law), _first_sentence(law), rounding=rounding)


def _detail(law: Callable[..., Real], sourced: Callable[[Design], Flag], rounding: float = 0.0) -> Metric:
    return replace(_metric(law, sourced, rounding), summarised=False)


def _of_engine(metric: Metric) -> Metric:
    return replace(metric, of_engine=True)


def _first_sentence(law: Callable[..., object]) -> str:
    return (law.__doc__ or "").strip().split("\n")[0].rstrip(".")


def _loss(task: str, name: str, upper: bool) -> Metric:
    law = partial(metrics.task_loss, task=task_named(task), upper=upper)
    kind = "ln(PPL/PPL0)" if task == "perplexity" else "relative quality loss"
    bound = "upper bound of the " if upper else ""
    return Metric(name, law, status.always, unit_of(metrics.task_loss), f"{bound}{kind}, task {task}", "calibrated")


_STEP_METRICS = (
    _metric(metrics.tokens_per_second, status.step_sourced),
    _metric(metrics.tokens_per_second_per_device, status.step_sourced),
    _metric(metrics.tokens_per_second_per_user, status.step_sourced),
    _metric(metrics.time_per_output_token, status.step_sourced),
    _metric(metrics.weight_bytes_read, status.always),
    _metric(metrics.kv_bytes_read, status.always),
    _metric(metrics.kv_bytes_stored, status.always),
    _metric(metrics.kv_bytes_reserved, status.always),
    _of_engine(_metric(metrics.memory_margin, status.always, rounding=1e6)),
    _of_engine(_metric(metrics.max_batch, status.always, rounding=1.0)),
    _of_engine(_metric(metrics.max_context, status.always, rounding=1.0)),
    _metric(metrics.time_to_first_token, status.step_sourced),
    _metric(metrics.arithmetic_intensity, status.always),
    _metric(metrics.ridge_point, status.ridge_sourced),
    _metric(metrics.energy_per_token, status.energy_sourced),
    _metric(metrics.cost_per_million_tokens, status.cost_sourced),
    _metric(metrics.crossover_context_bytes, status.always),
    _metric(metrics.regime_distance, status.step_sourced, rounding=1e-5),
    _of_engine(_detail(metrics.kv_pool_bytes, status.always, rounding=1e6)),
    _of_engine(_detail(metrics.kv_pool_blocks, status.always, rounding=1.0)),
    _of_engine(_detail(metrics.kv_pool_tokens, status.always, rounding=1.0)),
    _of_engine(_detail(metrics.max_concurrency, status.always)),
    _detail(metrics.messages_per_step, status.always),
    _detail(metrics.reload_time, status.reload_sourced),
    _detail(metrics.break_even_bandwidth, status.step_sourced),
    _detail(metrics.break_even_context, status.reload_sourced),
    replace(_detail(metrics.tier_bandwidth, transfer.link_sourced), evidence="calibrated"),
)

_SPREADS: Mapping[str, Callable[[Estimate], Ratio]] = {
    "tokens_per_second": lambda estimate: estimate.iteration_spread,
    "tokens_per_second_per_device": lambda estimate: estimate.iteration_spread,
    "tokens_per_second_per_user": lambda estimate: estimate.spread,
    "time_per_output_token": lambda estimate: estimate.spread,
    "time_to_first_token": lambda estimate: estimate.first_token_spread,
    "cost_per_million_tokens": lambda estimate: estimate.iteration_spread,
}
"""Metrics that have a band in estimate mode, and the standard deviation of their logarithm."""

BANDED = tuple(_SPREADS)
_ESTIMATED = frozenset({*BANDED, "regime_distance"})
"""Metrics whose number follows from the calibration in estimate mode."""


def _bound(metric: Metric, side: bands.Side) -> Metric:
    rate = metric.name.startswith("tokens_per_second")
    law = partial(bands.bound, law=metric.law, spread=_SPREADS[metric.name], side=side, rate=rate)
    share = {"low": "10 %", "high": "90 %"}[side]
    return replace(
        metric, name=f"{metric.name}_{side}", law=law, meaning=f"{metric.meaning}, {share} bound", summarised=False
    )


def band_of(name: str) -> tuple[str, str]:
    """Names of the bounds of a metric of BANDED.

    >>> band_of("time_per_output_token")
    ('time_per_output_token_low', 'time_per_output_token_high')
    """
    return f"{name}_low", f"{name}_high"


def _estimates() -> tuple[Metric, ...]:
    """The metrics of the step in estimate mode."""
    own = [replace(each, evidence="calibrated") if each.name in _ESTIMATED else each for each in _STEP_METRICS]
    crossover = replace(_detail(metrics.crossover_context_time, status.step_sourced), evidence="calibrated")
    banded = [each for each in own if each.name in _SPREADS]
    return (*own, crossover, *(_bound(each, side) for each in banded for side in ("low", "high")))


_BY_MODE: Mapping[str, tuple[Metric, ...]] = {CEILING: _STEP_METRICS, ESTIMATE: _estimates()}

_LABELS = (
    Label("phase", metrics.phase, wall.PHASES, "what a step reads most, or that it does not fit"),
    Label("regime", metrics.regime, wall.REGIMES, "what limits the step"),
    Label("bound_by", metrics.bound_by, BOUNDS, "the resource that binds"),
    Label("status", metrics.design_status, status.STATUSES, "ok, or why the design cannot be deployed"),
    Label("veto", metrics.known_veto, veto.VETOES, "the first reason why a remedy is known to collapse"),
)
_EXTRAPOLATED = Label(
    "extrapolated",
    extrapolated.extrapolated,
    extrapolated.RESPECTS,
    "whether the estimate is outside of what was measured",
)
LABELS: Mapping[str, Label] = {label.name: label for label in (*_LABELS, _EXTRAPOLATED)}
"""Labels of all modes."""
STATUS_OK = status.STATUSES.index("ok")

_NOT_BUILT: Mapping[str, Mapping[str, str]] = {
    CEILING: {"crossover_context_time": "only an estimate has a time crossover; this is a ceiling"},
    ESTIMATE: {},
}


def not_built(mode: str) -> Mapping[str, str]:
    """Metrics of the public contract that are null in a mode, and why."""
    return _NOT_BUILT[mode]


def label_register(mode: str) -> Mapping[str, Label]:
    """Every label of a mode by name."""
    return LABELS if mode == ESTIMATE else {label.name: label for label in _LABELS}


@cache
def metric_register(task: str, mode: str) -> Mapping[str, Metric]:
    """Every metric of a mode by name; `quality_loss` and `quality_loss_upper` are of `task`.

    Raises InputError if the task is unknown.
    """
    losses = [_loss(task, "quality_loss", upper=False), _loss(task, "quality_loss_upper", upper=True)]
    for each in TASK_NAMES:
        losses.append(_loss(each, f"quality_loss_{each}", upper=False))
        losses.append(_loss(each, f"quality_loss_upper_{each}", upper=True))
    return {metric.name: metric for metric in (*_BY_MODE[mode], *losses)}


def metric_named(name: str, task: str, mode: str) -> Metric:
    """The metric of this name. Raises InputError with the nearest names."""
    register = metric_register(task, mode)
    if name in register:
        return register[name]
    if name in not_built(mode):
        raise InputError(f'metric "{name}" has no value here: {not_built(mode)[name]}; choose another')
    if name in metric_register(task, ESTIMATE):
        raise InputError(f'metric "{name}" is one of estimates, and this is a {mode}: choose mode = "{ESTIMATE}"')
    raise InputError(f'metric "{name}" is unknown{nearest(name, register)}: `kvwall catalog metrics` lists them')


def mode_of(design: Design) -> str:
    """What a design is evaluated as."""
    return CEILING if design.calibrated is None else ESTIMATE


def evaluate(design: Design, task: str) -> Evaluation:
    """Every metric and label of a design, or of a grid of designs; pure and differentiable."""
    return evaluation_of(design, evaluate_step(design), task)


def evaluation_of(design: Design, step: Step, task: str) -> Evaluation:
    """Every metric and label of a design whose step is known."""
    register, labels = metric_register(task, mode_of(design)), label_register(mode_of(design))
    sourced = {needs: needs(design) for needs in {metric.sourced for metric in register.values()}}
    return Evaluation(
        metrics={name: metric.law(design, step) for name, metric in register.items()},
        labels={name: label.law(design, step) for name, label in labels.items()},
        sourced={name: sourced[metric.sourced] for name, metric in register.items()},
    )


jax.tree_util.register_dataclass(Evaluation)
