"""What `evaluate` tells of a design as flags, told of a whole study and counted on its front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.kv import FULL_BITS
from kvwall.objectives.tiers import TIERS
from kvwall.spaces.axes import AXES, NATIVE, Value
from kvwall.spaces.quality import LONGEST_CONTEXT
from kvwall.spaces.quality_methods import reader_of
from kvwall.spaces.quality_record_columns import dropper_of
from kvwall.spaces.quality_tasks import TASKS, task_rows
from kvwall.sweep.curve_evidence import Curve, curve_of
from kvwall.sweep.report.allowed_vetoes import concerned_by
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.left_out import arithmetic
from kvwall.sweep.report.wording import listed, short_name
from kvwall.sweep.study import Study

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""Axis -> values of some designs."""
Mask: TypeAlias = Callable[[Columns], NDArray[np.bool_]]
"""Says of each of some designs whether something holds."""


@dataclass(frozen=True)
class Remark:
    """A sentence, and which designs it is about."""

    text: str
    concerns: Mask


def remarks(results: Results) -> tuple[str, ...]:
    """Sentences about the study, each with the number of the front's designs that it concerns."""
    study, rows = results.study, results.front.sizes["point"]
    columns = {name: np.broadcast_to(results.front[name].values, rows) for name in AXES}
    told = []
    for remark in (*_vetoes(study), *_limits(study), *_quality(study), *_records(study)):
        count = int(np.count_nonzero(remark.concerns(columns)))
        where = f" ({count:,} of the {rows:,} designs on the front)" if rows else ""
        told.append(f"{remark.text}{where}.")
    return tuple(dict.fromkeys(told))


def _vetoes(study: Study) -> Iterator[Remark]:
    for name in study.allow_veto:
        yield Remark(
            f"Veto {name} is allowed: designs that are known to collapse for it are judged as if they were not",
            concerned_by(name, study),
        )


def _limits(study: Study) -> Iterator[Remark]:
    space = study.space
    longest = max(map(int, space.values("context"))) + max(map(int, space.values("output_tokens")))
    for name, model in zip(space.values("model"), study.catalogue.models, strict=True):
        limit = model.max_positions
        if limit is not None and longest > limit:
            yield Remark(
                f"Contexts above {limit:,} exceed what {short_name(str(name))} states: they are computed all the same",
                _both(_is("model", name), _longer_than(limit)),
            )
    for tier in TIERS:
        unlimited = any(getattr(chip, f"{tier}_capacity") is None for chip in study.catalogue.hardware)
        if unlimited and max(map(float, space.values(f"placement_{tier}"))) > 0:
            yield Remark(f"Memory of the {tier} tier is not limited where no source states it", _offloads(tier))
    if "list" in space.values("price_basis") and any(chip.list_price for chip in study.catalogue.hardware):
        yield Remark(
            "A list price is written off over an assumed number of years, without power and hosting",
            _is("price_basis", "list"),
        )


def _is(axis: str, value: Value) -> Mask:
    return lambda at: np.asarray(at[axis] == value)


def _both(one: Mask, other: Mask) -> Mask:
    return lambda at: one(at) & other(at)


def _longer_than(limit: int) -> Mask:
    return lambda at: np.asarray(at["context"] + at["output_tokens"] > limit)


def _offloads(tier: str) -> Mask:
    return lambda at: np.asarray(at[f"placement_{tier}"] > 0)


def _quantizes(at: Columns) -> NDArray[np.bool_]:
    return np.asarray((at["key_bits"] < FULL_BITS) | (at["value_bits"] < FULL_BITS))


def _evicts(at: Columns) -> NDArray[np.bool_]:
    return np.asarray(at["retention"] < 1)


def _narrows_weights(at: Columns) -> NDArray[np.bool_]:
    return np.array([_weight_bits(value) < FULL_BITS for value in at["weight_bits"]], dtype=bool)


def _weight_bits(value: Value) -> float:
    """Bits of a weight; a checkpoint's own format, which no remedy has narrowed, counts as full."""
    return FULL_BITS if str(value) == NATIVE else float(value)


def _remedies(study: Study) -> dict[str, Mask]:
    """The remedies that lose quality and that the study uses, and the designs that use each."""
    space = study.space
    found: dict[str, Mask] = {}
    if _least_kv_bits(study) < FULL_BITS:
        found["KV bits"] = _quantizes
    if min(map(float, space.values("retention"))) < 1:
        found["tokens dropped"] = _evicts
    if min(map(_weight_bits, space.values("weight_bits"))) < FULL_BITS:
        found["weight bits"] = _narrows_weights
    if min(map(float, space.values("read_fraction"))) < 1:
        found["tokens not read"] = lambda at: _below(at, "read_fraction", 1.0)
    if min(map(float, space.values("activation_bits"))) < FULL_BITS:
        found["activation bits"] = lambda at: _below(at, "activation_bits", FULL_BITS)
    return found


def _least_kv_bits(study: Study) -> float:
    return min(map(float, (*study.space.values("key_bits"), *study.space.values("value_bits"))))


def _quality(study: Study) -> Iterator[Remark]:
    used = _remedies(study)
    if not used:
        return
    yield Remark(
        "Loss of quality depends on neither the model's size nor the context's length, and on the model's kind only "
        "where published results tell kinds apart",
        lambda at: np.any([lossy(at) for lossy in used.values()], axis=0),
    )
    if len(used) > 1:
        how = (
            "the ln-ratios add" if study.task == "perplexity" else "the shares of the score that survive are multiplied"
        )
        yield Remark(
            f"Losses of {listed(used)} together are composed, not measured together: {how}",
            lambda at: np.sum([lossy(at) for lossy in used.values()], axis=0) > 1,
        )
    if "KV bits" in used and 0 in study.space.values("kv_group_size"):
        yield Remark(
            "kv_group_size 0 counts low-bit KV without scales and zero-points, which real formats store",
            _both(_quantizes, _is("kv_group_size", 0)),
        )
    yield from _extrapolations(study, used)
    for curve, concerns in _curves(study, used):
        if curve.remark:
            yield Remark(f"Quality: {curve.text}, task {curve.task}, {curve.remark}", concerns)


def _extrapolations(study: Study, used: Mapping[str, Mask]) -> Iterator[Remark]:
    curves, space = study.catalogue.curves, study.space
    bits, kept = curves.smallest_bits, curves.smallest_retention
    beyond = "the quality curves are extrapolated"
    if _least_kv_bits(study) < bits:
        yield Remark(
            f"Below {bits:g} bits of keys or values {beyond}",
            lambda at: _below(at, "key_bits", bits) | _below(at, "value_bits", bits),
        )
    if min(map(_weight_bits, space.values("weight_bits"))) < bits:
        yield Remark(
            f"Below {bits:g} bits per weight {beyond}",
            lambda at: np.array([_weight_bits(value) < bits for value in at["weight_bits"]], dtype=bool),
        )
    if min(map(float, space.values("retention"))) < kept:
        yield Remark(f"Below {100 * kept:.3g} % of the tokens kept {beyond}", lambda at: _below(at, "retention", kept))
    if max(map(int, space.values("context"))) > LONGEST_CONTEXT:
        yield Remark(
            f"Beyond a context of {LONGEST_CONTEXT:,} {beyond}",
            lambda at: (at["context"] > LONGEST_CONTEXT) & np.any([one(at) for one in used.values()], axis=0),
        )


def _below(at: Columns, axis: str, limit: float) -> NDArray[np.bool_]:
    return np.asarray(at[axis] < limit)


def _curves(study: Study, used: Mapping[str, Mask]) -> Iterator[tuple[Curve, Mask]]:
    """Every curve that the study's losses are read from, and the designs that use it."""
    curves = study.catalogue.curves
    for task in (TASKS[row] for row in task_rows(study.task)):
        for remedy, axis, lossy in (
            ("quantizer", "quantizer", "KV bits"),
            ("weight_quantizer", "weight_quantizer", "weight bits"),
        ):
            for name in map(str, study.space.values(axis) if lossy in used else ()):
                yield curve_of(curves, remedy, name, task), _both(used[lossy], _is(axis, name))
        for evictor in map(str, study.space.values("evictor")):
            yield from _of_evictor(study, used, evictor, task)
        if "activation bits" in used:
            yield curve_of(curves, "activation", "activation", task), used["activation bits"]


def _of_evictor(study: Study, used: Mapping[str, Mask], evictor: str, task: str) -> Iterator[tuple[Curve, Mask]]:
    """The curves of tokens dropped and of tokens not read."""
    curves, is_this = study.catalogue.curves, _is("evictor", evictor)
    if "tokens dropped" in used:
        for visible in map(bool, study.space.values("question_visible")):
            concerns = _both(_both(_evicts, is_this), _is("question_visible", visible))
            yield curve_of(curves, "evictor", dropper_of(evictor), task, visible), concerns
    if "tokens not read" in used:
        yield curve_of(curves, "evictor", reader_of(evictor), task), _both(used["tokens not read"], is_this)


def _records(study: Study) -> Iterator[Remark]:
    """Flags that models and chips carry."""
    space = study.space
    for name, model in zip(space.values("model"), study.catalogue.models, strict=True):
        yield from (Remark(f"{short_name(str(name))}: {flag}", _is("model", name)) for flag in model.flags)
    for name, chip in zip(space.values("hardware"), study.catalogue.hardware, strict=True):
        own = list(chip.flags)
        if chip.fp8_flops is None and chip.int8_ops is not None and arithmetic(study)[1].any():
            own.append("8-bit arithmetic is at the INT8 peak, as no source states an FP8 peak")
        yield from (Remark(f"{short_name(str(name))}: {flag}", _is("hardware", name)) for flag in own)
